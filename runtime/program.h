// Program: a graph specialized to a structure of shapes, in groups that run as one kernel each; plans are made from it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/jit.h"
#include "ops/ir/graph.h"
#include "ops/ir/loop_builder.h"
#include "ops/ir/weak_map.h"
#include "passes/pipeline.h"
#include "runtime/data_memory.h"
#include "runtime/plan.h"

namespace lathe::runtime {

/// Weights in the order that kernels want, shared by every plan that can use them, of all engines that share the
/// constants. Thread-safe.
class PackedWeights {
 public:
  using Pack = bool (*)(const void* context, void* packed);
  /// The packed form of what lies at `source` inside `constant`, under `key`; packs it where it is not there. Keeps the
  /// constant, so that its address stays its own. Null where packing failed; Failure where `memory` ran out.
  std::shared_ptr<const void> get(DataMemory& memory, const Tensor& constant, const void* source,
                                  const std::string& key, std::size_t bytes, Pack pack, const void* context);

 private:
  std::mutex mutex_;
  ops::WeakMap<const void> entries_;
};

/// What specialization needs to know of its engine.
struct BuildOptions {
  bool jit = true;
  bool onednn = true;
  bool plain = true;
  bool canaries = false;  ///< plans check that no step writes beside its buffers; for tests
  int code_level = -1;
  bool perf_map = false;
  bool gdb = false;
  int threads = 1;
  ThreadPool* pool = nullptr;
  bool own_pool = true;    ///< and not the application's
  bool real_time = false;  ///< no step that allocates where another one can do its work
  [[nodiscard]] jit::Options compiling() const {
    return {.code_level = code_level, .pool = pool, .may_start_thread = own_pool, .perf_map = perf_map, .gdb = gdb};
  }
  PackedWeights* packed = nullptr;
  DataMemory* memory = nullptr;  ///< for what is packed
};

struct Program {
  ops::Graph graph;                ///< its facts are those of the last plan made: guarded by the segment's turn
  std::vector<ops::Group> groups;  ///< in execution order
  std::string key;                 ///< in the cache
  std::size_t charge = 0;          ///< bytes that the cache counts for it, beside the code
  std::vector<std::shared_ptr<const passes::Folded>> folded;
  /// Code that its plans run: a further plan finds it, whoever has left the cache meanwhile.
  std::unordered_map<const jit::CompiledKernel*, std::shared_ptr<const jit::CompiledKernel>> code;
  std::size_t code_bytes = 0;
};

/// Makes the plan for the facts that `program.graph` holds at the moment. Throws Failure, and NotFusable where the
/// program's groups do not suit those facts. `check` is called between groups and while another thread compiles what
/// the plan needs, and ends it by throwing.
std::shared_ptr<const Plan> make_plan(Program& program, const BuildOptions& options,
                                      const std::function<void()>& check);

}  // namespace lathe::runtime
