// KernelContext: what a plain C++ kernel works on.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ops/ir/op.h"

namespace lathe::ops {

/// The inputs and outputs of one node at run time. Memory is row-major, aligned to the element only. Packed dtypes (4
/// and 2 bits) lie packed. A kernel may throw Failure: the runtime turns it into an Error that names the node.
class KernelContext {
 public:
  KernelContext(const OpView& op, std::span<const Value> inputs, std::span<Value> outputs)
      : op_(op), inputs_(inputs), outputs_(outputs) {}

  [[nodiscard]] const OpView& op() const { return op_; }
  [[nodiscard]] bool has(int i) const { return op_.has(i); }
  [[nodiscard]] bool wants(int output) const { return op_.wants(output); }

  /// Input i as a tensor.
  [[nodiscard]] const Tensor& in(int i) const { return inputs_[static_cast<std::size_t>(i)].tensor(); }
  template <class T>
  [[nodiscard]] std::span<const T> in(int i) const {
    return in(i).view<T>();
  }
  /// Output i, allocated with the inferred dtype and shape.
  [[nodiscard]] Tensor out(int i) const { return outputs_[static_cast<std::size_t>(i)].tensor(); }
  template <class T>
  [[nodiscard]] std::span<T> out(int i) const {
    return out(i).mutable_view<T>();
  }
  /// Allocates output i of an operator with `dynamic_output`.
  Tensor allocate(int i, DType dtype, const Shape& shape);

  /// Input and output i whatever their kind: sequences, optionals, maps.
  [[nodiscard]] const Value& value(int i) const { return inputs_[static_cast<std::size_t>(i)]; }
  void set(int i, Value value) { outputs_[static_cast<std::size_t>(i)] = std::move(value); }

  /// Runs body(begin, end) over parts of [0, count) on the run's threads; each part has at least `grain` items.
  void parallel(std::int64_t count, std::int64_t grain,
                const std::function<void(std::int64_t, std::int64_t)>& body) const {
    if (parallel_ && count > grain) {
      parallel_(count, grain, body);
    } else if (count > 0) {
      body(0, count);
    }
  }
  std::function<void(std::int64_t, std::int64_t, const std::function<void(std::int64_t, std::int64_t)>&)> parallel_;

  template <class... Args>
  [[noreturn]] void error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) const {
    fail(code, "{}: {}", describe(op_.node()), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const OpView& op_;
  std::span<const Value> inputs_;
  std::span<Value> outputs_;
};

/// Calls fn with a null pointer of the C++ type of a dtype (f16 and bf16 as themselves are not among them); Failure for
/// others.
template <class Fn>
auto dispatch_numeric(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f32:
      return fn(static_cast<float*>(nullptr));
    case DType::f64:
      return fn(static_cast<double*>(nullptr));
    case DType::i8:
      return fn(static_cast<std::int8_t*>(nullptr));
    case DType::i16:
      return fn(static_cast<std::int16_t*>(nullptr));
    case DType::i32:
      return fn(static_cast<std::int32_t*>(nullptr));
    case DType::i64:
      return fn(static_cast<std::int64_t*>(nullptr));
    case DType::u8:
      return fn(static_cast<std::uint8_t*>(nullptr));
    case DType::u16:
      return fn(static_cast<std::uint16_t*>(nullptr));
    case DType::u32:
      return fn(static_cast<std::uint32_t*>(nullptr));
    case DType::u64:
      return fn(static_cast<std::uint64_t*>(nullptr));
    case DType::boolean:
      return fn(static_cast<bool*>(nullptr));
    default:
      fail(ErrorCode::unsupported, "dtype {} is not supported here", dtype);
  }
}

}  // namespace lathe::ops
