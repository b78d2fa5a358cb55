// EngineCore: what an engine's sessions, segments and plans share. Kept alive by each of them, never by background work
// alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include <lathe/engine.h>
#include <lathe/thread_pool.h>

#include "jit/jit.h"
#include "ops/ir/evaluate.h"
#include "passes/pipeline.h"
#include "runtime/data_memory.h"
#include "runtime/program.h"
#include "runtime/run_control.h"

namespace lathe::runtime {

/// A set of shapes for which there is no plan: the segment runs node by node.
struct Eager {};
/// What an engine specialized: plans (by shapes), programs (by structure), code of nodes that run on their own.
using Specialized = std::variant<Eager, std::shared_ptr<const Plan>, std::shared_ptr<Program>,
                                 std::shared_ptr<const jit::CompiledKernel>>;

/// What was specialized, by key; the least recently used leave once their charges exceed the limit, but never the last
/// one. Thread-safe; what leaves is destroyed without a lock held.
class SpecializationCache {
 public:
  explicit SpecializationCache(std::size_t limit) : limit_(limit) {}

  /// `count`: whether it is a run that asks.
  std::optional<Specialized> find(const std::string& key, bool count);
  /// Adds an entry, or charges one that is there anew, with bytes of machine code and of all else.
  void add(const std::string& key, Specialized entry, std::size_t code, std::size_t other);
  /// Drops all that nobody uses.
  void trim();
  void fill(CacheStats& stats) const;
  [[nodiscard]] std::size_t code_bytes() const;

 private:
  struct Node {
    std::string key;
    Specialized entry;
    std::size_t code = 0;
    std::size_t charge = 0;  ///< `code` included
  };
  using Nodes = std::list<Node>;
  /// Takes a node out; the caller holds the mutex, and destroys `gone` after it.
  void remove(Nodes::iterator node, Nodes& gone);

  mutable std::mutex mutex_;
  std::size_t limit_;
  std::size_t bytes_ = 0;
  Nodes nodes_;  // most recently used first
  std::unordered_map<std::string_view, Nodes::iterator> index_;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t evictions_ = 0;
};

class EngineCore {
 public:
  explicit EngineCore(const EngineOptions& options);

  SpecializationCache& cache() { return cache_; }
  DataMemory& memory() { return memory_; }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] int threads() const { return build_.threads; }
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  /// For tests: to be changed before the first plan is made.
  [[nodiscard]] BuildOptions& build_options() { return build_; }

  /// Runs the passes that need no shapes; `check` ends it between and within them by throwing.
  void freeze(ops::Graph& graph, std::vector<passes::Record>& records, const std::function<void()>& check);
  /// Runs the passes of a structure on a graph with facts, and groups it; `control` ends it between passes.
  void specialize(Program& program, const RunControl& control, std::vector<passes::Record>* records = nullptr);
  /// `control` ends the wait for what other threads compile.
  std::shared_ptr<const Plan> make_plan(Program& program, const RunControl& control, bool real_time);
  /// Runs a loop kernel, as compiled code where that `compiles`: for folding, and for nodes that run on their own.
  /// `check`, where given, is called between parts of long ones and ends them by throwing.
  std::int32_t run_loop(const loops::Kernel& kernel, const loops::KernelArgs& args,
                        const std::function<void()>& check = {});
  [[nodiscard]] bool compiles(const loops::Kernel& kernel) const;
  /// The same as a function to hand on.
  [[nodiscard]] const ops::RunLoop& loop_runner() const { return loop_runner_; }
  /// Tells the application, where it listens at all, what `text` returns.
  template <class Text>
  void log(LogLevel level, Text&& text) {
    if (!options_.log) return;
    const std::lock_guard lock(log_mutex_);
    options_.log(level, std::string(text()));
  }

  /// Uses what another engine packed and folded of the same constants, and the other way round. Before the first plan.
  void share_constants(const EngineCore& other);
  /// Lets go of plans and programs that are not in use, and of their code.
  void trim() {
    cache_.trim();
    compiler_->remove_unused();
  }
  void count_structure_hit() { ++structure_hits_; }
  void fill(CacheStats& stats) const;

 private:
  passes::Context context(std::vector<passes::Record>& records, std::function<void()> check);
  void count(const std::vector<passes::Record>& run, std::chrono::steady_clock::time_point start,
             std::vector<passes::Record>* records);
  void count(const jit::Spent& spent);

  EngineOptions options_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<jit::Compiler> compiler_;  ///< the process's: its cache lives as long as somebody holds it
  DataMemory memory_;
  std::shared_ptr<PackedWeights> packed_ = std::make_shared<PackedWeights>();
  std::shared_ptr<passes::FoldedConstants> folded_ = std::make_shared<passes::FoldedConstants>();
  BuildOptions build_;
  SpecializationCache cache_;
  ops::RunLoop loop_runner_;
  std::mutex log_mutex_;
  std::atomic<std::uint64_t> structure_hits_{0};
  std::atomic<std::uint64_t> passes_run_{0};
  std::atomic<std::uint64_t> kernels_{0};
  std::atomic<std::uint64_t> pass_microseconds_{0};
  std::atomic<std::uint64_t> compile_microseconds_{0};
};

}  // namespace lathe::runtime
