// Shapes, tensors and values.
#include <lathe/tensor.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "ops/ir/failure.h"
#include "ops/ir/memory.h"
#include "ops/ir/numeric.h"

namespace lathe {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kAddressSpace = std::size_t{1} << 47;  // sanitizers end a process that asks for more
constexpr std::size_t kTooLarge = std::numeric_limits<std::size_t>::max();

std::shared_ptr<void> allocate_zeroed(std::size_t bytes) {
  if (ops::MemorySource* source = ops::MemoryScope::current()) {
    std::shared_ptr<void> memory = source->allocate(bytes);
    std::memset(memory.get(), 0, bytes);
    return memory;
  }
  if (bytes > kAddressSpace) throw std::bad_alloc();
  void* data = ::operator new(bytes, kAlignment, std::nothrow);
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, bytes);
  return {data, [](void* p) { ::operator delete(p, kAlignment); }};
}

std::complex<double> complex_element(const Tensor& tensor, std::int64_t i) {
  if (tensor.dtype() == DType::c64) return tensor.view<std::complex<float>>()[static_cast<std::size_t>(i)];
  if (tensor.dtype() == DType::c128) return tensor.view<std::complex<double>>()[static_cast<std::size_t>(i)];
  return tensor.number(i);
}

/// Where one of the two is complex: a real takes the real part (a boolean: whether any part is not zero).
void cast_complex(const Tensor& from, Tensor& to) {
  for (std::int64_t i = 0; i < from.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::complex<double> value = complex_element(from, i);
    if (to.dtype() == DType::c64) {
      to.mutable_view<std::complex<float>>()[at] = std::complex<float>(value);
    } else if (to.dtype() == DType::c128) {
      to.mutable_view<std::complex<double>>()[at] = value;
    } else if (to.dtype() == DType::boolean) {
      to.mutable_view<bool>()[at] = value != 0.0;
    } else {
      const auto bits = std::bit_cast<std::uint64_t>(value.real());
      numeric::store(to.dtype(), to.mutable_data(), i, numeric::convert(to.dtype(), DType::f64, bits));
    }
  }
}

}  // namespace

std::int64_t Shape::elements() const {
  bool empty_dim = false;
  for (const std::int64_t d : dims()) {
    if (d < 0) return -1;
    empty_dim = empty_dim || d == 0;
  }
  if (empty_dim) return 0;
  std::int64_t n = 1;
  for (const std::int64_t d : dims()) {
    if (__builtin_mul_overflow(n, d, &n)) return -1;
  }
  return n;
}

std::string Shape::to_string() const {
  if (rank_ == 0) return "scalar";
  std::string text;
  for (const std::int64_t d : dims()) {
    if (!text.empty()) text += 'x';
    text += std::to_string(d);
  }
  return text;
}

std::size_t Tensor::byte_size(DType dtype, const Shape& shape) {
  const std::int64_t elements = shape.elements();
  if (elements < 0) return kTooLarge;
  const auto n = static_cast<std::size_t>(elements);
  const auto bits = static_cast<std::size_t>(dtype.bits());
  if (dtype.is_packed()) return n / (8 / bits) + (n % (8 / bits) != 0 ? 1 : 0);
  std::size_t bytes = 0;
  return __builtin_mul_overflow(n, bits / 8, &bytes) ? kTooLarge : bytes;
}

Tensor::Tensor(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape) {
  const std::size_t size = byte_size(dtype, shape);
  if (dtype == DType::string) {
    static_assert(sizeof(std::string) * 8 == 256);
    struct Strings {
      std::shared_ptr<void> charge;
      std::vector<std::string> elements;
    };
    auto strings = std::make_shared<Strings>();
    if (ops::MemorySource* source = ops::MemoryScope::current()) strings->charge = source->charge(size);
    if (size > kAddressSpace) throw std::bad_alloc();
    strings->elements.resize(static_cast<std::size_t>(shape.elements()));
    data_ = strings->elements.data();
    owner_ = std::move(strings);
  } else if (dtype != DType::undefined) {
    auto memory = allocate_zeroed(size);
    data_ = memory.get();
    owner_ = std::move(memory);
  }
}

