// Tensors made from coordinates: Range, ConstantOfShape, EyeLike, OneHot and Trilu.
#include <cmath>

#include "ops/elementwise.h"

namespace lathe::ops {
namespace {

constexpr Attribute kRangeAttributes[] = {{"stash_type", 1}};
constexpr Attribute kFillAttributes[] = {{"value", AttrKind::tensor}};
constexpr Attribute kEyeAttributes[] = {{"dtype", AttrKind::integer}, {"k", 0}};
constexpr Attribute kOneHotAttributes[] = {{"axis", -1}};
constexpr Attribute kTriluAttributes[] = {{"upper", 1}};

// ---- Range ----

// max(0, ceil((limit - start) / delta)), in integers without overflow.
std::int64_t integer_count(std::int64_t start, std::int64_t limit, std::int64_t delta) {
  if (delta > 0 ? limit <= start : limit >= start) return 0;
  const auto from = static_cast<std::uint64_t>(delta > 0 ? start : limit);
  const auto to = static_cast<std::uint64_t>(delta > 0 ? limit : start);
  const std::uint64_t step = delta > 0 ? static_cast<std::uint64_t>(delta) : 0U - static_cast<std::uint64_t>(delta);
  return static_cast<std::int64_t>(std::min<std::uint64_t>((to - from - 1) / step + 1, INT64_MAX));
}

Facts infer_range(const OpView& op) {
  for (int i = 0; i < 3; ++i) {
    op.require(is_scalar(op.in(i)), "input {} must be a scalar, got {}", i, op.in(i).to_string());
    op.require(op.value(i) != nullptr, "the value of input {} is not known", i);
  }
  const DType dtype = op.in(0).dtype;
  if (!dtype.is_float()) {
    const std::int64_t delta = op.value(2)->integer(0);
    op.require(delta != 0, "delta is 0");
    return {{dtype, {integer_count(op.value(0)->integer(0), op.value(1)->integer(0), delta)}}};
  }
  const double delta = op.value(2)->number(0);
  const double count = std::ceil((op.value(1)->number(0) - op.value(0)->number(0)) / delta);
  op.require(delta != 0 && count < 0x1p62, "{} to {} in steps of {} is no finite range", op.value(0)->number(0),
             op.value(1)->number(0), delta);
  return {{dtype, {static_cast<std::int64_t>(std::max(count, 0.0))}}};
}

Scalar range_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex start = scalar_in(op, b, 0);
  const Ex delta = scalar_in(op, b, 2);
  return start + Ex(b, b.coordinate(at[0])).cast(start.dtype()) * delta;
}

// ---- ConstantOfShape ----

DType fill_type(const OpView& op) {
  const Tensor* value = op.attr_tensor("value");
  return value ? value->dtype() : DType(DType::f32);
}

Facts infer_constant_of_shape(const OpView& op) {
  const std::vector<std::int64_t> dims = op.ints(0);
  const Tensor* value = op.attr_tensor("value");
  op.require(op.in(0).rank() == 1, "the shape must be a vector, got {}", op.in(0).to_string());
  op.require(dims.size() <= Shape::kMaxRank, "shape has {} entries, at most {} are supported", dims.size(),
             Shape::kMaxRank);
  for (std::int64_t dim : dims) op.require(dim >= 0, "shape has a negative entry, {}", dim);
  op.require(!value || value->size() == 1, "value must have one element, got {}", value ? value->size() : 0);
  const DType dtype = fill_type(op);
  op.require(dtype != DType::string && !dtype.is_complex(), "value must be a number, got {}", dtype);
  return {{dtype, Shape(dims)}};
}

Scalar constant_of_shape_expr(const OpView& op, LoopBuilder& b, int, const Coords&) {
  const DType type = LoopBuilder::compute_type(fill_type(op));
  const Tensor* value = op.attr_tensor("value");
  if (!value) return b.constant(type, 0);
  return type.is_float() ? b.constant(type, value->number(0)) : b.constant_int(type, value->integer(0));
}

// ---- EyeLike ----

Facts infer_eye_like(const OpView& op) {
  op.require(op.in(0).rank() == 2, "the input must have rank 2, got {}", op.in(0).to_string());
  DType dtype = op.in(0).dtype;
  if (op.has_attr("dtype")) {
    const std::int64_t code = op.i("dtype");
    op.require(code > 0 && code < DType::kCount, "dtype is {}, which is no dtype", code);
    dtype = static_cast<DType::Code>(code);
  }
  op.require((kNumbers | DType::boolean).contains(dtype), "no ones of {} exist", dtype);
  return {{dtype, op.in(0).shape}};
}

Scalar eye_like_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex row(b, b.coordinate(at[0]));
  const Ex column(b, b.coordinate(at[1]));
  const DType type = LoopBuilder::compute_type(op.out(0).dtype);
  const Ex k(b, b.constant_int(DType::i64, op.i("k")));
  return select(column == row + k, Ex(b, b.constant(type, 1)), 0);
}

