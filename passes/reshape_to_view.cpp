// reshape_to_view: Reshapes that only move coordinates become views, which fuse: one that adds or drops dims of extent
// 1, and a pair that merges dims in front of a Transpose and splits them again behind it.
//
//   Reshape[a,1,b → 1,a,b](x) = Unsqueeze(Squeeze(x, 1), 0)
//   Reshape[ab,d,c → a,b,d,c](Transpose(Reshape[a,b,c,d → ab,c,d](x), (0,2,1))) = Transpose(x, (0,1,3,2))
#include <numeric>

#include "ops/ir/builder.h"
#include "ops/reshape.h"
#include "passes/passes.h"

namespace lathe::passes {

using ops::Graph;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

namespace {

std::int64_t allow_zero(const Graph& graph, NodeId id) { return ops::NodeFacts(graph, id).view().i("allowzero"); }

/// The node that makes the first input of `id` where it is that operator.
NodeId maker(const Graph& graph, NodeId id, std::string_view op) {
  const NodeId made_by = graph.value(graph.node(id).inputs[0]).producer;
  return made_by != ops::kNone && is(graph.node(made_by), op) ? made_by : ops::kNone;
}

/// Puts one view in the place of `split`, where that undoes what a Reshape in front of the Transpose before it merged.
bool transpose_blocks(Graph& graph, NodeId split) {
  const NodeId transpose = maker(graph, split, "Transpose");
  const NodeId merge = transpose == ops::kNone ? ops::kNone : maker(graph, transpose, "Reshape");
  if (merge == ops::kNone) return false;
  const ValueId x = graph.node(merge).inputs[0];
  const Shape& merged = graph.value(graph.node(merge).outputs[0]).fact->shape;
  const auto given = ops::NodeFacts(graph, transpose).view().attr_ints("perm");
  std::vector<std::int64_t> perm(given.begin(), given.end());
  if (perm.empty()) {
    perm.resize(static_cast<std::size_t>(merged.rank()));
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  const ValueId y = graph.node(split).outputs[0];
  if (ops::block_permutation(graph.value(x).fact->shape, merged, perm, graph.value(y).fact->shape).empty())
    return false;
  ops::Patch patch(graph, graph.node(split).name);
  patch.replace(
      y, patch.build().op(
             "lathe::TransposeBlocks", {x, graph.node(merge).inputs[1], graph.node(split).inputs[1]},
             {{"perm", perm}, {"allowzero", allow_zero(graph, merge)}, {"allowzero_split", allow_zero(graph, split)}}));
  patch.apply();
  graph.remove_node(split);
  return true;
}

}  // namespace

bool same_but_for_ones(const Shape& a, const Shape& b) {
  int j = 0;
  for (int i = 0; i < a.rank(); ++i) {
    if (a[i] == 1) continue;
    while (j < b.rank() && b[j] == 1) ++j;
    if (j == b.rank() || b[j] != a[i]) return false;
    ++j;
  }
  while (j < b.rank() && b[j] == 1) ++j;
  return j == b.rank();
}

std::size_t reshape_to_view(Graph& graph, Context&) {
  std::size_t changes = 0;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!is(node, "Reshape")) continue;
    const ValueId x = node.inputs[0];
    const ValueId y = node.outputs[0];
    if (graph.value(y).known || graph.value(x).is_constant()) continue;
    const Shape from = graph.value(x).fact->shape;
    const Shape to = graph.value(y).fact->shape;
    if (from.elements() == 0) continue;
    if (!same_but_for_ones(from, to)) {
      changes += transpose_blocks(graph, id) ? 1 : 0;
      continue;
    }
    std::vector<std::int64_t> drop;
    std::vector<std::int64_t> add;
    for (int d = 0; d < from.rank(); ++d) {
      if (from[d] == 1) drop.push_back(d);
    }
    for (int d = 0; d < to.rank(); ++d) {
      if (to[d] == 1) add.push_back(d);
    }
    ops::Patch patch(graph, node.name);
    ops::Builder& b = patch.build();
    ValueId made = from == to ? b.op("lathe::Copy", {x}) : b.unsqueeze(b.squeeze(x, drop), add);
    patch.replace(y, made);
    patch.apply();
    graph.remove_node(id);
    ++changes;
  }
  return changes;
}

}  // namespace lathe::passes
