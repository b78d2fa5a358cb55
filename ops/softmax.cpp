// Softmax: exp(x - max x) / sum exp(x - max x), along `axis`; LogSoftmax, its logarithm; Hardmax, its limit.
#include "ops/elementwise.h"
#include "ops/ir/builder.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"axis", -1}};

Facts infer(const OpView& op) {
  static_cast<void>(op.axis("axis", op.in(0).rank()));
  return {{op.in(0).dtype, op.in(0).shape}};
}

// x - max x, in the type that is computed in.
ValueId shifted(const OpView& op, Builder& b, std::int64_t axis) {
  const ValueId x = b.cast(op.id(0), LoopBuilder::compute_type(op.in(0).dtype));
  return b.sub(x, b.reduce("ReduceMax", x, {axis}));
}

std::vector<ValueId> lower_softmax(const OpView& op, Builder& b) {
  const int axis = op.axis("axis", op.in(0).rank());
  const ValueId e = b.exp(shifted(op, b, axis));
  return {b.cast(b.div(e, b.reduce("ReduceSum", e, {axis})), op.in(0).dtype)};
}

std::vector<ValueId> lower_log_softmax(const OpView& op, Builder& b) {
  const int axis = op.axis("axis", op.in(0).rank());
  const ValueId z = shifted(op, b, axis);
  const ValueId log_sum = b.op("Log", {b.reduce("ReduceSum", b.exp(z), {axis})});
  return {b.cast(b.sub(z, log_sum), op.in(0).dtype)};
}

// One at the first maximum.
std::vector<ValueId> lower_hardmax(const OpView& op, Builder& b) {
  const int axis = op.axis("axis", op.in(0).rank());
  if (op.in(0).shape.elements() == 0) return {b.op("Identity", {op.id(0)})};
  const ValueId first = b.op("ArgMax", {op.id(0)}, {{"axis", std::int64_t{axis}}, {"keepdims", std::int64_t{0}}});
  const ValueId off_on = b.cast(b.constant(Tensor::from({0.0F, 1.0F}, {2})), op.in(0).dtype);
  return {b.op("OneHot", {first, b.shape_of(op.id(0), axis, axis + 1), off_on}, {{"axis", std::int64_t{axis}}})};
}

}  // namespace

extern const OpDef op_softmax, op_log_softmax, op_hardmax;

constinit const OpDef op_softmax = {.name = "Softmax",
                                    .attributes = kAttributes,
                                    .forms = 13,
                                    .takes = kFloats,
                                    .infer = infer,
                                    .lower = lower_softmax};
constinit const OpDef op_log_softmax = {.name = "LogSoftmax",
                                        .attributes = kAttributes,
                                        .forms = 13,
                                        .takes = kFloats,
                                        .infer = infer,
                                        .lower = lower_log_softmax};
constinit const OpDef op_hardmax = {.name = "Hardmax",
                                    .attributes = kAttributes,
                                    .forms = 13,
                                    .takes = kFloats,
                                    .infer = infer,
                                    .lower = lower_hardmax};

}  // namespace lathe::ops
