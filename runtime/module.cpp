// Cutting graphs into parts.
#include "runtime/module.h"

#include <algorithm>

#include "ops/ir/evaluate.h"

namespace lathe::runtime {

using ops::Graph;
using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

void sink_constants(Graph& graph) {
  for (NodeId id : graph.order()) {
    Node& node = graph.edit(id);
    if (node.subgraphs.empty()) continue;
    const std::size_t formal = node.formal_inputs();
    std::vector<bool> sinks(static_cast<std::size_t>(node.captures));
    for (std::size_t c = 0; c < sinks.size(); ++c) sinks[c] = graph.value(node.inputs[formal + c]).is_constant();
    for (auto& body : node.subgraphs) {
      const std::size_t first = body->inputs.size() - sinks.size();
      std::vector<ValueId> kept(body->inputs.begin(), body->inputs.begin() + static_cast<std::ptrdiff_t>(first));
      for (std::size_t c = 0; c < sinks.size(); ++c) {
        const ValueId inner = body->inputs[first + c];
        if (!sinks[c]) {
          kept.push_back(inner);
          continue;
        }
        const ops::ValueDef& outer = graph.value(node.inputs[formal + c]);
        body->value(inner).constant = outer.constant;
        body->value(inner).fact = outer.fact;
      }
      body->inputs = std::move(kept);
    }
    std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(formal));
    for (std::size_t c = 0; c < sinks.size(); ++c) {
      if (!sinks[c]) inputs.push_back(node.inputs[formal + c]);
    }
    node.captures = static_cast<int>(inputs.size() - formal);
    node.inputs = std::move(inputs);
    for (auto& body : node.subgraphs) sink_constants(*body);
  }
}

Module::Module(Graph graph, int& next_id) : graph_(std::move(graph)) {
  graph_.compact();
  cut(next_id);
}

void Module::cut(int& next_id) {
  const std::vector<NodeId> order = graph_.order();
  std::vector<bool> follows(graph_.value_count(), false);  // known from shapes alone
  std::vector<int> level(graph_.value_count(), 0);
  std::vector<std::vector<NodeId>> segments(1);
  std::vector<std::vector<NodeId>> singles(1);
  for (std::size_t v = 0; v < graph_.value_count(); ++v)
    follows[v] = graph_.value(static_cast<ValueId>(v)).is_constant();
  for (NodeId id : order) {
    const Node& node = graph_.node(id);
    bool all_follow = !node.op->impure && node.op->region == ops::Region::none && !node.inputs.empty();
    bool needs_data = node.op->region != ops::Region::none;
    int at = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNone) continue;
      at = std::max(at, level[static_cast<std::size_t>(v)]);
      all_follow = all_follow && follows[static_cast<std::size_t>(v)];
      if (i < 32 && ((node.op->shape_inputs >> i) & 1U) && !follows[static_cast<std::size_t>(v)]) needs_data = true;
    }
    if (node.op->name == "Shape" || node.op->name == "Size") all_follow = true;
    if (node.op->dynamic_output && !all_follow) needs_data = true;
    segments.resize(std::max(segments.size(), static_cast<std::size_t>(at) + 1));
    singles.resize(segments.size());
    (needs_data ? singles : segments)[static_cast<std::size_t>(at)].push_back(id);
    for (ValueId v : node.outputs) {
      if (v == kNone) continue;
      level[static_cast<std::size_t>(v)] = needs_data ? at + 1 : at;
      follows[static_cast<std::size_t>(v)] = all_follow;
    }
  }
  for (std::size_t l = 0; l < segments.size(); ++l) {
    if (!segments[l].empty()) add_segment(segments[l], follows, next_id);
    for (NodeId id : singles[l]) {
      Part part;
      part.node = id;
      part.inputs = graph_.node(id).inputs;
      part.outputs = graph_.node(id).outputs;
      for (auto& body : graph_.node(id).subgraphs)
        part.bodies.push_back(std::make_unique<Module>(body->clone(), next_id));
      parts_.push_back(std::move(part));
    }
  }
  last_use_.assign(graph_.value_count(), 0);
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    for (ValueId v : parts_[p].inputs) {
      if (v != kNone) last_use_[static_cast<std::size_t>(v)] = static_cast<int>(p);
    }
    for (ValueId v : parts_[p].outputs) {
      if (v != kNone)
        last_use_[static_cast<std::size_t>(v)] = std::max(last_use_[static_cast<std::size_t>(v)], static_cast<int>(p));
    }
  }
  for (ValueId v : graph_.outputs) last_use_[static_cast<std::size_t>(v)] = -1;
}

void Module::add_segment(const std::vector<NodeId>& nodes, const std::vector<bool>& follows, int& next_id) {
  std::vector<bool> inside(graph_.node_count(), false);
  for (NodeId id : nodes) inside[static_cast<std::size_t>(id)] = true;
  std::vector<bool> read_outside(graph_.value_count(), false);
  for (ValueId v : graph_.outputs) read_outside[static_cast<std::size_t>(v)] = true;
  for (NodeId id : graph_.order()) {
    if (inside[static_cast<std::size_t>(id)]) continue;
    for (ValueId v : graph_.node(id).inputs) {
      if (v != kNone) read_outside[static_cast<std::size_t>(v)] = true;
    }
  }
  Graph g;
  g.name = graph_.name;
  std::vector<ValueId> inner(graph_.value_count(), kNone);
  std::vector<bool> by_value;
  Part part;
  const auto map = [&](ValueId v) -> ValueId {
    if (v == kNone) return kNone;
    ValueId& mapped = inner[static_cast<std::size_t>(v)];
    if (mapped != kNone) return mapped;
    const ops::ValueDef& def = graph_.value(v);
    if (def.is_constant()) return mapped = g.add_constant(def.constant, def.name);
    mapped = g.add_value(def.name);
    if (def.producer == kNone || !inside[static_cast<std::size_t>(def.producer)]) {
      g.inputs.push_back(mapped);
      part.inputs.push_back(v);
      by_value.push_back(follows[static_cast<std::size_t>(v)]);
    }
    return mapped;
  };
  for (NodeId id : nodes) {
    const Node& node = graph_.node(id);
    Node copy;
    copy.op = node.op;
    copy.name = node.name;
    copy.attributes = node.attributes;
    for (ValueId v : node.inputs) copy.inputs.push_back(map(v));
    for (ValueId v : node.outputs) {
      copy.outputs.push_back(map(v));
      if (v != kNone && read_outside[static_cast<std::size_t>(v)]) {
        g.outputs.push_back(copy.outputs.back());
        part.outputs.push_back(v);
      }
    }
    g.add_node(std::move(copy));
  }
  part.segment = std::make_unique<Segment>(std::move(g), std::move(by_value), next_id++);
  parts_.push_back(std::move(part));
}

}  // namespace lathe::runtime
