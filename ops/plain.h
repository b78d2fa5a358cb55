// What plain C++ kernels share: narrow floats through f32, and moving elements of any dtype.
#pragma once

#include <algorithm>
#include <complex>
#include <cstring>
#include <string>

#include "ops/ir/kernel_context.h"
#include "ops/ir/numeric.h"

namespace lathe::ops {

/// Writes `from`, converted to the dtype of `to`, into its memory. Both are real and have as many elements.
inline void assign(Tensor to, const Tensor& from) {
  if (to.dtype() == from.dtype()) {
    if (to.bytes() != 0) std::memcpy(to.mutable_data(), from.data(), to.bytes());
    return;
  }
  for (std::int64_t i = 0; i < from.size(); ++i) {
    numeric::store(to.dtype(), to.mutable_data(), i,
                   numeric::convert(to.dtype(), from.dtype(), numeric::load(from.dtype(), from.data(), i)));
  }
}

/// f16, bf16 and float8 as f32, in the kernel's working memory; every other dtype as it is.
inline Tensor widened(const KernelContext& ctx, const Tensor& t) {
  if (!t.dtype().is_float() || t.dtype().bits() >= 32) return t;
  Tensor wide = ctx.temporary(DType::f32, t.shape());
  assign(wide, t);
  return wide;
}

/// Copies `count` elements of one tensor to another of the same dtype, whatever that is. Offsets count elements.
inline void copy_elements(const Tensor& from, std::int64_t from_offset, Tensor& to, std::int64_t to_offset,
                          std::int64_t count) {
  if (count <= 0) return;
  const DType dtype = from.dtype();
  if (dtype == DType::string) {
    const auto source = from.view<std::string>();
    std::copy_n(source.begin() + from_offset, count, to.mutable_view<std::string>().begin() + to_offset);
  } else if (dtype.is_packed()) {
    for (std::int64_t i = 0; i < count; ++i) {
      numeric::store(dtype, to.mutable_data(), to_offset + i, numeric::load(dtype, from.data(), from_offset + i));
    }
  } else {
    const std::int64_t width = dtype.bits() / 8;
    std::memcpy(static_cast<char*>(to.mutable_data()) + to_offset * width,
                static_cast<const char*>(from.data()) + from_offset * width, static_cast<std::size_t>(count * width));
  }
}

/// The number of elements in dims [begin, end).
inline std::int64_t extent_of(const Shape& shape, int begin, int end) {
  std::int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= shape[d];
  return n;
}

}  // namespace lathe::ops
