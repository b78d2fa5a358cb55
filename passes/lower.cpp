// lower: says composite operators in simpler ones, until only loops, contractions and plain kernels are left.
#include "ops/ir/builder.h"
#include "passes/passes.h"

namespace lathe::passes {

using ops::kNone;

std::size_t lower(ops::Graph& graph, Context&) {
  std::size_t changes = 0;
  bool found = true;
  while (found) {
    found = false;
    for (ops::NodeId id : graph.order()) {
      const ops::Node& node = graph.node(id);
      if (!node.op->lower) continue;
      const std::string name = node.name.empty() ? std::string(node.op->name) : node.name;
      const std::vector<ops::ValueId> outputs = node.outputs;
      const ops::NodeFacts facts(graph, id);
      ops::Patch patch(graph, name);
      const std::vector<ops::ValueId> results = node.op->lower(facts.view(), patch.build());
      for (std::size_t i = 0; i < outputs.size() && i < results.size(); ++i) {
        if (outputs[i] != kNone && results[i] != kNone) patch.replace(outputs[i], results[i]);
      }
      patch.apply();
      graph.remove_node(id);
      ++changes;
      found = true;
    }
  }
  return changes;
}

}  // namespace lathe::passes
