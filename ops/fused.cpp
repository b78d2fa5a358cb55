// What ONNX Runtime's optimizer leaves in files (com.microsoft): products and convolutions with an activation, the
// GELUs, normalizations that add first. Each is said in the operators it was fused from.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/elementwise.h"
#include "ops/infer_as.h"
#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "ops/window.h"

namespace lathe::ops {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

// ---- activations by name ----

struct Activation {
  std::string_view name;
  std::vector<const char*> parameters = {};  ///< attributes, in the order of activation_params
};

const Activation& activation_of(const OpView& op) {
  static const std::vector<Activation> all = {{"Relu"},
                                              {"Sigmoid"},
                                              {"Tanh"},
                                              {"Softplus"},
                                              {"Softsign"},
                                              {"LeakyRelu", {"alpha"}},
                                              {"Elu", {"alpha"}},
                                              {"ThresholdedRelu", {"alpha"}},
                                              {"HardSigmoid", {"alpha", "beta"}},
                                              {"Selu", {"alpha", "gamma"}},
                                              {"Clip", {"min", "max"}}};
  for (const Activation& a : all) {
    if (a.name == op.s("activation")) return a;
  }
  op.error("activation {} is unknown", op.s("activation"));
}

/// `values`: the parameters that the node states, by their place.
ValueId activated(const OpView& op, Builder& b, ValueId y, const std::vector<std::pair<std::string, double>>& values) {
  const Activation& activation = activation_of(op);
  if (activation.name == "Clip") {
    std::vector<ValueId> inputs = {y};
    for (const auto& value : values) inputs.push_back(b.scalar(b.fact(y).dtype, value.second));
    return b.op("Clip", std::move(inputs));
  }
  Attributes attributes;
  for (const auto& [name, value] : values) attributes.set(name, value);
  return b.op(activation.name, {y}, std::move(attributes));
}

// ---- FusedMatMul: alpha · A' · B' ----

constexpr Attribute kMatMulAttributes[] = {
    {"alpha", 1.0}, {"transA", 0}, {"transB", 0}, {"transBatchA", 0}, {"transBatchB", 0}};

/// How the dims of an operand are put in order before it is a batch of matrices: transBatch has its rows in front of
/// the batches, trans its columns before its rows.
std::vector<std::int64_t> operand_order(const OpView& op, int i) {
  const int rank = op.in(i).rank();
  std::vector<std::int64_t> perm;
  for (int d = 0; d < rank; ++d) perm.push_back(d);
  if (rank >= 3 && op.i(i == 0 ? "transBatchA" : "transBatchB") != 0) {
    for (int d = 0; d + 2 < rank; ++d) perm[static_cast<std::size_t>(d)] = d + 1;
    perm[static_cast<std::size_t>(rank) - 2] = 0;
  }
  if (rank >= 2 && op.i(i == 0 ? "transA" : "transB") != 0)
    std::swap(perm[static_cast<std::size_t>(rank) - 1], perm[static_cast<std::size_t>(rank) - 2]);
  return perm;
}

Fact ordered(const OpView& op, int i) {
  Shape shape;
  for (std::int64_t d : operand_order(op, i)) shape.push_back(op.in(i).shape[static_cast<int>(d)]);
  return {op.in(i).dtype, shape};
}

Facts infer_fused_matmul(const OpView& op) { return {infer_as(op, "MatMul", {ordered(op, 0), ordered(op, 1)})}; }

std::vector<ValueId> lower_fused_matmul(const OpView& op, Builder& b) {
  const DType compute = LoopBuilder::compute_type(op.in(0).dtype);
  const auto operand = [&](int i) {
    const auto order = operand_order(op, i);
    const ValueId x = b.cast(op.id(i), compute);
    return std::is_sorted(order.begin(), order.end()) ? x : b.transpose(x, order);
  };
  ValueId y = b.matmul(operand(0), operand(1));
  if (op.f("alpha") != 1.0) y = b.mul(y, b.scalar(compute, op.f("alpha")));
  return {b.cast(y, op.in(0).dtype)};
}

// ---- FusedGemm ----

constexpr Attribute kGemmAttributes[] = {{"activation", AttrKind::string},
                                         {"activation_alpha", AttrKind::number},
                                         {"activation_beta", AttrKind::number},
                                         {"activation_gamma", AttrKind::number},
                                         {"alpha", 1.0},
                                         {"beta", 1.0},
                                         {"transA", 0},
                                         {"transB", 0}};

Attributes without_activation(const OpView& op) {
  Attributes attributes = op.node().attributes;
  for (const char* name :
       {"activation", "activation_alpha", "activation_beta", "activation_gamma", "activation_params"}) {
    attributes.erase(name);
  }
  return attributes;
}

Facts infer_fused_gemm(const OpView& op) {
  if (op.has_attr("activation")) activation_of(op);
  if (op.has(2)) return {infer_as(op, "Gemm", {op.in(0), op.in(1), op.in(2)}, without_activation(op))};
  return {infer_as(op, "Gemm", {op.in(0), op.in(1)}, without_activation(op))};
}

std::vector<ValueId> lower_fused_gemm(const OpView& op, Builder& b) {
  const ValueId y = b.op("Gemm", {op.id(0), op.id(1), op.id(2)}, without_activation(op));
  if (!op.has_attr("activation")) return {y};
  std::vector<std::pair<std::string, double>> parameters;
  for (const char* name : activation_of(op).parameters) {
    const std::string stated = std::string("activation_") + name;
    if (op.has_attr(stated)) parameters.emplace_back(name, op.f(stated));
  }
  return {activated(op, b, y, parameters)};
}

// ---- FusedConv: an activation of a convolution to which Z is added; NhwcConv: channels last ----

constexpr Attribute kFusedConvAttributes[] = {{"activation", AttrKind::string},
                                              {"activation_params", AttrKind::numbers},
                                              {"auto_pad", "NOTSET"},
                                              {"dilations", AttrKind::integers},
                                              {"group", 1},
                                              {"kernel_shape", AttrKind::integers},
                                              {"pads", AttrKind::integers},
                                              {"strides", AttrKind::integers}};

Fact convolved(const OpView& op, const Fact& x) {
  if (op.has(2)) return infer_as(op, "Conv", {x, op.in(1), op.in(2)}, without_activation(op));
  return infer_as(op, "Conv", {x, op.in(1)}, without_activation(op));
}

Facts infer_fused_conv(const OpView& op) {
  const Fact y = convolved(op, op.in(0));
  if (op.has_attr("activation")) {
    const std::size_t wanted = activation_of(op).parameters.size(), stated = op.attr_floats("activation_params").size();
    op.require(stated == wanted, "activation {} takes {} activation_params, got {}", op.s("activation"), wanted,
               stated);
  }
  if (op.has(3)) {
    op.require(op.in(3).shape == y.shape, "Z must have shape {}, got {}", y.shape, op.in(3).shape);
  }
  return {y};
}

std::vector<ValueId> lower_fused_conv(const OpView& op, Builder& b) {
  ValueId y = b.op("Conv", {op.id(0), op.id(1), op.id(2)}, without_activation(op));
  if (op.has(3)) y = b.add(y, op.id(3));
  if (!op.has_attr("activation")) return {y};
  std::vector<std::pair<std::string, double>> parameters;
  const auto names = activation_of(op).parameters;
  const auto values = op.attr_floats("activation_params");
  for (std::size_t i = 0; i < names.size(); ++i) parameters.emplace_back(names[i], values[i]);
  return {activated(op, b, y, parameters)};
}

constexpr auto kConvAttributes = std::span(kFusedConvAttributes).subspan(2);  // without an activation

Facts infer_nhwc_conv(const OpView& op) {
  const Fact& x = op.in(0);
  op.require(x.rank() >= 3, "x must have a batch, a spatial and a channel axis, got shape {}", x.shape);
  const Fact y = convolved(op, Fact(x.dtype, channels_first(x.shape)));
  return {Fact(y.dtype, channels_last(y.shape))};
}

std::vector<ValueId> lower_nhwc_conv(const OpView& op, Builder& b) {
  const int rank = op.in(0).rank();
  const ValueId x = b.transpose(op.id(0), channels_first_order(rank));
  return {b.transpose(b.op("Conv", {x, op.id(1), op.id(2)}, op.node().attributes), channels_last_order(rank))};
}

// ---- GELUs ----

constexpr Attribute kQuickGeluAttributes[] = {{"alpha", 1.702}};

Facts infer_biased(const OpView& op) {
  if (!op.has(1)) return {op.in(0)};
  op.require(op.in(1).rank() == 1 && op.broadcast_all() == op.in(0).shape,
             "the bias must be one value per element of the last axis of {}, got shape {}", op.in(0).shape,
             op.in(1).shape);
  return {op.in(0)};
}

template <bool kTanh>
std::vector<ValueId> lower_gelu(const OpView& op, Builder& b) {
  const DType compute = LoopBuilder::compute_type(op.in(0).dtype);
  ValueId x = b.cast(op.id(0), compute);
  if (op.has(1)) x = b.add(x, b.cast(op.id(1), compute));
  return {b.cast(b.op("Gelu", {x}, {{"approximate", std::string(kTanh ? "tanh" : "none")}}), op.in(0).dtype)};
}

std::vector<ValueId> lower_quick_gelu(const OpView& op, Builder& b) {
  return {b.op("Swish", {op.id(0)}, {{"alpha", op.f("alpha")}})};
}

// ---- normalizations that add first ----

constexpr Attribute kSkipAttributes[] = {{"epsilon", 1e-12}};

/// input + skip (+ bias), normalized, scaled by gamma (+ beta). Outputs: that, mean, 1 / deviation, the sum.
Facts infer_skip(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() == 2 || x.rank() == 3, "the input must have 2 or 3 dims, got shape {}", x);
  op.require(op.broadcast(x, op.in(1).shape) == x, "skip of shape {} does not broadcast to {}", op.in(1).shape, x);
  for (int i = 2; i < op.inputs(); ++i) {
    if (!op.has(i)) continue;
    op.require(op.in(i).shape == Shape{x.back()}, "input {} must have shape {}, got {}", i, Shape{x.back()},
               op.in(i).shape);
  }
  Shape moments = x;
  moments[x.rank() - 1] = 1;
  Facts facts = {op.in(0), Fact(DType::f32, moments), Fact(DType::f32, moments), op.in(0)};
  facts.resize(static_cast<std::size_t>(op.outputs()));
  return facts;
}