// ---- OneHot ----

Facts infer_one_hot(const OpView& op) {
  op.require(is_scalar(op.in(1)), "depth must be a scalar, got {}", op.in(1).to_string());
  op.require(op.in(2).shape == Shape{2}, "values must have shape 2, got {}", op.in(2).shape);
  op.require(op.value(1) != nullptr, "the value of depth is not known");
  const std::int64_t depth = op.value(1)->integer(0);
  op.require(depth >= 0, "depth must not be negative, got {}", depth);
  Shape shape = op.in(0).shape;
  op.require(shape.rank() < Shape::kMaxRank, "the output would have rank {}, at most {} is supported", shape.rank() + 1,
             Shape::kMaxRank);
  shape.insert(op.axis("axis", shape.rank() + 1), depth);
  return {{op.in(2).dtype, shape}};
}

Scalar one_hot_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const int axis = op.axis("axis", at.rank);
  Coords place;
  for (int d = 0; d < at.rank; ++d) {
    if (d != axis) place.push_back(at[d]);
  }
  const Ex raw = Ex(b, b.in(0, place)).cast(DType::i64);
  const Ex depth(b, b.number_int(DType::i64, op.out(0).shape[axis]));
  const Ex index = op.in(0).dtype.is_unsigned_integer() ? raw : select(raw < 0, raw + depth, raw);
  Coords off;
  off.push_back({});
  Coords on = off;
  on[0].base = 1;
  return b.select(Ex(b, b.coordinate(at[axis])) == index, b.in(2, on), b.in(2, off));
}

// ---- Trilu ----

Facts infer_trilu(const OpView& op) {
  op.require(op.in(0).rank() >= 2, "the input must have rank 2 or more, got {}", op.in(0).shape);
  if (op.has(1)) {
    op.require(is_scalar(op.in(1)) && op.in(1).dtype == DType::i64, "k must be an i64 scalar, got {}",
               op.in(1).to_string());
  }
  return {{op.in(0).dtype, op.in(0).shape}};
}

// Keeps what lies on the k-th diagonal and above it (or below).
Scalar trilu_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in(0, at));
  const Ex row(b, b.coordinate(at[at.rank - 2]));
  const Ex column(b, b.coordinate(at[at.rank - 1]));
  const Ex k = op.has(1) ? scalar_in(op, b, 1) : row.like(0);
  const Ex keep = op.i("upper") != 0 ? column - row >= k : column - row <= k;
  return select(keep, x, 0);
}

}  // namespace

extern const OpDef op_range, op_constant_of_shape, op_eye_like, op_one_hot, op_trilu;

constinit const OpDef op_range = {.name = "Range",
                                  .inputs = 3,
                                  .attributes = kRangeAttributes,
                                  .forms = {11, 27},
                                  .takes = kNumbers,
                                  .shape_inputs = 0b111,
                                  .infer = infer_range,
                                  .expr = range_expr};
constinit const OpDef op_constant_of_shape = {.name = "ConstantOfShape",
                                              .attributes = kFillAttributes,
                                              .forms = {9, 25},
                                              .takes = kIndices,
                                              .shape_inputs = 0b1,
                                              .infer = infer_constant_of_shape,
                                              .expr = constant_of_shape_expr};
constinit const OpDef op_eye_like = {.name = "EyeLike",
                                     .attributes = kEyeAttributes,
                                     .forms = {9, 22},
                                     .takes = kNumbers | DType::boolean,
                                     .infer = infer_eye_like,
                                     .expr = eye_like_expr};
constinit const OpDef op_one_hot = {
    .name = "OneHot",
    .inputs = 3,
    .attributes = kOneHotAttributes,
    .forms = {9, 28},
    .takes = {{kNumbers, inputs(0)}, {kIntegers | DType::f32 | DType::f64 | DType::f16, inputs(1)}, {kAny, inputs(2)}},
    .shape_inputs = 0b10,
    .infer = infer_one_hot,
    .expr = one_hot_expr};
constinit const OpDef op_trilu = {
    .name = "Trilu",
    .inputs = {1, 2},
    .attributes = kTriluAttributes,
    .forms = {14, 14},
    .takes = {{(kReals - DType::f8e8m0) | DType::boolean, inputs(0)}, {DType::i64, inputs(1)}},
    .infer = infer_trilu,
    .expr = trilu_expr};

}  // namespace lathe::ops
