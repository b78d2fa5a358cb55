// Normalizations, said as reductions and maps that fusion puts together again. Types narrower than f32 are computed in
// f32 and rounded once.
#include <numeric>

#include "ops/elementwise.h"
#include "ops/ir/builder.h"

namespace lathe::ops {
namespace {

using Axes = std::vector<std::int64_t>;

Axes axes_between(int begin, int end) {
  Axes axes(static_cast<std::size_t>(std::max(0, end - begin)));
  std::iota(axes.begin(), axes.end(), begin);
  return axes;
}

DType work_type(const OpView& op) { return LoopBuilder::compute_type(op.in(0).dtype); }
ValueId input_as(const OpView& op, Builder& b, int i) { return b.cast(op.id(i), work_type(op)); }

// A vector over channels, made to broadcast along axis 1 of a tensor of rank `rank`.
ValueId per_channel(const OpView& op, Builder& b, int i, int rank) {
  return b.unsqueeze(input_as(op, b, i), axes_between(1, rank - 1));
}

ValueId inverse_root(Builder& b, ValueId variance, double epsilon) {
  return b.op("Reciprocal", {b.sqrt(b.add(variance, b.scalar(b.fact(variance).dtype, epsilon)))});
}

struct Moments {
  ValueId mean;
  ValueId centered;  // x - mean
  ValueId variance;  // of the population
};

Moments moments_of(Builder& b, ValueId x, const Axes& axes) {
  const ValueId mean = b.reduce("ReduceMean", x, axes);
  const ValueId centered = b.sub(x, mean);
  return {mean, centered, b.reduce("ReduceMean", b.mul(centered, centered), axes)};
}

void require_channels(const OpView& op, int i, std::int64_t channels) {
  op.require(op.in(i).shape == Shape{channels}, "input {} must have shape {}, one value per channel, got {}", i,
             channels, op.in(i).shape);
}

// ---- BatchNormalization ----

constexpr Attribute kBatchAttributes[] = {{"epsilon", 1e-5}, {"momentum", 0.9}, {"training_mode", 0}};

Facts infer_batch(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() >= 1, "the input must have rank 1 or more, got a scalar");
  const bool training = op.i("training_mode") != 0;
  op.require(training || (!op.wants(1) && !op.wants(2)), "outputs 1 and 2 exist in training mode only");
  for (int i = 1; i < 5; ++i) require_channels(op, i, x.rank() > 1 ? x[1] : 1);
  Facts facts{{op.in(0).dtype, x}};
  for (int i : {3, 4}) {
    if (op.outputs() >= i - 1) facts.emplace_back(op.in(i).dtype, op.in(i).shape);
  }
  return facts;
}

// The running statistic after one more batch.
ValueId updated(const OpView& op, Builder& b, int input, ValueId current) {
  const double momentum = op.f("momentum");
  const ValueId before = b.mul(input_as(op, b, input), b.scalar(work_type(op), momentum));
  const ValueId now = b.mul(current, b.scalar(work_type(op), 1 - momentum));
  return b.cast(b.add(before, now), op.in(input).dtype);
}

std::vector<ValueId> lower_batch(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  ValueId centered = kNone;
  ValueId variance = kNone;
  std::vector<ValueId> outputs(1);
  if (op.i("training_mode") == 0) {
    centered = b.sub(input_as(op, b, 0), per_channel(op, b, 3, rank));
    variance = per_channel(op, b, 4, rank);
  } else {
    Axes axes = axes_between(2, rank);
    axes.insert(axes.begin(), 0);
    const Moments m = moments_of(b, input_as(op, b, 0), axes);
    centered = m.centered;
    variance = m.variance;
    if (rank == 1) axes.clear();
    outputs.push_back(updated(op, b, 3, b.squeeze(m.mean, axes)));
    outputs.push_back(updated(op, b, 4, b.squeeze(m.variance, axes)));
    outputs.resize(static_cast<std::size_t>(op.outputs()));
  }
  const ValueId scale = b.mul(per_channel(op, b, 1, rank), inverse_root(b, variance, op.f("epsilon")));
  const ValueId y = b.add(b.mul(centered, scale), per_channel(op, b, 2, rank));
  outputs.front() = b.cast(y, op.in(0).dtype);
  return outputs;
}

// ---- LayerNormalization and RMSNormalization ----

constexpr Attribute kLayerAttributes[] = {{"axis", -1}, {"epsilon", 1e-5}, {"stash_type", 1}};

// The input's type and the affine inputs' fit.
void require_layer(const OpView& op) {
  const Shape& x = op.in(0).shape;
  for (int i = 0; i < op.inputs(); ++i) {
    if (!op.has(i)) continue;
    op.require(i == 0 || op.broadcast(x, op.in(i).shape) == x,
               "input {} of shape {} must broadcast to the input's shape {}", i, op.in(i).shape, x);
  }
  const std::int64_t stash = op.i("stash_type");
  op.require(stash == DType::f32 || stash == DType::f64 || stash == DType::f16 || stash == DType::bf16,
             "stash_type is {}, which is no floating-point dtype", stash);
}

DType stash_dtype(const OpView& op) { return static_cast<DType::Code>(op.i("stash_type")); }

Facts infer_layer(const OpView& op) {
  require_layer(op);
  const Shape& x = op.in(0).shape;
  Shape moments = x;
  for (int d = op.axis("axis", x.rank()); d < x.rank(); ++d) moments[d] = 1;
  Facts facts{{op.in(0).dtype, x}};
  for (int i = 1; i < op.outputs(); ++i) facts.emplace_back(stash_dtype(op), moments);
  return facts;
}

std::vector<ValueId> lower_layer(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  const Moments m = moments_of(b, input_as(op, b, 0), axes_between(op.axis("axis", rank), rank));
  const ValueId inverse = inverse_root(b, m.variance, op.f("epsilon"));
  ValueId y = b.mul(b.mul(m.centered, inverse), input_as(op, b, 1));
  if (op.has(2)) y = b.add(y, input_as(op, b, 2));
  std::vector<ValueId> outputs{b.cast(y, op.in(0).dtype)};
  if (op.outputs() > 1) outputs.push_back(op.wants(1) ? b.cast(m.mean, stash_dtype(op)) : kNone);
  if (op.outputs() > 2) outputs.push_back(op.wants(2) ? b.cast(inverse, stash_dtype(op)) : kNone);
  return outputs;
}

Facts infer_rms(const OpView& op) {
  require_layer(op);
  static_cast<void>(op.axis("axis", op.in(0).rank()));
  return {{op.in(1).dtype, op.in(0).shape}};
}

std::vector<ValueId> lower_rms(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  const ValueId x = input_as(op, b, 0);
  const ValueId square = b.reduce("ReduceMean", b.mul(x, x), axes_between(op.axis("axis", rank), rank));
  const ValueId y = b.mul(b.mul(x, inverse_root(b, square, op.f("epsilon"))), input_as(op, b, 1));
  return {b.cast(y, op.in(1).dtype)};
}

// ---- InstanceNormalization and GroupNormalization ----

constexpr Attribute kInstanceAttributes[] = {{"epsilon", 1e-5}};
constexpr Attribute kGroupAttributes[] = {
    {"epsilon", 1e-5}, {"num_groups", AttrKind::integer, Attribute::kRequired}, {"stash_type", 1}};

Facts infer_channels(const OpView& op, int least_rank) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() >= least_rank, "the input must have rank {} or more, got {}", least_rank, x);
  require_channels(op, 1, x[1]);
  require_channels(op, 2, x[1]);
  return {{op.in(0).dtype, x}};
}

