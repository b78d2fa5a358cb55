// The one ordered list of passes, and its manager.
#include "passes/pipeline.h"

#include <algorithm>
#include <iterator>

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
    {"pack_matmul_integer", false, false, pack_matmul_integer},
    {"reshape_to_view", false, false, reshape_to_view},
    {"fold_constant", false, false, fold_constant},
    {"eliminate_common", false, false, eliminate_common},
    {"eliminate_dead", false, false, eliminate_dead},
    {"alter_op_layout", false, false, alter_op_layout},
    {"graph_fuse", false, false, graph_fuse},
};
// clang-format on

/// The next word of a list with commas, which it leaves behind.
std::string_view next_word(std::string_view& list) {
  const std::size_t comma = list.find(',');
  const std::string_view word = list.substr(0, comma);
  list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  return word;
}

bool switches_off(std::string_view word, std::string_view pass) {
  return word.size() > 1 && word.front() == '-' && word.substr(1) == pass;
}

std::size_t living_nodes(const ops::Graph& graph) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < graph.node_count(); ++i) n += !graph.node(static_cast<ops::NodeId>(i)).removed;
  return n;
}

void run(ops::Graph& graph, Context& context, bool at_load) {
  for (const Pass& pass : kPasses) {
    if (pass.at_load != at_load) continue;
    context.check();
    Record record;
    record.pass = pass.name;
    record.at_load = at_load;
    record.nodes_before = living_nodes(graph);
    record.switched_off = !pass.always && !enabled(context.switches, pass.name);
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

std::vector<std::string> all_switches() {
  std::vector<std::string> all = {"-all"};
  for (const Pass& pass : kPasses) {
    std::string word = fmt::format("-{}", pass.name);
    if (!pass.always && std::find(all.begin(), all.end(), word) == all.end()) all.push_back(std::move(word));
  }
  return all;
}

bool enabled(std::string_view switches, std::string_view pass) {
  while (!switches.empty()) {
    const std::string_view word = next_word(switches);
    if (word == "-all" || switches_off(word, pass)) return false;
  }
  return true;
}

void check_switches(std::string_view switches, std::string_view source) {
  while (!switches.empty()) {
    const std::string_view word = next_word(switches);
    if (word.empty() || word == "-all") continue;
    const bool known = std::any_of(std::begin(kPasses), std::end(kPasses),
                                   [&](const Pass& pass) { return !pass.always && switches_off(word, pass.name); });
    if (known) continue;
    fail(ErrorCode::invalid_argument, "{}'{}' switches off no pass: there are {}", source, shown(word),
         fmt::join(all_switches(), ", "));
  }
}

void check_at(const std::function<void()>& check, const ops::Node& node) {
  try {
    check();
  } catch (const Failure& failure) {
    fail(failure.error.code, "{}: {}", ops::describe(node), failure.error.message);
  }
}

void run_at_load(ops::Graph& graph, Context& context) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    for (auto& subgraph : graph.node(static_cast<ops::NodeId>(i)).subgraphs) run_at_load(*subgraph, context);
  }
  run(graph, context, true);
}

void run_for_structure(ops::Graph& graph, Context& context) {
  run(graph, context, false);
  if (enabled(context.switches, "graph_fuse")) return;
  graph.compact();
  context.groups = graph_fuse(graph, context, false);
}

}  // namespace lathe::passes