Tensor::Tensor(Tensor&& other) noexcept
    : dtype_(std::exchange(other.dtype_, DType::undefined)),
      shape_(other.shape_),
      data_(std::exchange(other.data_, nullptr)),
      owner_(std::move(other.owner_)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  dtype_ = std::exchange(other.dtype_, DType::undefined);
  shape_ = other.shape_;
  data_ = std::exchange(other.data_, nullptr);
  owner_ = std::move(other.owner_);
  return *this;
}

Result<Tensor> Tensor::try_make(DType dtype, const Shape& shape) noexcept {
  try {
    if (dtype == DType::undefined) return Error{ErrorCode::invalid_argument, "a tensor needs a dtype"};
    if (std::any_of(shape.begin(), shape.end(), [](std::int64_t d) { return d < 0; })) {
      return Error{ErrorCode::invalid_argument, "a tensor's extents must be 0 or more, got " + shape.to_string()};
    }
    return Tensor(dtype, shape);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory,
                 "no memory for a tensor of " + std::string(dtype.name()) + " " + shape.to_string()};
  } catch (const Failure& failure) {
    return failure.error;
  }
}

Tensor Tensor::borrow(DType dtype, const Shape& shape, void* data) { return borrow(dtype, shape, data, nullptr); }

Tensor Tensor::borrow(DType dtype, const Shape& shape, void* data, std::shared_ptr<const void> owner) {
  alignas(16) static std::byte no_elements[16];
  if (dtype == DType::string || (data == nullptr && byte_size(dtype, shape) != 0)) return {};
  if (data == nullptr) data = no_elements;
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = shape;
  t.data_ = data;
  t.owner_ = std::move(owner);
  return t;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.elements() != shape_.elements()) return {};
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::clone() const {
  Tensor t(dtype_, shape_);
  if (dtype_ == DType::string) {
    const auto from = view<std::string>();
    const auto to = t.mutable_view<std::string>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i];
  } else if (const std::size_t size = bytes(); size != 0) {
    std::memcpy(t.data_, data_, size);
  }
  return t;
}

Tensor Tensor::cast(DType dtype) const {
  if (dtype == dtype_) return clone();
  const auto is_number = [](DType d) { return d != DType::string && d != DType::undefined; };
  if (!is_number(dtype_) || !is_number(dtype)) return {};
  Tensor t(dtype, shape_);
  if (dtype_.is_complex() || dtype.is_complex()) {
    cast_complex(*this, t);
    return t;
  }
  const std::int64_t n = size();
  for (std::int64_t i = 0; i < n; ++i) {
    numeric::store(dtype, t.data_, i, numeric::convert(dtype, dtype_, numeric::load(dtype_, data_, i)));
  }
  return t;
}

double Tensor::number(std::int64_t i) const {
  assert(i >= 0 && i < size());
  if (dtype_ == DType::string || dtype_.is_complex()) return std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<double>(numeric::convert(DType::f64, dtype_, numeric::load(dtype_, data_, i)));
}

std::int64_t Tensor::integer(std::int64_t i) const {
  assert(i >= 0 && i < size());
  if (dtype_ == DType::string || dtype_.is_complex()) return 0;
  return static_cast<std::int64_t>(numeric::convert(DType::i64, dtype_, numeric::load(dtype_, data_, i)));
}

const Tensor& Value::tensor() const {
  static const Tensor kNone;
  const auto* tensor = std::get_if<Tensor>(&value_);
  return tensor != nullptr ? *tensor : kNone;
}

const Sequence& Value::sequence() const {
  static const Sequence kNone;
  const auto* sequence = std::get_if<std::shared_ptr<Sequence>>(&value_);
  return sequence != nullptr && *sequence ? **sequence : kNone;
}

const Optional& Value::optional() const {
  static const Optional kNone;
  const auto* optional = std::get_if<Optional>(&value_);
  return optional != nullptr ? *optional : kNone;
}

const Map& Value::map() const {
  static const Map kNone;
  const auto* map = std::get_if<std::shared_ptr<Map>>(&value_);
  return map != nullptr && *map ? **map : kNone;
}

}  // namespace lathe