Facts infer_instance(const OpView& op) { return infer_channels(op, 3); }

std::vector<ValueId> lower_instance(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  const Moments m = moments_of(b, input_as(op, b, 0), axes_between(2, rank));
  const ValueId scale = b.mul(per_channel(op, b, 1, rank), inverse_root(b, m.variance, op.f("epsilon")));
  return {b.cast(b.add(b.mul(m.centered, scale), per_channel(op, b, 2, rank)), op.in(0).dtype)};
}

Facts infer_group(const OpView& op) {
  Facts facts = infer_channels(op, 2);
  const std::int64_t groups = op.i("num_groups");
  op.require(groups > 0 && op.in(0).shape[1] % groups == 0, "{} channels do not form {} groups", op.in(0).shape[1],
             groups);
  op.require(op.in(0).rank() < Shape::kMaxRank, "rank {} is more than the {} supported", op.in(0).rank(),
             Shape::kMaxRank - 1);
  return facts;
}

// The channels as [groups, channels of a group], so that a group is reduced over the axes from 2 on.
std::vector<ValueId> lower_group(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  const ValueId groups = b.ints({op.i("num_groups")});
  const ValueId split = b.concat({groups, b.div(b.shape_of(op.id(0), 1, 2), groups)}, 0);
  const auto affine = [&](int i) { return b.unsqueeze(b.reshape(input_as(op, b, i), split), axes_between(2, rank)); };
  const ValueId grouped =
      b.reshape(op.id(0), rank > 2 ? b.concat({b.shape_of(op.id(0), 0, 1), split, b.shape_of(op.id(0), 2, rank)}, 0)
                                   : b.concat({b.shape_of(op.id(0), 0, 1), split}, 0));
  const Moments m = moments_of(b, b.cast(grouped, work_type(op)), axes_between(2, rank + 1));
  const ValueId scale = b.mul(affine(1), inverse_root(b, m.variance, op.f("epsilon")));
  const ValueId y = b.cast(b.add(b.mul(m.centered, scale), affine(2)), op.in(0).dtype);
  return {b.reshape(y, b.shape_of(op.id(0)))};
}

