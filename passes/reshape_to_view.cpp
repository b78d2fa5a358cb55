// reshape_to_view: a Reshape that only adds or drops dims of extent 1 becomes Squeeze and Unsqueeze, which fuse.
//
//   Reshape[a,1,b → 1,a,b](x) = Unsqueeze(Squeeze(x, 1), 0)
#include "ops/ir/builder.h"
#include "passes/passes.h"

namespace lathe::passes {

using ops::ValueId;

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

std::size_t reshape_to_view(ops::Graph& graph, Context&) {
  std::size_t changes = 0;
  for (ops::NodeId id : graph.order()) {
    const ops::Node& node = graph.node(id);
    if (!is(node, "Reshape")) continue;
    const ValueId x = node.inputs[0];
    const ValueId y = node.outputs[0];
    if (graph.value(y).known || graph.value(x).is_constant()) continue;
    const Shape from = graph.value(x).fact->shape;
    const Shape to = graph.value(y).fact->shape;
    if (from.elements() == 0 || !same_but_for_ones(from, to)) continue;
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
