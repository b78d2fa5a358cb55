// The graph's bookkeeping: creation, order, rewiring, compaction.
#include "ops/ir/graph.h"

#include <algorithm>
#include <queue>

#include "ops/ir/op.h"

namespace lathe::ops {

void Attributes::set(std::string name, AttrValue value) {
  const auto at = std::lower_bound(list_.begin(), list_.end(), name,
                                   [](const auto& entry, const std::string& n) { return entry.first < n; });
  if (at != list_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    list_.emplace(at, std::move(name), std::move(value));
  }
}

void Attributes::erase(std::string_view name) {
  std::erase_if(list_, [&](const auto& entry) { return entry.first == name; });
}

const AttrValue* Attributes::find(std::string_view name) const {
  for (const auto& [n, value] : list_) {
    if (n == name) return &value;
  }
  return nullptr;
}

ValueId Graph::add_value(std::string value_name) {
  values_.emplace_back();
  values_.back().name = std::move(value_name);
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_input(std::string value_name, std::optional<ValueInfo> declared) {
  const ValueId id = add_value(std::move(value_name));
  value(id).declared = std::move(declared);
  inputs.push_back(id);
  return id;
}

ValueId Graph::add_constant(Tensor tensor, std::string value_name) {
  const ValueId id = add_value(std::move(value_name));
  value(id).fact = Fact(tensor.dtype(), tensor.shape());
  value(id).constant = std::move(tensor);
  return id;
}

NodeId Graph::add_node(const OpDef& op, std::string node_name, std::vector<ValueId> node_inputs, int output_count,
                       Attributes attributes) {
  Node n;
  n.op = &op;
  n.name = std::move(node_name);
  n.inputs = std::move(node_inputs);
  n.attributes = std::move(attributes);
  for (int i = 0; i < output_count; ++i) {
    n.outputs.push_back(add_value(output_count == 1 ? n.name : fmt::format("{}:{}", n.name, i)));
  }
  return add_node(std::move(n));
}

NodeId Graph::add_node(Node node) {
  check_schema(node);
  const auto id = static_cast<NodeId>(nodes_.size());
  for (ValueId out : node.outputs) {
    if (out != kNone) value(out).producer = id;
  }
  nodes_.push_back(std::move(node));
  if (!readers_.empty()) note_reads(id);
  return id;
}

void Graph::note_reads(NodeId id) {
  readers_.resize(values_.size());
  for (ValueId in : node(id).inputs) {
    if (in != kNone) readers_[static_cast<std::size_t>(in)].push_back(id);
  }
}

void Graph::remove_node(NodeId id) {
  Node& n = nodes_[static_cast<std::size_t>(id)];
  for (ValueId out : n.outputs) {
    if (out != kNone && value(out).producer == id) value(out).producer = kNone;
  }
  n.removed = true;
  n.inputs.clear();
  n.outputs.clear();
  n.subgraphs.clear();
  n.captures = 0;
}

std::vector<NodeId> Graph::order() const {
  std::vector<int> missing(nodes_.size(), 0);
  std::vector<std::vector<NodeId>> users(nodes_.size());
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  std::size_t living = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    if (n.removed) continue;
    ++living;
    for (ValueId in : n.inputs) {
      if (in == kNone || value(in).producer == kNone) continue;
      ++missing[i];
      users[static_cast<std::size_t>(value(in).producer)].push_back(static_cast<NodeId>(i));
    }
    if (missing[i] == 0) ready.push(static_cast<NodeId>(i));
  }
  std::vector<NodeId> sorted;
  sorted.reserve(living);
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    sorted.push_back(id);
    for (NodeId user : users[static_cast<std::size_t>(id)]) {
      if (--missing[static_cast<std::size_t>(user)] == 0) ready.push(user);
    }
  }
  if (sorted.size() != living) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].removed && missing[i] > 0) {
        fail(ErrorCode::invalid_model, "the graph has a cycle through {}", describe(nodes_[i]));
      }
    }
  }
  return sorted;
}