// ---- LpNormalization and MeanVarianceNormalization ----

constexpr Attribute kLpAttributes[] = {{"axis", -1}, {"p", 2}};
constexpr Attribute kMvnAttributes[] = {{"axes", AttrKind::integers}};

Facts infer_lp(const OpView& op) {
  static_cast<void>(op.axis("axis", op.in(0).rank()));
  op.require(op.i("p") == 1 || op.i("p") == 2, "p must be 1 or 2, got {}", op.i("p"));
  return {{op.in(0).dtype, op.in(0).shape}};
}

// Where the norm is 0, so is the result.
std::vector<ValueId> lower_lp(const OpView& op, Builder& b) {
  const ValueId x = input_as(op, b, 0);
  const Axes axes{op.axis("axis", op.in(0).rank())};
  const ValueId norm =
      op.i("p") == 1 ? b.reduce("ReduceSum", b.op("Abs", {x}), axes) : b.sqrt(b.reduce("ReduceSum", b.mul(x, x), axes));
  const ValueId is_zero = b.op("Equal", {norm, b.scalar(work_type(op), 0)});
  const ValueId divisor = b.op("Where", {is_zero, b.scalar(work_type(op), 1), norm});
  return {b.cast(b.div(x, divisor), op.in(0).dtype)};
}

Axes mvn_axes(const OpView& op) {
  Axes axes{0, 2, 3};
  if (op.has_attr("axes")) axes.assign(op.attr_ints("axes").begin(), op.attr_ints("axes").end());
  for (std::int64_t& axis : axes) axis = op.axis(axis, op.in(0).rank(), "an axis");
  return axes;
}

Facts infer_mvn(const OpView& op) {
  mvn_axes(op);
  return {{op.in(0).dtype, op.in(0).shape}};
}

std::vector<ValueId> lower_mvn(const OpView& op, Builder& b) {
  const Moments m = moments_of(b, input_as(op, b, 0), mvn_axes(op));
  const ValueId deviation = b.add(b.sqrt(m.variance), b.scalar(work_type(op), 1e-9));
  return {b.cast(b.div(m.centered, deviation), op.in(0).dtype)};
}

