// Module: a graph cut into parts, where a part is either a segment that is planned as a whole or a node that needs data
// first.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/program.h"
#include "runtime/run_control.h"

namespace lathe::runtime {

class EngineCore;

/// A part whose shapes all follow from the shapes of its inputs. Its programs (one per structure) and plans (one per
/// set of shapes) are made on demand, and live in the engine's cache. Thread-safe.
class Segment {
 public:
  Segment(ops::Graph graph, std::vector<bool> by_value, int id)
      : graph_(std::move(graph)), by_value_(std::move(by_value)), id_(id) {}

  /// The plan for these inputs, or the one for real time; null where the segment must run node by node (strings,
  /// sequences). Throws Failure. Of many threads that want a new plan one makes it while the others wait, each as long
  /// as its `control` allows.
  std::shared_ptr<const Plan> plan(std::span<const Value> inputs, EngineCore& core, const RunControl& control = {},
                                   bool real_time = false);

  /// An input that a plan was made for.
  struct MadeFor {
    DType dtype;
    Shape shape;
    Tensor value;  ///< only where it is small enough to decide shapes
  };
  /// Whether inputs equal in dtype and shape (and in value, where values decide shapes) to the ones a plan was made
  /// for.
  [[nodiscard]] bool same_key(std::span<const Value> inputs, const std::vector<MadeFor>& made_for) const;

  [[nodiscard]] const ops::Graph& graph() const { return graph_; }
  [[nodiscard]] int id() const { return id_; }
  /// A copy of the graph after the passes for these inputs, or before them where it runs node by node; for tools.
  ops::Graph specialized_graph(std::span<const Value> inputs, EngineCore& core);
  /// Runs the passes for these inputs anew and tells how each went; for tools.
  void trace(std::span<const Value> inputs, EngineCore& core, std::vector<passes::Record>& records);

 private:
  std::string key(std::span<const Value> inputs) const;
  bool infer(std::span<const Value> inputs, ops::Graph& graph) const;
  /// Infers the program's graph for these inputs; false where the program was made for shapes that were alike in more.
  bool fits(std::span<const Value> inputs, Program& program, EngineCore& core) const;
  /// A known program that fits and is accepted, or a new one; null where the inputs cannot be planned for.
  std::shared_ptr<Program> specialize(std::span<const Value> inputs, EngineCore& core, const RunControl& control,
                                      const std::function<bool(Program&)>& accept);

  Turn turn_;  ///< to change what follows
  ops::Graph graph_;
  std::vector<bool> by_value_;
  int id_;
};

class Module;

struct Part {
  std::unique_ptr<Segment> segment;  ///< null for a single node
  ops::NodeId node = ops::kNone;
  std::vector<ops::ValueId> inputs;  ///< of the module's graph
  std::vector<ops::ValueId> outputs;
  std::vector<std::unique_ptr<Module>> bodies;  ///< of If, Loop, Scan
};

class Module {
 public:
  /// Cuts a graph that has been through the load-time passes. `next_id` numbers the segments.
  explicit Module(ops::Graph graph, int& next_id);

  [[nodiscard]] const ops::Graph& graph() const { return graph_; }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  /// The number of parts after which each value is no longer read; -1 for outputs, which stay.
  [[nodiscard]] const std::vector<int>& last_use() const { return last_use_; }

 private:
  void cut(int& next_id);
  void add_segment(const std::vector<ops::NodeId>& nodes, const std::vector<bool>& follows, int& next_id);

  ops::Graph graph_;
  std::vector<Part> parts_;
  std::vector<int> last_use_;
};

/// Constants that subgraphs capture move into them, so that their passes and plans see them.
void sink_constants(ops::Graph& graph);

}  // namespace lathe::runtime
