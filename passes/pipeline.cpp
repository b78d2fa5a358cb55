// The one ordered list of passes, and its manager.
#include "passes/pipeline.h"

#include "passes/passes.h"

namespace lathe::passes {
namespace {

// clang-format off
constexpr Pass kPasses[] = {
    {"simplify_inference", true, false, simplify_inference},
    {"fold_constant", true, false, fold_constant},
    {"fold_scale_axis", true, false, fold_scale_axis},
    {"eliminate_common", true, false, eliminate_common},
    {"eliminate_dead", true, false, eliminate_dead},

    {"lower", false, true, lower},
    {"fold_constant", false, false, fold_constant},
    {"widen_matmul_integer", false, false, widen_matmul_integer},
    {"lower", false, true, lower},
    {"reshape_to_view", false, false, reshape_to_view},
    {"fold_constant", false, false, fold_constant},
    {"eliminate_common", false, false, eliminate_common},
    {"eliminate_dead", false, false, eliminate_dead},
    {"alter_op_layout", false, false, alter_op_layout},
};
// clang-format on

std::size_t living_nodes(const ops::Graph& graph) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < graph.node_count(); ++i) n += !graph.node(static_cast<ops::NodeId>(i)).removed;
  return n;
}

void run(ops::Graph& graph, Context& context, bool at_load) {
  for (const Pass& pass : kPasses) {
    if (pass.at_load != at_load) continue;
    Record record;
    record.pass = pass.name;
    record.at_load = at_load;
    record.nodes_before = living_nodes(graph);
    record.switched_off = !pass.always && !enabled(context, pass.name);
    const auto start = std::chrono::steady_clock::now();
    if (!record.switched_off) {
      record.changes = pass.run(graph, context);
      if (record.changes > 0) ops::verify(graph);
    }
    record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    record.nodes_after = living_nodes(graph);
    if (context.records) context.records->push_back(record);
  }
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

bool enabled(const Context& context, std::string_view pass) {
  std::string_view rest = context.switches;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    if (word == "-all" || (word.size() > 1 && word.front() == '-' && word.substr(1) == pass)) return false;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return true;
}

void run_at_load(ops::Graph& graph, Context& context) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    for (auto& subgraph : graph.node(static_cast<ops::NodeId>(i)).subgraphs) run_at_load(*subgraph, context);
  }
  run(graph, context, true);
}

void run_for_structure(ops::Graph& graph, Context& context) { run(graph, context, false); }

}  // namespace lathe::passes
