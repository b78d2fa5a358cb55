// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: how unlikely the classes that were right are said to be.
#include "ops/elementwise.h"
#include "ops/ir/builder.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"ignore_index", AttrKind::integer}, {"reduction", "mean"}};

Facts infer(const OpView& op) {
  const Shape& x = op.in(0).shape;
  const Shape& labels = op.in(1).shape;
  const auto reduction = op.s("reduction");
  op.require(x.rank() >= 2, "the input must have rank 2 or more, got {}", x);
  Shape expected = x;
  expected.erase(1);
  op.require(labels == expected, "the classes have shape {}, expected {}", labels, expected);
  if (op.has(2)) {
    op.require(op.in(2).shape == Shape{x[1]}, "weight has shape {}, expected {}", op.in(2).shape, x[1]);
  }
  op.require(reduction == "none" || reduction == "sum" || reduction == "mean",
             "reduction must be none, sum or mean, got \"{}\"", reduction);
  Facts facts{{op.in(0).dtype, reduction == "none" ? labels : Shape{}}};
  if (op.outputs() > 1) facts.emplace_back(op.in(0).dtype, x);
  return facts;
}

// -weight[class] * log p[class], reduced; the mean is over the weights. Ignored classes weigh nothing.
ValueId loss(const OpView& op, Builder& b, ValueId log_probability) {
  const DType type = b.fact(log_probability).dtype;
  ValueId classes = op.id(1);
  classes = b.cast(classes, DType::i64);
  ValueId ignored = kNone;
  if (op.has_attr("ignore_index")) {
    const ValueId none = b.constant(Tensor::scalar(op.i("ignore_index")));
    ignored = b.op("Equal", {classes, none});
    classes = b.op("Where", {ignored, b.scalar(DType::i64, 0), classes});
  }
  const ValueId chosen =
      b.op("GatherElements", {log_probability, b.unsqueeze(classes, {1})}, {{"axis", std::int64_t{1}}});
  ValueId each = b.op("Neg", {b.squeeze(chosen, {1})});
  ValueId weight = kNone;
  if (op.has(2)) weight = b.op("Gather", {b.cast(op.id(2), type), classes});
  if (ignored != kNone) {
    weight = b.op("Where", {ignored, b.scalar(type, 0), weight == kNone ? b.scalar(type, 1) : weight});
  }
  if (weight != kNone) each = b.mul(each, weight);
  const auto all = [&](std::string_view name, ValueId v) { return b.op(name, {v}, {{"keepdims", std::int64_t{0}}}); };
  if (op.s("reduction") == "none") return each;
  if (op.s("reduction") == "sum") return all("ReduceSum", each);
  if (weight == kNone) return all("ReduceMean", each);
  return b.div(all("ReduceSum", each), all("ReduceSum", weight));
}

std::vector<ValueId> lower_nll(const OpView& op, Builder& b) {
  const DType dtype = op.in(0).dtype;
  return {b.cast(loss(op, b, b.cast(op.id(0), LoopBuilder::compute_type(dtype))), dtype)};
}

std::vector<ValueId> lower_cross_entropy(const OpView& op, Builder& b) {
  const DType dtype = op.in(0).dtype;
  const ValueId scores = b.cast(op.id(0), LoopBuilder::compute_type(dtype));
  const ValueId log_probability = b.op("LogSoftmax", {scores}, {{"axis", std::int64_t{1}}});
  std::vector<ValueId> outputs{b.cast(loss(op, b, log_probability), dtype)};
  if (op.wants(1)) outputs.push_back(b.cast(log_probability, dtype));
  return outputs;
}

}  // namespace

extern const OpDef op_negative_log_likelihood_loss, op_softmax_cross_entropy_loss;

constinit const OpDef op_negative_log_likelihood_loss = {.name = "NegativeLogLikelihoodLoss",
                                                         .inputs = {2, 3},
                                                         .attributes = kAttributes,
                                                         .forms = {12, 22},
                                                         .takes = {{kFloats, inputs(0, 2)}, {kIndices, inputs(1)}},
                                                         .infer = infer,
                                                         .lower = lower_nll};
constinit const OpDef op_softmax_cross_entropy_loss = {.name = "SoftmaxCrossEntropyLoss",
                                                       .inputs = {2, 3},
                                                       .outputs = {1, 2},
                                                       .attributes = kAttributes,
                                                       .forms = {12, 13},
                                                       .takes = {{kFloats, inputs(0, 2)}, {kIndices, inputs(1)}},
                                                       .infer = infer,
                                                       .lower = lower_cross_entropy};

}  // namespace lathe::ops
