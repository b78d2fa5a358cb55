// The verifier: what every pass and every import must leave behind.
#include <vector>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"

namespace lathe::ops {
namespace {

template <class... Args>
[[noreturn]] void broken(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorCode::invalid_model, format, std::forward<Args>(args)...);
}

bool in_range(const Graph& graph, ValueId id) { return id >= 0 && static_cast<std::size_t>(id) < graph.value_count(); }

/// Who gives each value: an input, a constant or one node.
std::vector<bool> check_producers(const Graph& graph) {
  std::vector<bool> given(graph.value_count(), false);
  const auto give = [&](ValueId id) {
    if (given[static_cast<std::size_t>(id)]) broken("value '{}' has two producers", shown(graph.value(id).name));
    given[static_cast<std::size_t>(id)] = true;
  };
  for (ValueId id : graph.inputs) {
    if (!in_range(graph, id)) broken("graph input {} is out of range", id);
    give(id);
  }
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (graph.value(id).is_constant()) give(id);
  }
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.node(id);
    if (node.removed) continue;
    for (ValueId out : node.outputs) {
      if (out == kNone) continue;
      if (!in_range(graph, out)) broken("{}: output {} is out of range", describe(node), out);
      give(out);
      if (graph.value(out).producer != id) {
        broken("{}: its output '{}' names another producer", describe(node), shown(graph.value(out).name));
      }
    }
  }
  return given;
}

void check_uses(const Graph& graph, const std::vector<bool>& given) {
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const Node& node = graph.node(static_cast<NodeId>(i));
    if (node.removed) continue;
    for (ValueId in : node.inputs) {
      if (in == kNone) continue;
      if (!in_range(graph, in)) broken("{}: input {} is out of range", describe(node), in);
      if (!given[static_cast<std::size_t>(in)]) {
        broken("{}: nothing produces its input '{}'", describe(node), shown(graph.value(in).name));
      }
    }
  }
  for (ValueId out : graph.outputs) {
    if (!in_range(graph, out)) broken("graph output {} is out of range", out);
    if (!given[static_cast<std::size_t>(out)])
      broken("nothing produces graph output '{}'", shown(graph.value(out).name));
  }
}

void expect_count(const Node& node, std::size_t subgraph, std::string_view what, std::size_t found,
                  std::size_t expected) {
  if (found == expected) return;
  broken("{}: its subgraph '{}' has {} {}, expected {}", describe(node), node.op->subgraphs[subgraph], found, what,
         expected);
}

void check_subgraphs(const Node& node) {
  const auto captures = static_cast<std::size_t>(node.captures);
  const std::size_t formal = node.formal_inputs();
  for (std::size_t i = 0; i < node.subgraphs.size(); ++i) {
    const Graph& body = *node.subgraphs[i];
    if (body.inputs.size() < captures)
      broken("{}: its subgraph '{}' lacks captures", describe(node), node.op->subgraphs[i]);
    const std::size_t inputs = body.inputs.size() - captures;
    switch (node.op->region) {
      case Region::none:
        break;
      case Region::if_:  // trailing outputs that nobody wants may be left off
        expect_count(node, i, "inputs", inputs, 0);
        if (body.outputs.size() < node.outputs.size())
          expect_count(node, i, "outputs", body.outputs.size(), node.outputs.size());
        break;
      case Region::loop:  // iteration and condition in, condition out, then what is carried, then what is stacked
        expect_count(node, i, "inputs", inputs, formal);
        if (body.outputs.size() < formal - 1) expect_count(node, i, "outputs", body.outputs.size(), formal - 1);
        if (body.outputs.size() < node.outputs.size() + 1) {
          expect_count(node, i, "outputs", body.outputs.size(), node.outputs.size() + 1);
        }
        break;
      case Region::scan:
      case Region::sequence_map:
        expect_count(node, i, "inputs", inputs, formal);
        if (body.outputs.size() < node.outputs.size())
          expect_count(node, i, "outputs", body.outputs.size(), node.outputs.size());
        break;
    }
    try {
      verify(body);
    } catch (const Failure& failure) {
      throw Failure(Error{failure.error.code, fmt::format("{}: in its subgraph '{}': {}", describe(node),
                                                          node.op->subgraphs[i], failure.error.message)});
    }
  }
}

}  // namespace

void verify(const Graph& graph) {
  const std::vector<bool> given = check_producers(graph);
  check_uses(graph, given);
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const Node& node = graph.node(static_cast<NodeId>(i));
    if (node.removed) continue;
    if (node.op == nullptr) broken("a node '{}' has no operator", shown(node.name));
    if (node.captures < 0 || static_cast<std::size_t>(node.captures) > node.inputs.size()) {
      broken("{}: {} captures among {} inputs", describe(node), node.captures, node.inputs.size());
    }
    check_schema(node);
    check_subgraphs(node);
  }
  static_cast<void>(graph.order());  // finds cycles
}

}  // namespace lathe::ops
