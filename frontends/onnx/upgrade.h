// Older forms of operators, said in the newest: so that an operator's definition only knows that one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontends/onnx/hints.h"
#include "ops/ir/graph.h"

namespace lathe::frontends::onnx {

/// A subgraph of a node on its way into the graph: the outer values it reads stand behind its own inputs.
struct Subgraph {
  std::string name;  ///< of the attribute
  std::unique_ptr<ops::Graph> graph;
  std::vector<ops::ValueId> captured;  ///< outer values, in the order of the graph's last inputs
};

/// A node as the file says it, on its way into the graph.
struct Draft {
  std::string domain;
  std::string op_type;
  std::string name;
  std::vector<ops::ValueId> inputs;
  std::vector<ops::ValueId> outputs;
  ops::Attributes attributes;
  std::vector<Subgraph> subgraphs;
};

/// What an upgrade may do to the graph around its node.
class UpgradeContext {
 public:
  virtual ~UpgradeContext() = default;
  [[nodiscard]] virtual ops::Graph& graph() = 0;
  /// Adds a node of the newest opset.
  virtual void add(Draft draft) = 0;
  /// What is known of a value's type.
  [[nodiscard]] virtual Hint hint(ops::ValueId id) = 0;
  /// Whether a node of the same graph or the graph's outputs read a value.
  [[nodiscard]] virtual bool is_read(ops::ValueId id) = 0;

  /// A new node in front of `node`, with one output. `op` is "Op" or "domain::Op".
  ops::ValueId emit(const Draft& node, std::string_view op, std::vector<ops::ValueId> inputs,
                    ops::Attributes attributes = {});
  /// A constant, named after the node.
  ops::ValueId constant(const Draft& node, std::string_view what, Tensor tensor);
  ops::ValueId ints(const Draft& node, std::string_view what, const std::vector<std::int64_t>& values);
  /// A float constant in the dtype of `like`.
  ops::ValueId number_like(const Draft& node, std::string_view what, double value, ops::ValueId like);
};

/// Turns `node`, stated in `opset` of its domain, into its newest form. Failure (unsupported) for forms that have none.
void upgrade(Draft& node, std::int64_t opset, UpgradeContext& context);

}  // namespace lathe::frontends::onnx
