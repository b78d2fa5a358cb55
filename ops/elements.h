// Moving elements of any dtype in plain kernels: by their size, never by their meaning.
#pragma once

#include <complex>
#include <cstring>
#include <string>

#include "ops/ir/failure.h"
#include "ops/ir/numeric.h"

namespace lathe::ops {

/// Copies the elements of x to y, which has as many of the same dtype.
inline void copy_elements(const Tensor& x, Tensor& y) {
  if (x.dtype() == DType::string) {
    const auto in = x.view<std::string>();
    const auto out = y.mutable_view<std::string>();
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i];
  } else if (y.bytes() > 0) {
    std::memcpy(y.mutable_data(), x.data(), y.bytes());
  }
}

/// Calls fn with a null pointer of a C++ type that elements of the dtype can be moved as. Packed dtypes have none.
template <class Fn>
auto dispatch_element(DType dtype, Fn&& fn) {
  if (dtype == DType::string) return fn(static_cast<std::string*>(nullptr));
  switch (dtype.bits()) {
    case 8:
      return fn(static_cast<std::uint8_t*>(nullptr));
    case 16:
      return fn(static_cast<std::uint16_t*>(nullptr));
    case 32:
      return fn(static_cast<std::uint32_t*>(nullptr));
    case 64:
      return fn(static_cast<std::uint64_t*>(nullptr));
    case 128:
      return fn(static_cast<std::complex<double>*>(nullptr));
    default:
      fail(ErrorCode::unsupported, "elements of {} cannot be moved one by one", dtype);
  }
}

/// A packed tensor with one element per byte, as u8; other tensors as they are.
inline Tensor unpacked(const Tensor& x) {
  if (!x.dtype().is_packed()) return x;
  Tensor bytes(DType::u8, x.shape());
  numeric::unpack(x.dtype(), x.data(), x.size(), bytes.mutable_data());
  return bytes;
}

/// Runs move(x, y) on tensors without packed elements: y is packed again behind it.
template <class Move>
void move_unpacked(const Tensor& x, Tensor& y, Move&& move) {
  if (!y.dtype().is_packed()) return move(x, y);
  Tensor bytes(DType::u8, y.shape());
  move(unpacked(x), bytes);
  numeric::pack(y.dtype(), bytes.data(), bytes.size(), y.mutable_data());
}

}  // namespace lathe::ops