template <bool kSimplified>
std::vector<ValueId> lower_skip(const OpView& op, Builder& b) {
  const DType dtype = op.in(0).dtype, compute = LoopBuilder::compute_type(dtype);
  const int bias = kSimplified ? 3 : 4;
  const auto in = [&](int i) { return b.cast(op.id(i), compute); };
  ValueId sum = b.add(in(0), in(1));
  if (op.has(bias)) sum = b.add(sum, in(bias));
  const Attributes epsilon = {{"epsilon", op.f("epsilon")}, {"axis", std::int64_t{-1}}};
  std::vector<ValueId> outputs(4, kNone);
  if (kSimplified) {
    outputs[0] = b.op("RMSNormalization", {sum, in(2)}, epsilon);
    if (op.wants(1)) outputs[1] = b.cast(b.reduce("ReduceMean", sum, {-1}), DType::f32);
    if (op.wants(2)) {
      const ValueId square = b.reduce("ReduceMean", b.mul(sum, sum), {-1});
      outputs[2] = b.cast(b.op("Reciprocal", {b.sqrt(b.add(square, b.scalar(compute, op.f("epsilon"))))}), DType::f32);
    }
  } else {
    const auto normal =
        b.ops("LayerNormalization", {sum, in(2), op.has(3) ? in(3) : kNone}, op.outputs() > 1 ? 3 : 1, epsilon);
    outputs[0] = normal[0];
    for (std::size_t i = 1; i < normal.size(); ++i) outputs[i] = normal[i];
  }
  outputs[0] = b.cast(outputs[0], dtype);
  if (op.wants(3)) outputs[3] = b.cast(sum, dtype);
  outputs.resize(static_cast<std::size_t>(op.outputs()));
  return outputs;
}

