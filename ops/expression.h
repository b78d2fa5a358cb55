// Ex: a scalar of a loop kernel with C++'s operators, so that an operator's formula reads as a formula.
#pragma once

#include "ops/ir/loop_builder.h"

namespace lathe::ops {

/// Numbers mixed in become constants of the other operand's dtype.
struct Ex {
  LoopBuilder* b;
  Scalar s;

  Ex(LoopBuilder& builder, Scalar scalar) : b(&builder), s(scalar) {}
  operator Scalar() const { return s; }  // NOLINT(google-explicit-constructor)

  [[nodiscard]] DType dtype() const { return b->dtype(s); }
  /// `value` in the dtype of this expression.
  [[nodiscard]] Ex like(double value) const {
    return {*b, dtype().is_float() ? b->constant(dtype(), value)
                                   : b->constant_int(dtype(), static_cast<std::int64_t>(value))};
  }
  [[nodiscard]] Ex apply(loops::Op op) const { return {*b, b->unary(op, s)}; }
  [[nodiscard]] Ex apply(loops::Op op, Ex other) const { return {*b, b->binary(op, s, other.s)}; }
  [[nodiscard]] Ex cast(DType to) const { return to == dtype() ? *this : Ex{*b, b->cast(s, to)}; }
};

// clang-format off
inline Ex operator+(Ex x, Ex y) { return x.apply(loops::Op::add, y); }
inline Ex operator-(Ex x, Ex y) { return x.apply(loops::Op::sub, y); }
inline Ex operator*(Ex x, Ex y) { return x.apply(loops::Op::mul, y); }
inline Ex operator/(Ex x, Ex y) { return x.apply(loops::Op::div, y); }
inline Ex operator+(Ex x, double y) { return x + x.like(y); }
inline Ex operator-(Ex x, double y) { return x - x.like(y); }
inline Ex operator*(Ex x, double y) { return x * x.like(y); }
inline Ex operator/(Ex x, double y) { return x / x.like(y); }
inline Ex operator+(double x, Ex y) { return y.like(x) + y; }
inline Ex operator-(double x, Ex y) { return y.like(x) - y; }
inline Ex operator*(double x, Ex y) { return y.like(x) * y; }
inline Ex operator-(Ex x) { return x.apply(loops::Op::neg); }
inline Ex operator<(Ex x, Ex y) { return x.apply(loops::Op::less, y); }
inline Ex operator>(Ex x, Ex y) { return x.apply(loops::Op::greater, y); }
inline Ex operator>=(Ex x, Ex y) { return x.apply(loops::Op::greater_equal, y); }
inline Ex operator<=(Ex x, Ex y) { return x.apply(loops::Op::less_equal, y); }
inline Ex operator==(Ex x, Ex y) { return x.apply(loops::Op::equal, y); }
inline Ex operator!=(Ex x, Ex y) { return x.apply(loops::Op::not_equal, y); }
inline Ex operator<(Ex x, double y) { return x < x.like(y); }
inline Ex operator>(Ex x, double y) { return x > x.like(y); }
inline Ex operator>=(Ex x, double y) { return x >= x.like(y); }
inline Ex operator==(Ex x, double y) { return x == x.like(y); }
inline Ex operator!=(Ex x, double y) { return x != x.like(y); }
inline Ex operator&&(Ex x, Ex y) { return x.apply(loops::Op::logical_and, y); }
inline Ex operator||(Ex x, Ex y) { return x.apply(loops::Op::logical_or, y); }
inline Ex operator!(Ex x) { return x.apply(loops::Op::logical_not); }
inline Ex operator&(Ex x, Ex y) { return x.apply(loops::Op::bit_and, y); }
inline Ex max(Ex x, Ex y) { return x.apply(loops::Op::max, y); }
inline Ex min(Ex x, Ex y) { return x.apply(loops::Op::min, y); }
inline Ex max(Ex x, double y) { return max(x, x.like(y)); }
inline Ex min(Ex x, double y) { return min(x, x.like(y)); }
inline Ex abs(Ex x) { return x.apply(loops::Op::abs); }
inline Ex exp(Ex x) { return x.apply(loops::Op::exp); }
inline Ex log(Ex x) { return x.apply(loops::Op::log); }
inline Ex sqrt(Ex x) { return x.apply(loops::Op::sqrt); }
inline Ex tanh(Ex x) { return x.apply(loops::Op::tanh); }
inline Ex erf(Ex x) { return x.apply(loops::Op::erf); }
inline Ex sigmoid(Ex x) { return x.apply(loops::Op::sigmoid); }
inline Ex pow(Ex x, Ex y) { return x.apply(loops::Op::pow, y); }
// clang-format on

/// condition ? x : y
inline Ex select(Ex condition, Ex x, Ex y) { return {*x.b, x.b->select(condition, x, y)}; }
inline Ex select(Ex condition, Ex x, double y) { return select(condition, x, x.like(y)); }

/// log(1 + x) for x > -1, exact to the last bits for tiny x too (Kahan): u = 1 + x is rounded, x / (u - 1) undoes it.
inline Ex log1p(Ex x) {
  const Ex u = x + 1;
  return select(u == 1, x, log(u) * x / (u - 1));
}

}  // namespace lathe::ops
