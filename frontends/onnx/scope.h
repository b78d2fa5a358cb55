// The names visible in a graph, a subgraph or a function's body; and the list of operators that are missing.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontends/onnx/proto.h"
#include "ops/ir/graph.h"

namespace lathe::frontends::onnx {

/// Names and what they stand for. A name of an enclosing graph becomes an input of this one when it is first looked up:
/// a capture; constants are copied instead (they share their memory).
class Scope {
 public:
  Scope(ops::Graph& graph, const Opsets& opsets, Scope* parent = nullptr)
      : graph_(graph), opsets_(opsets), parent_(parent) {}

  [[nodiscard]] ops::Graph& graph() const { return graph_; }
  [[nodiscard]] const Opsets& opsets() const { return opsets_; }

  /// Failure where the name is taken in this scope. `name` must outlive the scope, here and below.
  void declare(std::string_view name, ops::ValueId id);
  /// The value of a name, kNone for an omitted input of a function; nothing where it stands for nothing.
  std::optional<ops::ValueId> find(std::string_view name);
  /// The outer values captured so far, in the order of the inputs that stand for them.
  [[nodiscard]] const std::vector<ops::ValueId>& captured() const { return captured_; }

  /// The value that the producer of `name` shall write: a function's output on the caller's side.
  void expect_result(std::string_view name, ops::ValueId id) { results_.emplace(name, id); }
  /// That value, to the first producer that asks; kNone where none is expected.
  ops::ValueId claim_result(std::string_view name);

  /// What the file declares of a value: a ValueInfoProto message; empty where it says nothing.
  void set_declared(std::string_view name, std::string_view message) { declared_.emplace(name, message); }
  [[nodiscard]] std::string_view declared(std::string_view name) const;

  /// Notes that a node or the graph's outputs read a name.
  void set_read(std::string_view name) { reads_.insert(name); }
  /// Whether the name of a value of this scope is read.
  [[nodiscard]] bool is_read(ops::ValueId id) const;

 private:
  ops::Graph& graph_;
  const Opsets& opsets_;
  Scope* parent_;
  std::unordered_map<std::string_view, ops::ValueId> names_;
  std::unordered_map<std::string_view, ops::ValueId> results_;
  std::unordered_map<std::string_view, std::string_view> declared_;
  std::unordered_set<std::string_view> reads_;
  std::vector<ops::ValueId> captured_;
  std::unordered_map<ops::ValueId, ops::ValueId> stand_ins_;  ///< the input for each captured value
};

/// An attribute of a node, and where the names in its graphs are looked up.
struct BoundAttribute;
/// The attributes given to the function whose body is being inlined.
using Environment = std::map<std::string_view, BoundAttribute>;

struct BoundAttribute {
  AttributeProto proto;
  Scope* scope = nullptr;
  const Environment* environment = nullptr;
};

/// Operators that this build lacks, over the whole model.
class Unsupported {
 public:
  void add(std::string_view domain, std::string_view op, std::string_view node);
  /// Failure listing them, where there are any.
  void report() const;

 private:
  struct Use {
    std::size_t count = 0;
    std::vector<std::string> nodes;  ///< the first few
  };
  std::map<std::pair<std::string, std::string>, Use> uses_;
};

}  // namespace lathe::frontends::onnx