// ---- EmbedLayerNormalization: word, position and segment embeddings added and normalized ----

enum EmbedInput { kIds, kSegments, kWords, kPositions, kSegmentTable, kGamma, kBeta, kMask, kPositionIds };

Facts infer_embed(const OpView& op) {
  for (int i : {kWords, kPositions, kGamma, kBeta}) op.require(op.has(i), "input {} is required", i);
  const Shape& ids = op.in(kIds).shape;
  op.require(op.in(kIds).dtype == DType::i32 && ids.rank() == 2, "input_ids must be i32 with 2 dims, got {}",
             op.in(kIds).to_string());
  const std::int64_t hidden = op.in(kWords).rank() == 2 ? op.in(kWords).shape[1] : -1;
  for (int i : {kWords, kPositions, kSegmentTable}) {
    if (!op.has(i)) continue;
    op.require(op.in(i).rank() == 2 && op.in(i).shape[1] == hidden, "embedding {} must have {} columns, got shape {}",
               i, hidden, op.in(i).shape);
  }
  op.require(op.has(kSegments) == op.has(kSegmentTable), "segment_ids and segment_embedding must be given together");
  for (int i : {kSegments, kMask}) {
    if (!op.has(i)) continue;
    op.require(op.in(i).dtype == DType::i32 && op.in(i).shape == ids, "input {} must be i32 of shape {}, got {}", i,
               ids, op.in(i).to_string());
  }
  if (op.has(kPositionIds)) {
    const Shape& shape = op.in(kPositionIds).shape;
    op.require(op.in(kPositionIds).dtype == DType::i32 && shape.rank() == 2 && shape[1] == ids[1] &&
                   (shape[0] == 1 || shape[0] == ids[0]),
               "position_ids must be i32 of shape {} or 1x{}, got {}", ids, ids[1], op.in(kPositionIds).to_string());
  } else {
    op.require(ids[1] <= op.in(kPositions).shape[0], "{} positions exceed the {} of position_embedding", ids[1],
               op.in(kPositions).shape[0]);
  }
  for (int i : {kGamma, kBeta}) {
    op.require(op.in(i).shape == Shape{hidden}, "input {} must have shape {}, got {}", i, Shape{hidden},
               op.in(i).shape);
  }
  const Fact y(op.in(kWords).dtype, {ids[0], ids[1], hidden});
  Facts facts = {y, Fact(DType::i32, {ids[0]}), y};
  facts.resize(static_cast<std::size_t>(op.outputs()));
  return facts;
}

