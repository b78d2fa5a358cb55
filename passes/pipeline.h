// The passes: what they are given, the one ordered list, and how they are timed, verified and switched.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ops/ir/graph.h"
#include "ops/ir/loop_builder.h"
#include "ops/ir/op.h"
#include "ops/ir/weak_map.h"

namespace lathe::passes {

/// What a target likes, as far as passes need to know.
class TargetInfo {
 public:
  virtual ~TargetInfo() = default;
  /// Whether convolutions run best with channels innermost.
  [[nodiscard]] virtual bool prefers_channels_last() const = 0;
};

/// One execution of a pass.
struct Record {
  std::string_view pass;
  bool at_load = false;
  bool switched_off = false;
  double seconds = 0;
  std::size_t nodes_before = 0;
  std::size_t nodes_after = 0;
  std::size_t changes = 0;
};

/// Runs a node on constants: large ones through compiled code. Supplied by the runtime.
using Evaluate = std::function<std::vector<Value>(const ops::Node&, std::span<const Value>)>;

/// What a node on constants gave.
struct Folded {
  std::vector<Value> results;
  std::vector<Value> operands;  ///< kept, so that their addresses stay theirs
};

/// Results of folding, shared by all structures of an engine: the same operator with the same attributes on the same
/// constant memory. They live as long as some structure keeps them. Thread-safe.
class FoldedConstants {
 public:
  [[nodiscard]] std::shared_ptr<const Folded> find(const std::string& key) const;
  void add(const std::string& key, const std::shared_ptr<const Folded>& folded);

 private:
  mutable std::mutex mutex_;
  ops::WeakMap<const Folded> entries_;
};

struct Context {
  Evaluate evaluate;
  const TargetInfo* target = nullptr;
  std::string switches;                           ///< "-graph_fuse,-alter_op_layout"; "-all"
  std::size_t fold_bytes = std::size_t{1} << 30;  ///< what folding may add to the constants in all
  std::function<void()> check = [] {};     ///< called before each pass and within long ones; ends them by throwing
  FoldedConstants* folded = nullptr;       ///< may be null
  std::vector<Record>* records = nullptr;  ///< one entry per pass run; may be null
  // What the passes of a structure leave beside the graph.
  std::vector<ops::Group> groups;                   ///< graph_fuse's
  std::vector<std::shared_ptr<const Folded>> kept;  ///< what the graph uses of `folded`
  std::size_t folded_bytes = 0;                     ///< of these the ones that were not there before
};

/// A pass: rewrites a graph in place and says how many changes it made.
struct Pass {
  std::string_view name;
  bool at_load;  ///< runs once, before shapes are known; else once per structure, on inferred facts
  bool always;   ///< makes the graph executable: cannot be switched off
  std::size_t (*run)(ops::Graph&, Context&);
};

/// Every pass in the order they run.
std::span<const Pass> all_passes();

/// The shape-free passes, over the graph and its subgraphs.
void run_at_load(ops::Graph& graph, Context& context);

/// The shape-bound passes: every value of `graph` has its fact. The graph is compact afterwards, and Context::groups
/// set: with graph_fuse switched off, one node per group.
void run_for_structure(ops::Graph& graph, Context& context);

/// Calls Context::check; the Failure that it throws gets the node in front.
void check_at(const std::function<void()>& check, const ops::Node& node);

/// What a node computes, as bytes: its operator, attributes, and per input what `name_input` appends.
std::string computation_key(const ops::Node& node, const std::function<void(std::string&, ops::ValueId)>& name_input);

/// Whether a pass is switched on by Context::switches.
bool enabled(std::string_view switches, std::string_view pass);

/// What Context::switches may list: "-all", and '-' with the name of each pass that may be switched off.
std::vector<std::string> all_switches();

/// Failure (invalid_argument) where `switches` names what is no pass, or a pass that always runs; its message begins
/// with `source`.
void check_switches(std::string_view switches, std::string_view source = "");

/// Whether two shapes are equal but for dims of extent 1. Where a pass relies on it for a Reshape, it belongs to the
/// structure.
bool same_but_for_ones(const Shape& a, const Shape& b);

/// Splits a lowered graph into groups in execution order: each one kernel, or one plain, contraction or alias node with
/// what is fused into it. Nodes whose outputs all follow from shapes are in no group. With fusion off, one node per
/// group.
std::vector<ops::Group> graph_fuse(const ops::Graph& graph, const Context& context, bool fuse);

}  // namespace lathe::passes
