// Builder: appends nodes to a graph and infers their facts as it goes; Patch: a rewrite that is checked before it is
// applied.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "ops/ir/op.h"

namespace lathe::ops {

/// Says operators in simpler ones. Where all inputs of a node have facts, its outputs get theirs at once; where it
/// folds (shape arithmetic over known values) the outputs' `known` value too.
class Builder {
 public:
  /// New nodes are named `prefix/Op`.
  Builder(Graph& graph, std::string prefix) : graph_(graph), prefix_(std::move(prefix)) {}

  /// A node with one output.
  ValueId op(std::string_view name, std::initializer_list<ValueId> inputs, Attributes attributes = {}) {
    return ops(name, std::vector<ValueId>(inputs), 1, std::move(attributes)).front();
  }
  ValueId op(std::string_view name, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return ops(name, std::move(inputs), 1, std::move(attributes)).front();
  }
  /// A node with several outputs. `name` is "Op" or "domain::Op".
  std::vector<ValueId> ops(std::string_view name, std::vector<ValueId> inputs, int outputs, Attributes attributes = {});

  ValueId constant(Tensor tensor) { return graph_.add_constant(std::move(tensor)); }
  /// A rank-0 constant of `dtype`.
  ValueId scalar(DType dtype, double value);
  /// A 1-D i64 constant.
  ValueId ints(const std::vector<std::int64_t>& values);

  [[nodiscard]] const Fact& fact(ValueId id) const { return *graph_.value(id).fact; }
  [[nodiscard]] Graph& graph() { return graph_; }

  // The usual suspects (numpy broadcasting).
  ValueId add(ValueId a, ValueId b) { return op("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("Mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("Div", {a, b}); }
  ValueId exp(ValueId a) { return op("Exp", {a}); }
  ValueId sqrt(ValueId a) { return op("Sqrt", {a}); }
  ValueId cast(ValueId a, DType to);  ///< `a` itself where it has that dtype
  ValueId transpose(ValueId a, std::vector<std::int64_t> perm);
  ValueId matmul(ValueId a, ValueId b) { return op("MatMul", {a, b}); }
  /// Reductions over axes, dims kept: "ReduceSum", "ReduceMean", "ReduceMax", …
  ValueId reduce(std::string_view name, ValueId a, const std::vector<std::int64_t>& axes, bool keep_dims = true);
  ValueId unsqueeze(ValueId a, const std::vector<std::int64_t>& axes);
  ValueId squeeze(ValueId a, const std::vector<std::int64_t>& axes);
  ValueId reshape(ValueId a, ValueId shape);  ///< shape: a 1-D i64 value, extents of 0 are meant
  ValueId reshape(ValueId a, const std::vector<std::int64_t>& shape);  ///< 0 copies a dim, -1 is the rest
  ValueId shape_of(ValueId a);                                         ///< 1-D i64, follows the shape at plan time
  ValueId shape_of(ValueId a, int begin, int end);                     ///< dims [begin, end)
  ValueId counted(ValueId count);  ///< 0, 1, … below the one element of a 1-D i64 value
  ValueId concat(std::vector<ValueId> parts, int axis);
  ValueId slice(ValueId a, const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
                const std::vector<std::int64_t>& axes, const std::vector<std::int64_t>& steps = {});

 private:
  Graph& graph_;
  std::string prefix_;
};

/// A rewrite of a graph: new nodes through `build()`, then values to put in the place of others. `apply` verifies that
/// each replacement has the dtype and shape of what it replaces (where both are known) and rewires; nothing changes
/// before.
class Patch {
 public:
  Patch(Graph& graph, std::string prefix) : graph_(graph), builder_(graph, std::move(prefix)) {}

  Builder& build() { return builder_; }
  [[nodiscard]] Graph& graph() { return graph_; }
  void replace(ValueId from, ValueId to) { replacements_.emplace_back(from, to); }
  /// Our own fault (an assertion in words, ErrorCode::internal) where a replacement has another type.
  void apply();
  [[nodiscard]] bool empty() const { return replacements_.empty(); }

 private:
  Graph& graph_;
  Builder builder_;
  std::vector<std::pair<ValueId, ValueId>> replacements_;
};

}  // namespace lathe::ops