std::vector<ValueId> lower_embed(const OpView& op, Builder& b) {
  const DType dtype = op.in(kWords).dtype, compute = LoopBuilder::compute_type(dtype);
  const auto in = [&](ValueId v) { return b.cast(v, compute); };
  ValueId positions;
  if (op.has(kPositionIds)) {
    positions = b.op("Gather", {op.id(kPositions), op.id(kPositionIds)});
  } else {
    positions = b.op("Slice", {op.id(kPositions), b.ints({0}), b.shape_of(op.id(kIds), 1, 2), b.ints({0})});
  }
  ValueId sum = b.add(in(b.op("Gather", {op.id(kWords), op.id(kIds)})), in(positions));
  if (op.has(kSegments)) sum = b.add(sum, in(b.op("Gather", {op.id(kSegmentTable), op.id(kSegments)})));
  std::vector<ValueId> outputs(3, kNone);
  outputs[0] = b.cast(b.op("LayerNormalization", {sum, in(op.id(kGamma)), in(op.id(kBeta))},
                           {{"epsilon", op.f("epsilon")}, {"axis", std::int64_t{-1}}}),
                      dtype);
  if (op.wants(1)) {
    outputs[1] = op.has(kMask) ? b.reduce("ReduceSum", op.id(kMask), {1}, false)
                               : b.op("Expand", {b.scalar(DType::i32, 0), b.shape_of(op.id(kIds), 0, 1)});
  }
  if (op.wants(2)) outputs[2] = b.cast(sum, dtype);
  outputs.resize(static_cast<std::size_t>(op.outputs()));
  return outputs;
}

constexpr Attribute kEmbedAttributes[] = {{"epsilon", 1e-12}, {"mask_index_type", 0}};

// ---- SimplifiedLayerNormalization, which ONNX Runtime writes into ONNX's own domain ----

constexpr Attribute kSimplifiedAttributes[] = {{"axis", -1}, {"epsilon", 1e-5}, {"stash_type", 1}};

Facts infer_simplified(const OpView& op) {
  const Fact y = infer_as(op, "RMSNormalization", {op.in(0), op.in(1)}, op.node().attributes);
  Shape moments = y.shape;
  for (int d = op.axis("axis", y.rank()); d < y.rank(); ++d) moments[d] = 1;
  Facts facts = {y, Fact(DType::f32, moments)};
  facts.resize(static_cast<std::size_t>(op.outputs()));
  return facts;
}

std::vector<ValueId> lower_simplified(const OpView& op, Builder& b) {
  std::vector<ValueId> outputs = {b.op("RMSNormalization", {op.id(0), op.id(1)}, op.node().attributes)};
  if (op.outputs() < 2) return outputs;
  const DType compute = LoopBuilder::compute_type(op.in(0).dtype);
  const ValueId x = b.cast(op.id(0), compute);
  std::vector<std::int64_t> axes;
  for (int d = op.axis("axis", op.in(0).rank()); d < op.in(0).rank(); ++d) axes.push_back(d);
  const ValueId square = b.add(b.reduce("ReduceMean", b.mul(x, x), axes), b.scalar(compute, op.f("epsilon")));
  outputs.push_back(b.cast(b.op("Reciprocal", {b.sqrt(square)}), DType::f32));
  return outputs;
}

}  // namespace

