// FlexAttention with its modifiers: its halves, and the modifiers between them.
#include "frontends/onnx/expand.h"

#include <algorithm>

#include "ops/ir/failure.h"

namespace lathe::frontends::onnx {
namespace {

using ops::ValueId;

/// Puts the graph of attribute `name` behind `x`; `x` itself where the node has no such attribute.
ValueId modified(Draft& node, std::string_view name, ValueId x, UpgradeContext& context) {
  const auto at = std::find_if(node.subgraphs.begin(), node.subgraphs.end(),
                               [&](const Subgraph& subgraph) { return subgraph.name == name; });
  if (at == node.subgraphs.end()) return x;
  const std::size_t own = at->graph->inputs.size() - at->captured.size();
  if (own != 1 || at->graph->outputs.size() != 1) {
    fail(ErrorCode::invalid_model, "{} '{}': its subgraph '{}' has {} inputs and {} outputs, expected one of each",
         shown(node.op_type), shown(node.name), name, own, at->graph->outputs.size());
  }
  std::vector<ValueId> arguments = {x};
  arguments.insert(arguments.end(), at->captured.begin(), at->captured.end());
  const ValueId y = ops::inline_graph(context.graph(), std::move(*at->graph), arguments).front();
  node.subgraphs.erase(at);
  return y;
}

void flex_attention(Draft& node, UpgradeContext& context) {
  constexpr std::size_t kInputs = 3;
  if (node.subgraphs.empty() || node.inputs.size() != kInputs) return;
  const ValueId q = node.inputs[0], k = node.inputs[1], v = node.inputs[2];
  ValueId scores = context.emit(node, "lathe::FlexScores", {q, k}, std::move(node.attributes));
  node.attributes = {};
  scores = modified(node, "score_mod", scores, context);
  ValueId weights = context.emit(node, "Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  weights = modified(node, "prob_mod", weights, context);
  node.domain = "lathe";
  node.op_type = "FlexValues";
  node.inputs = {weights, v};
}

}  // namespace

void expand(Draft& node, UpgradeContext& context) {
  if (node.domain == "ai.onnx.preview" && node.op_type == "FlexAttention") flex_attention(node, context);
}

}  // namespace lathe::frontends::onnx
