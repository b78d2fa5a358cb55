// simplify_inference: what only training needs goes, and each operator's own simplifications apply.
//
//   Identity(x) = x;  Dropout(x) = x
//   BatchNormalization(x, s, b, m, v) = x·a + (b − m·a),  a = s / √(v + ε)     behind a convolution, whose rank is
//   known
#include <cmath>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "passes/passes.h"

namespace lathe::passes {
namespace {

using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

bool training(const ops::Graph& graph, const Node& node) {
  if (node.inputs.size() < 3 || node.inputs[2] == kNone) return false;
  const Tensor& mode = graph.value(node.inputs[2]).constant;
  return !mode.defined() || mode.size() != 1 || mode.integer(0) != 0;
}

/// The rank of what a convolution makes, through operators that keep it; 0 where it is not evident.
int rank_behind_convolution(const ops::Graph& graph, ValueId v) {
  const NodeId p = graph.value(v).producer;
  if (p == kNone) return 0;
  const Node& node = graph.node(p);
  if (!is(node, "Conv") && !is(node, "ConvTranspose")) return 0;
  const Tensor& w = graph.value(node.inputs[1]).constant;
  return w.defined() ? w.shape().rank() : 0;
}

/// BatchNormalization as a product and a sum per channel.
bool split_batch_normalization(ops::Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const int rank = rank_behind_convolution(graph, node.inputs[0]);
  if (rank < 2 || node.outputs.size() != 1) return false;
  Tensor p[4];
  for (std::size_t i = 0; i < 4; ++i) {
    p[i] = graph.value(node.inputs[i + 1]).constant;
    if (!p[i].defined() || p[i].dtype() != DType::f32 || p[i].shape().rank() != 1 || p[i].size() != p[0].size())
      return false;
  }
  const ops::OpView op(node, {}, {});
  if (op.i("training_mode") != 0) return false;
  const double epsilon = op.f("epsilon");
  Shape channel = Shape::filled(rank - 1, 1);
  channel[0] = p[0].size();
  Tensor scale(DType::f32, channel);
  Tensor shift(DType::f32, channel);
  for (std::int64_t c = 0; c < p[0].size(); ++c) {
    const double a = p[0].number(c) / std::sqrt(p[3].number(c) + epsilon);
    const double b = p[1].number(c) - p[2].number(c) * a;
    if (!std::isfinite(a) || !std::isfinite(b)) return false;
    scale.mutable_view<float>()[static_cast<std::size_t>(c)] = static_cast<float>(a);
    shift.mutable_view<float>()[static_cast<std::size_t>(c)] = static_cast<float>(b);
  }
  const ValueId x = node.inputs[0];
  const ValueId y = node.outputs[0];
  ops::Patch patch(graph, node.name);
  ops::Builder& b = patch.build();
  patch.replace(y, b.add(b.mul(x, b.constant(scale)), b.constant(shift)));
  patch.apply();
  graph.remove_node(id);
  return true;
}

}  // namespace

std::size_t simplify_inference(ops::Graph& graph, Context&) {
  std::size_t changes = 0;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    const bool passes_through = is(node, "Identity") || (is(node, "Dropout") && !training(graph, node));
    const bool mask_unused = node.outputs.size() == 1 || node.outputs[1] == kNone;
    if (passes_through && mask_unused && node.outputs[0] != kNone) {
      const ValueId from = node.outputs[0];
      const ValueId to = node.inputs[0];
      const bool output = ops::is_output(graph, from);
      const bool input_or_constant = graph.value(to).producer == kNone;
      if (output && (input_or_constant || ops::is_output(graph, to))) continue;  // the output needs a value of its own
      if (output) graph.value(to).declared = graph.value(from).declared;
      graph.replace_uses(from, to);
      graph.remove_node(id);
      ++changes;
      continue;
    }
    if (is(node, "BatchNormalization")) {
      changes += split_batch_normalization(graph, id);
      continue;
    }
    if (node.op->simplify) {
      const ops::NodeFacts nf(graph, id);
      ops::Patch patch(graph, node.name);
      if (node.op->simplify(nf.view(), patch)) {
        patch.apply();
        ++changes;
      }
    }
  }
  return changes;
}

}  // namespace lathe::passes