extern const OpDef op_fused_mat_mul, op_fused_gemm, op_fused_conv, op_nhwc_conv, op_microsoft_gelu, op_bias_gelu,
    op_fast_gelu, op_quick_gelu, op_skip_layer_normalization, op_skip_simplified_layer_normalization,
    op_embed_layer_normalization, op_simplified_layer_normalization;

constinit const OpDef op_fused_mat_mul = {.name = "FusedMatMul",
                                          .domain = kDomain,
                                          .inputs = 2,
                                          .attributes = kMatMulAttributes,
                                          .takes = kFloats,
                                          .infer = infer_fused_matmul,
                                          .lower = lower_fused_matmul};
constinit const OpDef op_fused_gemm = {.name = "FusedGemm",
                                       .domain = kDomain,
                                       .inputs = {2, 3},
                                       .attributes = kGemmAttributes,
                                       .takes = kFloats,
                                       .infer = infer_fused_gemm,
                                       .lower = lower_fused_gemm};
constinit const OpDef op_fused_conv = {.name = "FusedConv",
                                       .domain = kDomain,
                                       .inputs = {2, 4},
                                       .attributes = kFusedConvAttributes,
                                       .takes = kFloats,
                                       .infer = infer_fused_conv,
                                       .lower = lower_fused_conv};
constinit const OpDef op_nhwc_conv = {.name = "NhwcConv",
                                      .domain = kDomain,
                                      .inputs = {2, 3},
                                      .attributes = kConvAttributes,
                                      .takes = kFloats,
                                      .infer = infer_nhwc_conv,
                                      .lower = lower_nhwc_conv};
constinit const OpDef op_microsoft_gelu = {
    .name = "Gelu", .domain = kDomain, .takes = kFloats, .infer = infer_biased, .lower = lower_gelu<false>};
constinit const OpDef op_bias_gelu = {.name = "BiasGelu",
                                      .domain = kDomain,
                                      .inputs = 2,
                                      .takes = kFloats,
                                      .infer = infer_biased,
                                      .lower = lower_gelu<false>};
constinit const OpDef op_fast_gelu = {.name = "FastGelu",
                                      .domain = kDomain,
                                      .inputs = {1, 2},
                                      .takes = kFloats,
                                      .infer = infer_biased,
                                      .lower = lower_gelu<true>};
constinit const OpDef op_quick_gelu = {.name = "QuickGelu",
                                       .domain = kDomain,
                                       .attributes = kQuickGeluAttributes,
                                       .takes = kFloats,
                                       .infer = infer_biased,
                                       .lower = lower_quick_gelu};
constinit const OpDef op_skip_layer_normalization = {.name = "SkipLayerNormalization",
                                                     .domain = kDomain,
                                                     .inputs = {3, 5},
                                                     .outputs = {1, 4},
                                                     .attributes = kSkipAttributes,
                                                     .takes = kFloats,
                                                     .infer = infer_skip,
                                                     .lower = lower_skip<false>};
constinit const OpDef op_skip_simplified_layer_normalization = {.name = "SkipSimplifiedLayerNormalization",
                                                                .domain = kDomain,
                                                                .inputs = {3, 4},
                                                                .outputs = {1, 4},
                                                                .attributes = kSkipAttributes,
                                                                .takes = kFloats,
                                                                .infer = infer_skip,
                                                                .lower = lower_skip<true>};
constinit const OpDef op_embed_layer_normalization = {
    .name = "EmbedLayerNormalization",
    .domain = kDomain,
    .inputs = {1, 9},
    .outputs = {1, 3},
    .attributes = kEmbedAttributes,
    .takes = {{DType::i32, inputs(kIds, kSegments, kMask, kPositionIds)},
              {kFloats, inputs(kWords, kPositions, kSegmentTable, kGamma, kBeta)}},
    .infer = infer_embed,
    .lower = lower_embed};
constinit const OpDef op_simplified_layer_normalization = {.name = "SimplifiedLayerNormalization",
                                                           .inputs = 2,
                                                           .outputs = {1, 2},
                                                           .attributes = kSimplifiedAttributes,
                                                           .takes = {{kFloats, inputs(0, 1), false}},
                                                           .infer = infer_simplified,
                                                           .lower = lower_simplified};

}  // namespace lathe::ops
