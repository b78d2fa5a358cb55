// Graph: operator nodes over values, in the vocabulary of ONNX at its newest opset.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <lathe/info.h>
#include <lathe/tensor.h>

#include "ops/ir/fact.h"

namespace lathe::ops {

struct OpDef;
class Graph;

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr std::int32_t kNone = -1;  ///< an omitted input or output; no node

/// The value of an attribute.
using AttrValue = std::variant<std::int64_t, double, std::string, Tensor, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>, std::vector<Tensor>, ValueInfo>;

/// The attributes that a node states (those it leaves out have the schema's default), ordered by name.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, AttrValue>> list) {
    for (const auto& [name, value] : list) set(name, value);
  }
  void set(std::string name, AttrValue value);
  void erase(std::string_view name);
  [[nodiscard]] const AttrValue* find(std::string_view name) const;
  [[nodiscard]] auto begin() const { return list_.begin(); }
  [[nodiscard]] auto end() const { return list_.end(); }
  [[nodiscard]] bool empty() const { return list_.empty(); }

 private:
  std::vector<std::pair<std::string, AttrValue>> list_;
};

/// An operator applied. Subgraphs (If, Loop, Scan) see outer values only through `captures`: the last `captures` inputs
/// of the node are, in the same order, the last inputs of every one of its subgraphs.
struct Node {
  const OpDef* op = nullptr;
  std::string name;
  std::vector<ValueId> inputs;   ///< kNone where an optional input is left out
  std::vector<ValueId> outputs;  ///< kNone where an output is not wanted
  Attributes attributes;
  std::vector<std::unique_ptr<Graph>> subgraphs;  ///< in the order of OpDef::subgraphs
  int captures = 0;
  bool removed = false;

  [[nodiscard]] std::size_t formal_inputs() const { return inputs.size() - static_cast<std::size_t>(captures); }
};

/// A tensor (or sequence, optional, map) that flows along the edges.
struct ValueDef {
  std::string name;
  NodeId producer = kNone;            ///< kNone for graph inputs and constants
  Tensor constant;                    ///< defined for constants
  Tensor default_value;               ///< defined for graph inputs that a caller may leave out
  std::optional<Fact> fact;           ///< once inferred; at load, where provable
  std::optional<Tensor> known;        ///< a value that follows from shapes alone, once inferred
  std::optional<ValueInfo> declared;  ///< what the file says

  [[nodiscard]] bool is_constant() const { return constant.defined(); }
  /// The constant or the known value; null while it is not known.
  [[nodiscard]] const Tensor* value() const { return is_constant() ? &constant : known ? &*known : nullptr; }
};

/// Nodes and values are named by index and iterate in order of creation, so that results never depend on addresses.
/// Removed nodes keep their index until compact().
class Graph {
 public:
  std::string name;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;

  ValueId add_value(std::string value_name);
  ValueId add_input(std::string value_name, std::optional<ValueInfo> declared = std::nullopt);
  ValueId add_constant(Tensor tensor, std::string value_name = {});
  /// Appends a node; outputs are new values named after it unless given. The schema is checked: Failure where arity or
  /// attributes do not fit.
  NodeId add_node(const OpDef& op, std::string node_name, std::vector<ValueId> node_inputs, int output_count,
                  Attributes attributes = {});
  /// Appends a node whose outputs already exist as values.
  NodeId add_node(Node node);
  void remove_node(NodeId id);

  [[nodiscard]] std::size_t node_count() const { return nodes_.size(); }
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  /// A node to be changed in place, before the next call of replace_uses.
  [[nodiscard]] Node& edit(NodeId id) {
    readers_.clear();
    return nodes_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] ValueDef& value(ValueId id) { return values_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const ValueDef& value(ValueId id) const { return values_[static_cast<std::size_t>(id)]; }

  /// Living nodes, producers before consumers, in an order that depends only on the graph. Failure on a cycle.
  [[nodiscard]] std::vector<NodeId> order() const;
  /// Per value, the nodes that read it (once per read) in node order; graph outputs are not counted.
  [[nodiscard]] std::vector<std::vector<NodeId>> consumers() const;
  /// Every use of `from`, graph outputs included, becomes a use of `to`. Takes as long as there are uses, but for the
  /// first call after an edit().
  void replace_uses(ValueId from, ValueId to);
  /// Drops removed nodes, unused constants and orphaned values, and renumbers in topological order.
  void compact();
  /// A deep copy (constants share memory).
  [[nodiscard]] Graph clone() const;

  Graph() = default;
  Graph(Graph&&) = default;  // NOLINT(performance-noexcept-move-constructor): the deque that is left behind allocates
  Graph& operator=(Graph&&) = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() = default;

 private:
  void note_reads(NodeId id);

  // Adding never moves what is there: hooks hold references to nodes and facts while they add more.
  std::deque<Node> nodes_;
  std::deque<ValueDef> values_;
  std::vector<std::vector<NodeId>> readers_;  ///< per value, at least the nodes that read it; empty: not known
};

/// Checks the structure: every value has one producer or is an input or constant, indices are in range, no cycles,
/// arity and attributes fit the schemas, subgraph inputs fit captures. Failure (ErrorCode::invalid_model) naming the
/// place.
void verify(const Graph& graph);

/// Moves the nodes of `body` into `graph`, `arguments` in the place of its inputs; gives the values of its outputs.
std::vector<ValueId> inline_graph(Graph& graph, Graph body, std::span<const ValueId> arguments);

/// Whether `value` feeds a graph output.
bool is_output(const Graph& graph, ValueId value);

}  // namespace lathe::ops
