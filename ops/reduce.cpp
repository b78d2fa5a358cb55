// Reductions over axes: sums, products, means and extrema as loops; norms and logarithms said in those; ArgMax, ArgMin.
#include <algorithm>

#include "ops/elementwise.h"
#include "ops/ir/builder.h"

namespace lathe::ops {
namespace {

using loops::Reduction;

constexpr Attribute kAttributes[] = {{"keepdims", 1}, {"noop_with_empty_axes", 0}};
constexpr Attribute kArgAttributes[] = {{"axis", 0}, {"keepdims", 1}, {"select_last_index", 0}};

// ---- lathe::SumTo(x, like): x summed over the dims along which `like` would be broadcast to it ----

Facts infer_sum_to(const OpView& op) {
  const Shape &x = op.in(0).shape, &like = op.in(1).shape;
  op.require(op.broadcast(x, like) == x, "shape {} does not broadcast to {}", like, x);
  return {{op.in(0).dtype, like}};
}

std::vector<ValueId> lower_sum_to(const OpView& op, Builder& b) {
  const Shape &x = op.in(0).shape, &like = op.in(1).shape;
  const int leading = x.rank() - like.rank();
  std::vector<std::int64_t> axes, dropped;
  for (int d = 0; d < x.rank(); ++d) {
    if (d < leading) dropped.push_back(d);
    if (d < leading || (like[d - leading] == 1 && x[d] != 1)) axes.push_back(d);
  }
  ValueId y = axes.empty() ? b.op("Identity", {op.id(0)}) : b.reduce("ReduceSum", op.id(0), axes);
  if (!dropped.empty()) y = b.squeeze(y, dropped);
  return {y};
}

// ---- reductions with axes as an input ----

// Ascending; none where the operator leaves every element alone.
std::vector<int> axes_of(const OpView& op) {
  const int rank = op.in(0).rank();
  std::vector<int> axes;
  if (op.has(1)) {
    for (std::int64_t axis : op.ints(1)) axes.push_back(op.axis(axis, rank, "an axis"));
    std::sort(axes.begin(), axes.end());
    op.require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "an axis is named twice");
  }
  if (axes.empty() && op.i("noop_with_empty_axes") == 0) {
    for (int d = 0; d < rank; ++d) axes.push_back(d);
  }
  return axes;
}

Shape reduced_shape(const Shape& x, const std::vector<int>& axes, bool keep_dims) {
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (!reduced || keep_dims) shape.push_back(reduced ? 1 : x[d]);
  }
  return shape;
}

Facts infer_reduce(const OpView& op) {
  return {{op.in(0).dtype, reduced_shape(op.in(0).shape, axes_of(op), op.i("keepdims") != 0)}};
}

// The elements under the output's place, before they are reduced.
Ex element(const OpView& op, LoopBuilder& b, const std::vector<int>& axes, const Coords& at) {
  if (axes.empty()) return {b, b.in(0, at)};
  return {b, b.in(0, b.reduced(axes, at, op.i("keepdims") != 0))};
}

template <Reduction kKind>
Scalar reduce_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const std::vector<int> axes = axes_of(op);
  const Ex x = element(op, b, axes, at);
  if (axes.empty()) return x;
  if (x.dtype() == DType::boolean) return Ex(b, b.reduce(kKind, x.cast(DType::u8))).cast(DType::boolean);
  return b.reduce(kKind, x);
}

// Integers add up in 64 bits, so that a mean that fits is right, and its quotient is truncated.
Scalar mean_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const std::vector<int> axes = axes_of(op);
  const Ex x = element(op, b, axes, at);
  if (axes.empty()) return x;
  std::int64_t count = 1;
  for (int axis : axes) count *= op.in(0).shape[axis];
  const bool is_narrow = !x.dtype().is_float() && x.dtype() != DType::u64;
  const Ex sum(b, b.reduce(Reduction::sum, is_narrow ? x.cast(DType::i64) : x));
  const DType dtype = sum.dtype();
  const Ex total(b, dtype.is_float() ? b.number(dtype, static_cast<double>(count)) : b.number_int(dtype, count));
  return (sum / total).cast(x.dtype());
}

// ---- reductions said in others ----

// Narrow floats as f32; integers as f64 where the result need not be whole.
DType working_type(DType dtype, bool whole) {
  if (!dtype.is_float()) return whole ? dtype : DType(DType::f64);
  return LoopBuilder::compute_type(dtype);
}

ValueId reduce_as(const OpView& op, Builder& b, std::string_view name, ValueId x, bool keep_dims) {
  return b.op(name, {x, op.id(1)},
              {{"keepdims", std::int64_t{keep_dims ? 1 : 0}}, {"noop_with_empty_axes", op.i("noop_with_empty_axes")}});
}
ValueId sum_of(const OpView& op, Builder& b, ValueId x) {
  return reduce_as(op, b, "ReduceSum", x, op.i("keepdims") != 0);
}
ValueId input_as(const OpView& op, Builder& b, bool whole) {
  return b.cast(op.id(0), working_type(op.in(0).dtype, whole));
}
std::vector<ValueId> output_of(const OpView& op, Builder& b, ValueId y) { return {b.cast(y, op.in(0).dtype)}; }