// ---- LRN ----

constexpr Attribute kLrnAttributes[] = {
    {"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}, {"size", AttrKind::integer, Attribute::kRequired}};

Facts infer_lrn(const OpView& op) {
  op.require(op.in(0).rank() >= 2, "the input must have rank 2 or more, got {}", op.in(0).shape);
  op.require(op.i("size") > 0 && op.i("size") <= 64, "size is {}, expected 1 to 64", op.i("size"));
  return {{op.in(0).dtype, op.in(0).shape}};
}

// x / (bias + alpha / size * the sum of squares over `size` channels around it) ^ beta
Scalar lrn_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Ex x(b, b.in(0, at));
  const std::int64_t size = op.i("size");
  const int channel_axis[] = {1};
  Ex sum = x.like(0);
  for (std::int64_t k = 0; k < size; ++k) {
    Coords c = at;
    c[1] += k - (size - 1) / 2;
    const Ex neighbour(b, b.in_or(0, c, channel_axis, x.like(0)));
    sum = sum + neighbour * neighbour;
  }
  return x / pow(sum * (op.f("alpha") / static_cast<double>(size)) + op.f("bias"), x.like(op.f("beta")));
}

}  // namespace

extern const OpDef op_batch_normalization, op_layer_normalization, op_rms_normalization, op_instance_normalization,
    op_group_normalization, op_lp_normalization, op_mean_variance_normalization, op_lrn;

constinit const OpDef op_batch_normalization = {
    .name = "BatchNormalization",
    .inputs = 5,
    .outputs = {1, 3},
    .attributes = kBatchAttributes,
    .forms = 15,
    .takes = {{kFloats, inputs(0)}, {kFloats, inputs(1, 2)}, {kFloats, inputs(3, 4)}},
    .infer = infer_batch,
    .lower = lower_batch};
constinit const OpDef op_layer_normalization = {.name = "LayerNormalization",
                                                .inputs = {2, 3},
                                                .outputs = {1, 3},
                                                .attributes = kLayerAttributes,
                                                .forms = {17, 17},
                                                .takes = kFloats,
                                                .infer = infer_layer,
                                                .lower = lower_layer};
constinit const OpDef op_rms_normalization = {.name = "RMSNormalization",
                                              .inputs = 2,
                                              .attributes = kLayerAttributes,
                                              .forms = {23, 23},
                                              .takes = {{kFloats, inputs(0)}, {kFloats, inputs(1)}},
                                              .infer = infer_rms,
                                              .lower = lower_rms};
constinit const OpDef op_instance_normalization = {.name = "InstanceNormalization",
                                                   .inputs = 3,
                                                   .attributes = kInstanceAttributes,
                                                   .forms = 22,
                                                   .takes = kFloats,
                                                   .infer = infer_instance,
                                                   .lower = lower_instance};
constinit const OpDef op_group_normalization = {.name = "GroupNormalization",
                                                .inputs = 3,
                                                .attributes = kGroupAttributes,
                                                .forms = {18, 21},
                                                .takes = kFloats,
                                                .infer = infer_group,
                                                .lower = lower_group};
constinit const OpDef op_lp_normalization = {.name = "LpNormalization",
                                             .attributes = kLpAttributes,
                                             .forms = 22,
                                             .takes = kFloats,
                                             .infer = infer_lp,
                                             .lower = lower_lp};
constinit const OpDef op_mean_variance_normalization = {.name = "MeanVarianceNormalization",
                                                        .attributes = kMvnAttributes,
                                                        .forms = {9, 13},
                                                        .takes = kFloats,
                                                        .infer = infer_mvn,
                                                        .lower = lower_mvn};
constinit const OpDef op_lrn = {
    .name = "LRN", .attributes = kLrnAttributes, .forms = 13, .takes = kFloats, .infer = infer_lrn, .expr = lrn_expr};

}  // namespace lathe::ops
