// Program: a graph specialized to a structure of shapes, in groups that run as one kernel each; plans are made from it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/ir/graph.h"
#include "ops/ir/loop_builder.h"
#include "runtime/plan.h"

namespace lathe::runtime {

/// Weights in the order that kernels want, shared by every plan of an engine that can use them. Thread-safe.
class PackedWeights {
 public:
  using Pack = bool (*)(const void* context, void* packed);
  /// The packed form of constant memory `source` under `key`; packs it where it is not there. Null where memory ran
  /// out.
  std::shared_ptr<const void> get(const void* source, const std::string& key, std::size_t bytes, Pack pack,
                                  const void* context);
  [[nodiscard]] std::size_t bytes() const;

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const void>> entries_;
  std::shared_ptr<std::atomic<std::size_t>> bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
};

/// What specialization needs to know of its engine.
struct BuildOptions {
  bool jit = true;
  bool onednn = true;
  bool plain = true;
  int code_level = -1;
  bool perf_map = false;
  bool gdb = false;
  int threads = 1;
  PackedWeights* packed = nullptr;
};

struct Program {
  ops::Graph graph;                ///< its facts are those of the last plan made: guarded by the segment's mutex
  std::vector<ops::Group> groups;  ///< in execution order
};

/// Makes the plan for the facts that `program.graph` holds at the moment. Throws Failure. `check` is called while
/// another thread compiles what the plan needs, and ends the wait by throwing.
std::shared_ptr<const Plan> make_plan(const Program& program, const BuildOptions& options,
                                      const std::function<void()>& check);

/// Runs a loop kernel through compiled code, for folding and for nodes that run on their own.
std::int32_t run_compiled(const loops::Kernel& kernel, const loops::KernelArgs& args);

}  // namespace lathe::runtime
