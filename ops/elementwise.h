// What pointwise operators share: sets of dtypes, inference, and makers of their definitions.
#pragma once

#include "ops/expression.h"
#include "ops/ir/op.h"

namespace lathe::ops {

/// Sets of dtypes that schemas name. `floats` are f16, bf16, f32 and f64; `integers` the eight of whole bytes.
enum class Accepts : std::uint8_t {
  floats,
  floats_and_f8,
  integers,
  signed_numeric,
  numeric,
  boolean,
  comparable,
  anything
};

constexpr bool is_plain_float(DType d) {
  return d == DType::f16 || d == DType::bf16 || d == DType::f32 || d == DType::f64;
}
constexpr bool is_plain_integer(DType d) { return d.is_integer() && !d.is_packed(); }

constexpr bool accepts(Accepts set, DType d) {
  switch (set) {
    case Accepts::floats:
      return is_plain_float(d);
    case Accepts::floats_and_f8:
      return is_plain_float(d) || d.is_float8();
    case Accepts::integers:
      return is_plain_integer(d);
    case Accepts::signed_numeric:
      return is_plain_float(d) || (is_plain_integer(d) && d.is_signed_integer());
    case Accepts::numeric:
      return is_plain_float(d) || is_plain_integer(d);
    case Accepts::boolean:
      return d == DType::boolean;
    case Accepts::comparable:
      return is_plain_float(d) || is_plain_integer(d) || d == DType::boolean || d == DType::string;
    case Accepts::anything:
      return d != DType::undefined;
  }
  return false;
}

constexpr std::string_view text_of(Accepts set) {
  switch (set) {
    case Accepts::floats:
      return "floating point (f16, bf16, f32, f64)";
    case Accepts::floats_and_f8:
      return "floating point";
    case Accepts::integers:
      return "an integer type of whole bytes";
    case Accepts::signed_numeric:
      return "floating point or a signed integer type";
    case Accepts::numeric:
      return "floating point or an integer type";
    case Accepts::boolean:
      return "bool";
    case Accepts::comparable:
      return "floating point, integer, bool or string";
    case Accepts::anything:
      return "a tensor";
  }
  return "";
}

/// Failure unless input i is of the set.
inline void require_dtype(const OpView& op, int i, Accepts set) {
  const Fact& x = op.in(i);
  op.require(accepts(set, x.dtype), "input {} must be {}, got {}", i, text_of(set), x.dtype);
}
/// The same for every input, which must also share one dtype.
inline void require_dtypes(const OpView& op, Accepts set) {
  for (int i = 0; i < op.inputs(); ++i) {
    require_dtype(op, i, set);
    op.require_same_dtype(0, i);
  }
}

/// One input; the output has its type.
template <Accepts kSet>
Facts infer_unary(const OpView& op) {
  require_dtype(op, 0, kSet);
  return {{op.in(0).dtype, op.in(0).shape}};
}
/// One input; the output has its shape and is boolean.
template <Accepts kSet>
Facts infer_predicate(const OpView& op) {
  require_dtype(op, 0, kSet);
  return {{DType::boolean, op.in(0).shape}};
}
/// Inputs of one dtype, broadcast.
template <Accepts kSet>
Facts infer_broadcast(const OpView& op) {
  require_dtypes(op, kSet);
  return {{op.in(0).dtype, op.broadcast_all()}};
}
/// Inputs of one dtype, broadcast; the output is boolean.
template <Accepts kSet>
Facts infer_comparison(const OpView& op) {
  require_dtypes(op, kSet);
  return {{DType::boolean, op.broadcast_all()}};
}

template <loops::Op kOp>
Scalar unary_expr(const OpView&, LoopBuilder& b, int, const Coords& at) {
  return b.unary(kOp, b.in(0, at));
}
/// One input or more, combined from the left.
template <loops::Op kOp>
Scalar broadcast_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  Scalar all = b.in_broadcast(0, at);
  for (int i = 1; i < op.inputs(); ++i) all = b.binary(kOp, all, b.in_broadcast(i, at));
  return all;
}

/// Whether a fact is a rank-0 tensor, or one of a single element that older exporters write in its place.
inline bool is_scalar(const Fact& fact) { return fact.is_tensor() && fact.shape.elements() == 1; }

/// The only element of input i, a scalar.
inline Ex scalar_in(const OpView& op, LoopBuilder& b, int i) {
  Coords origin;
  for (int d = 0; d < op.in(i).rank(); ++d) origin.push_back({});
  return {b, b.in(i, origin)};
}

}  // namespace lathe::ops