std::vector<ValueId> lower_l1(const OpView& op, Builder& b) {
  return output_of(op, b, sum_of(op, b, b.op("Abs", {input_as(op, b, true)})));
}
std::vector<ValueId> lower_l2(const OpView& op, Builder& b) {
  const ValueId x = input_as(op, b, false);
  return output_of(op, b, b.sqrt(sum_of(op, b, b.mul(x, x))));
}
std::vector<ValueId> lower_sum_square(const OpView& op, Builder& b) {
  const ValueId x = input_as(op, b, true);
  return output_of(op, b, sum_of(op, b, b.mul(x, x)));
}
std::vector<ValueId> lower_log_sum(const OpView& op, Builder& b) {
  return output_of(op, b, b.op("Log", {sum_of(op, b, input_as(op, b, false))}));
}
// log sum exp x = m + log sum exp(x - m), with the maximum as m, or 0 where that is infinite.
std::vector<ValueId> lower_log_sum_exp(const OpView& op, Builder& b) {
  const ValueId x = input_as(op, b, false);
  const ValueId max = reduce_as(op, b, "ReduceMax", x, true);
  const ValueId m = b.op("Where", {b.op("IsInf", {max}), b.scalar(b.fact(max).dtype, 0), max});
  ValueId y = b.add(b.op("Log", {reduce_as(op, b, "ReduceSum", b.exp(b.sub(x, m)), true)}), m);
  if (op.i("keepdims") == 0) {
    const std::vector<int> axes = axes_of(op);
    y = b.squeeze(y, std::vector<std::int64_t>(axes.begin(), axes.end()));
  }
  return output_of(op, b, y);
}

// ---- positions of extrema ----

Facts infer_arg(const OpView& op) {
  const int axis = op.axis("axis", op.in(0).rank());
  const Shape shape = reduced_shape(op.in(0).shape, {axis}, op.i("keepdims") != 0);
  op.require(op.in(0).shape[axis] > 0 || shape.elements() == 0, "axis {} of {} has no elements to choose from", axis,
             op.in(0).shape);
  return {{DType::i64, shape}};
}

std::vector<int> arg_axes(const OpView& op) { return {op.axis("axis", op.in(0).rank())}; }

template <Reduction kFirst, Reduction kLast>
Scalar arg_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex x = element(op, b, arg_axes(op), at);
  return b.reduce(op.i("select_last_index") != 0 ? kLast : kFirst, x);
}

constexpr TakesRules kReduced = {{kNumbers, inputs(0)}, {kIndices, inputs(1)}};

template <Reduction kKind>
constexpr OpDef primitive(std::string_view name, Forms forms) {
  constexpr bool kBooleans = kKind == Reduction::min || kKind == Reduction::max;
  return {.name = name,
          .inputs = {1, 2},
          .attributes = kAttributes,
          .forms = forms,
          .takes = {{kBooleans ? kNumbers | DType::boolean : kNumbers, inputs(0)}, {kIndices, inputs(1)}},
          .shape_inputs = 0b10,
          .infer = infer_reduce,
          .expr = reduce_expr<kKind>,
          .reduced_axes = axes_of};
}

constexpr OpDef composite(std::string_view name, Forms forms, std::vector<ValueId> (*lower)(const OpView&, Builder&)) {
  return {.name = name,
          .inputs = {1, 2},
          .attributes = kAttributes,
          .forms = forms,
          .takes = kReduced,
          .shape_inputs = 0b10,
          .infer = infer_reduce,
          .lower = lower};
}

template <Reduction kFirst, Reduction kLast>
constexpr OpDef arg(std::string_view name) {
  return {.name = name,
          .attributes = kArgAttributes,
          .forms = 13,
          .takes = kNumbers,
          .infer = infer_arg,
          .expr = arg_expr<kFirst, kLast>,
          .reduced_axes = arg_axes};
}

}  // namespace

extern const OpDef op_reduce_sum, op_reduce_prod, op_reduce_max, op_reduce_min, op_reduce_mean, op_reduce_l1,
    op_reduce_l2, op_reduce_sum_square, op_reduce_log_sum, op_reduce_log_sum_exp, op_arg_max, op_arg_min;

constinit const OpDef op_reduce_sum = primitive<Reduction::sum>("ReduceSum", 13);
constinit const OpDef op_reduce_prod = primitive<Reduction::prod>("ReduceProd", 18);
constinit const OpDef op_reduce_max = primitive<Reduction::max>("ReduceMax", 20);
constinit const OpDef op_reduce_min = primitive<Reduction::min>("ReduceMin", 20);
constinit const OpDef op_reduce_mean = {.name = "ReduceMean",
                                        .inputs = {1, 2},
                                        .attributes = kAttributes,
                                        .forms = 18,
                                        .takes = kReduced,
                                        .shape_inputs = 0b10,
                                        .infer = infer_reduce,
                                        .expr = mean_expr,
                                        .reduced_axes = axes_of};
constinit const OpDef op_reduce_l1 = composite("ReduceL1", 18, lower_l1);
constinit const OpDef op_reduce_l2 = composite("ReduceL2", 18, lower_l2);
constinit const OpDef op_reduce_sum_square = composite("ReduceSumSquare", 18, lower_sum_square);
constinit const OpDef op_reduce_log_sum = composite("ReduceLogSum", 28, lower_log_sum);
constinit const OpDef op_reduce_log_sum_exp = composite("ReduceLogSumExp", 28, lower_log_sum_exp);
constinit const OpDef op_arg_max = arg<Reduction::argmax_first, Reduction::argmax_last>("ArgMax");
constinit const OpDef op_arg_min = arg<Reduction::argmin_first, Reduction::argmin_last>("ArgMin");

extern const OpDef op_lathe_sum_to;
constinit const OpDef op_lathe_sum_to = {
    .name = "SumTo", .domain = "lathe", .inputs = 2, .infer = infer_sum_to, .lower = lower_sum_to};

}  // namespace lathe::ops