std::vector<std::vector<NodeId>> Graph::consumers() const {
  std::vector<std::vector<NodeId>> users(values_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].removed) continue;
    for (ValueId in : nodes_[i].inputs) {
      if (in != kNone) users[static_cast<std::size_t>(in)].push_back(static_cast<NodeId>(i));
    }
  }
  return users;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  std::replace(outputs.begin(), outputs.end(), from, to);
  if (from == to) return;
  if (readers_.empty()) {
    for (std::size_t n = 0; n < nodes_.size(); ++n) note_reads(static_cast<NodeId>(n));
  }
  readers_.resize(values_.size());
  std::vector<NodeId> moved = std::move(readers_[static_cast<std::size_t>(from)]);
  readers_[static_cast<std::size_t>(from)].clear();
  for (NodeId id : moved) {
    std::vector<ValueId>& ids = nodes_[static_cast<std::size_t>(id)].inputs;
    std::replace(ids.begin(), ids.end(), from, to);
  }
  std::vector<NodeId>& now = readers_[static_cast<std::size_t>(to)];
  if (now.size() < moved.size()) now.swap(moved);
  now.insert(now.end(), moved.begin(), moved.end());
}

void Graph::compact() {
  const std::vector<NodeId> sorted = order();
  std::vector<bool> used(values_.size(), false);
  const auto mark = [&](ValueId id) {
    if (id != kNone) used[static_cast<std::size_t>(id)] = true;
  };
  for (ValueId id : inputs) mark(id);
  for (ValueId id : outputs) mark(id);
  for (NodeId id : sorted) {
    for (ValueId v : node(id).inputs) mark(v);
    for (ValueId v : node(id).outputs) mark(v);
  }
  std::vector<ValueId> new_value(values_.size(), kNone);
  std::vector<NodeId> new_node(nodes_.size(), kNone);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    new_node[static_cast<std::size_t>(sorted[i])] = static_cast<NodeId>(i);

  std::deque<ValueDef> values;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (!used[i]) continue;
    new_value[i] = static_cast<ValueId>(values.size());
    values.push_back(std::move(values_[i]));
    NodeId& producer = values.back().producer;
    if (producer != kNone) producer = new_node[static_cast<std::size_t>(producer)];
  }
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id != kNone) id = new_value[static_cast<std::size_t>(id)];
    }
  };
  std::deque<Node> nodes;
  for (NodeId id : sorted) {
    nodes.push_back(std::move(nodes_[static_cast<std::size_t>(id)]));
    renumber(nodes.back().inputs);
    renumber(nodes.back().outputs);
  }
  renumber(inputs);
  renumber(outputs);
  nodes_ = std::move(nodes);
  values_ = std::move(values);
  readers_.clear();
}

Graph Graph::clone() const {
  Graph g;
  g.name = name;
  g.inputs = inputs;
  g.outputs = outputs;
  g.values_ = values_;
  for (const Node& n : nodes_) {
    Node copy;
    copy.op = n.op;
    copy.name = n.name;
    copy.inputs = n.inputs;
    copy.outputs = n.outputs;
    copy.attributes = n.attributes;
    copy.captures = n.captures;
    copy.removed = n.removed;
    for (const auto& subgraph : n.subgraphs) copy.subgraphs.push_back(std::make_unique<Graph>(subgraph->clone()));
    g.nodes_.push_back(std::move(copy));
  }
  return g;
}

std::vector<ValueId> inline_graph(Graph& graph, Graph body, std::span<const ValueId> arguments) {
  std::vector<ValueId> moved(body.value_count(), kNone);
  for (std::size_t i = 0; i < body.inputs.size(); ++i) moved[static_cast<std::size_t>(body.inputs[i])] = arguments[i];
  const auto move = [&](ValueId id) {
    if (id == kNone) return kNone;
    ValueId& to = moved[static_cast<std::size_t>(id)];
    if (to == kNone) {
      to = graph.add_value(body.value(id).name);
      graph.value(to) = std::move(body.value(id));
      graph.value(to).producer = kNone;
    }
    return to;
  };
  for (NodeId id : body.order()) {
    Node node = std::move(body.edit(id));
    for (ValueId& v : node.inputs) v = move(v);
    for (ValueId& v : node.outputs) v = move(v);
    graph.add_node(std::move(node));
  }
  std::vector<ValueId> outputs;
  for (ValueId id : body.outputs) outputs.push_back(move(id));
  return outputs;
}

bool is_output(const Graph& graph, ValueId value) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), value) != graph.outputs.end();
}

}  // namespace lathe::ops
