// Tensor: typed, shaped memory, owned or borrowed; Value: a tensor, or a sequence, optional or map of values.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <lathe/dtype.h>
#include <lathe/error.h>
#include <lathe/export.h>
#include <lathe/shape.h>

namespace lathe {

namespace detail {
template <class T>
struct DTypeOf {};
// clang-format off
template <> struct DTypeOf<float> { static constexpr DType value = DType::f32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::f64; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType value = DType::i8; };
template <> struct DTypeOf<std::int16_t> { static constexpr DType value = DType::i16; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::i32; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::u8; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType value = DType::u16; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType value = DType::u32; };
template <> struct DTypeOf<std::uint64_t> { static constexpr DType value = DType::u64; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::boolean; };
template <> struct DTypeOf<std::string> { static constexpr DType value = DType::string; };
template <> struct DTypeOf<std::complex<float>> { static constexpr DType value = DType::c64; };
template <> struct DTypeOf<std::complex<double>> { static constexpr DType value = DType::c128; };
// clang-format on
}  // namespace detail

/// The dtype of a C++ element type.
template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

/// A dense row-major array. Copies share the memory; what one copy writes the others see. Owned memory is released with
/// the last copy; borrowed memory must outlive every copy. Distinct tensors may be used from distinct threads; sharing
/// one is safe as long as nobody writes. Where a call cannot make the tensor it is asked for (shapes that do not match,
/// null memory, a conversion that does not exist), it returns one that is not `defined()`; so is one moved from.
class LATHE_API Tensor {
 public:
  /// No tensor: `defined()` is false.
  Tensor() = default;
  /// Owned memory, zeroed (strings empty). Throws std::bad_alloc where it cannot be had; see try_make.
  Tensor(DType dtype, const Shape& shape);
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  ~Tensor() = default;
  /// The same without exceptions: invalid_argument (no dtype, a negative extent) or out_of_memory.
  static Result<Tensor> try_make(DType dtype, const Shape& shape) noexcept;

  /// A copy of `values`; `shape.elements()` must equal their number.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    if (static_cast<std::int64_t>(values.size()) != shape.elements()) return {};
    Tensor t(dtype_of<T>, shape);
    T* out = static_cast<T*>(t.mutable_data());
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  /// A rank-0 tensor.
  template <class T>
  static Tensor scalar(T value) {
    return from(std::span<const T>(&value, 1), Shape{});
  }
  /// A view of the caller's memory of at least `byte_size(dtype, shape)` bytes, aligned to the element, which must stay
  /// valid while any copy of the tensor lives; null only for a tensor without elements. Not for strings.
  static Tensor borrow(DType dtype, const Shape& shape, void* data);
  /// The same over memory whose owner is kept alive with the tensor.
  static Tensor borrow(DType dtype, const Shape& shape, void* data, std::shared_ptr<const void> owner);

  [[nodiscard]] bool defined() const { return dtype_ != DType::undefined; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  /// Number of elements.
  [[nodiscard]] std::int64_t size() const { return defined() ? shape_.elements() : 0; }
  /// Bytes of the elements (packed dtypes rounded up to a byte).
  [[nodiscard]] std::size_t bytes() const { return byte_size(dtype_, shape_); }
  /// Bytes that `shape` elements of `dtype` take; SIZE_MAX where that overflows.
  static std::size_t byte_size(DType dtype, const Shape& shape);

  [[nodiscard]] const void* data() const { return data_; }
  [[nodiscard]] void* mutable_data() { return data_; }

  /// The elements; empty unless `dtype() == dtype_of<T>`.
  template <class T>
  [[nodiscard]] std::span<const T> view() const {
    if (dtype_ != dtype_of<T>) return {};
    return {static_cast<const T*>(data_), static_cast<std::size_t>(size())};
  }
  template <class T>
  [[nodiscard]] std::span<T> mutable_view() {
    if (dtype_ != dtype_of<T>) return {};
    return {static_cast<T*>(data_), static_cast<std::size_t>(size())};
  }

  /// The same memory under another shape with as many elements.
  [[nodiscard]] Tensor reshaped(const Shape& shape) const;
  /// A copy with memory of its own. Throws std::bad_alloc as the constructor does; so does cast.
  [[nodiscard]] Tensor clone() const;
  /// The elements converted as ONNX's Cast does (saturating to float8), packed types included; no conversion exists
  /// from or to strings.
  [[nodiscard]] Tensor cast(DType dtype) const;
  /// Element `i` as a double, whatever the dtype; of strings and complex numbers NaN. Undefined where i is not in
  /// [0, size()).
  [[nodiscard]] double number(std::int64_t i) const;
  /// Element `i` as an integer, whatever the dtype; floats truncate; of strings and complex numbers 0. Undefined
  /// where i is not in [0, size()).
  [[nodiscard]] std::int64_t integer(std::int64_t i) const;

 private:
  DType dtype_ = DType::undefined;
  Shape shape_;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

class Value;
/// A sequence, element by element.
using Sequence = std::vector<Value>;
/// A map from integers or strings, in key order.
using Map = std::map<std::variant<std::int64_t, std::string>, Value>;
/// An optional of a tensor or a sequence: null when absent.
struct Optional {
  std::shared_ptr<Value> value;
};

/// What flows in and out of a model: nearly always a Tensor.
class LATHE_API Value {
 public:
  Value() = default;
  Value(Tensor tensor) : value_(std::move(tensor)) {}                                    // NOLINT
  Value(Sequence sequence) : value_(std::make_shared<Sequence>(std::move(sequence))) {}  // NOLINT
  Value(Optional optional) : value_(std::move(optional)) {}                              // NOLINT
  Value(Map map) : value_(std::make_shared<Map>(std::move(map))) {}                      // NOLINT

  [[nodiscard]] bool is_tensor() const { return std::holds_alternative<Tensor>(value_); }
  [[nodiscard]] bool is_sequence() const { return std::holds_alternative<std::shared_ptr<Sequence>>(value_); }
  [[nodiscard]] bool is_optional() const { return std::holds_alternative<Optional>(value_); }
  [[nodiscard]] bool is_map() const { return std::holds_alternative<std::shared_ptr<Map>>(value_); }

  /// The tensor; undefined where the value is something else.
  [[nodiscard]] const Tensor& tensor() const;
  [[nodiscard]] const Sequence& sequence() const;
  [[nodiscard]] const Optional& optional() const;
  [[nodiscard]] const Map& map() const;

  operator const Tensor&() const { return tensor(); }  // NOLINT(google-explicit-constructor)
  template <class T>
  [[nodiscard]] std::span<const T> view() const {
    return tensor().view<T>();
  }
  [[nodiscard]] DType dtype() const { return tensor().dtype(); }
  [[nodiscard]] const Shape& shape() const { return tensor().shape(); }

 private:
  std::variant<Tensor, std::shared_ptr<Sequence>, Optional, std::shared_ptr<Map>> value_;
};

}  // namespace lathe
