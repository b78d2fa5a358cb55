// eliminate_dead: drops nodes whose outputs nobody reads.
#include <algorithm>

#include "passes/passes.h"

namespace lathe::passes {

std::size_t eliminate_dead(ops::Graph& graph, Context&) {
  std::vector<bool> live(graph.value_count(), false);
  for (ops::ValueId v : graph.outputs) live[static_cast<std::size_t>(v)] = true;
  std::size_t removed = 0;
  const std::vector<ops::NodeId> order = graph.order();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const ops::Node& node = graph.node(*it);
    const bool used = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ops::ValueId v) { return v != ops::kNone && live[static_cast<std::size_t>(v)]; });
    if (used) {
      for (ops::ValueId v : node.inputs) {
        if (v != ops::kNone) live[static_cast<std::size_t>(v)] = true;
      }
    } else {
      graph.remove_node(*it);
      ++removed;
    }
  }
  return removed;
}

}  // namespace lathe::passes
