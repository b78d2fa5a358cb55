// EngineCore: what an engine's sessions, segments and plans share. Kept alive by each of them, never by background work
// alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <lathe/engine.h>
#include <lathe/thread_pool.h>

#include "jit/jit.h"
#include "passes/pipeline.h"
#include "runtime/program.h"
#include "runtime/run_control.h"

namespace lathe::runtime {

/// Plans by key, least recently used leave once their charges exceed the limit. Thread-safe.
class PlanCache {
 public:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    bool eager = false;  ///< no plan: the segment runs node by node for this key
  };
  explicit PlanCache(std::size_t limit) : limit_(limit) {}

  std::optional<Entry> find(const std::string& key, bool count = true);
  void add(const std::string& key, Entry entry);
  /// Drops every plan that nobody runs.
  void trim();
  void fill(CacheStats& stats) const;

 private:
  struct Node {
    std::string key;
    Entry entry;
    std::size_t charge = 0;
  };
  /// Takes a node out; the caller holds the mutex, and destroys `gone` after it.
  void remove(std::list<Node>::iterator node, std::list<Node>& gone);

  mutable std::mutex mutex_;
  std::size_t limit_;
  std::size_t bytes_ = 0;
  std::list<Node> nodes_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Node>::iterator> index_;
  std::uint64_t hits_ = 0;
  std::uint64_t misses_ = 0;
  std::uint64_t evictions_ = 0;
};

/// Data memory: from the application's allocator or the system, counted against EngineOptions::memory_bytes.
class DataMemory {
 public:
  DataMemory(std::shared_ptr<Allocator> allocator, std::size_t limit)
      : allocator_(std::move(allocator)), limit_(limit) {}
  /// At least `bytes` bytes aligned to 64, released with the last copy. Failure (limit_exceeded, out_of_memory).
  std::shared_ptr<void> allocate(std::size_t bytes);
  [[nodiscard]] std::size_t used() const { return used_->load(); }

 private:
  std::shared_ptr<Allocator> allocator_;
  std::size_t limit_;
  std::shared_ptr<std::atomic<std::size_t>> used_ = std::make_shared<std::atomic<std::size_t>>(0);
};

class EngineCore {
 public:
  explicit EngineCore(const EngineOptions& options);

  PlanCache& plans() { return plans_; }
  DataMemory& memory() { return memory_; }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] int threads() const { return build_.threads; }
  [[nodiscard]] const EngineOptions& options() const { return options_; }

  /// Runs the load-time or the structure's passes and adds to the records.
  void run_passes(ops::Graph& graph, bool at_load, std::vector<passes::Record>* records = nullptr,
                  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max());
  [[nodiscard]] bool fuses() const;
  /// `control` ends the wait for what other threads compile.
  std::shared_ptr<const Plan> make_plan(const Program& program, const RunControl& control);
  /// Tells the application, where it listens at all, what `text` returns.
  template <class Text>
  void log(LogLevel level, Text&& text) {
    if (!options_.log) return;
    const std::lock_guard lock(log_mutex_);
    options_.log(level, std::string(text()));
  }

  void count_structure() { ++structures_; }
  void count_structure_hit() { ++structure_hits_; }
  void fill(CacheStats& stats) const;
  [[nodiscard]] std::size_t packed_bytes() const { return packed_.bytes(); }

 private:
  EngineOptions options_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<jit::Compiler> compiler_;  ///< the process's: its cache lives as long as somebody holds it
  PackedWeights packed_;
  passes::FoldedConstants folded_;
  BuildOptions build_;
  PlanCache plans_;
  DataMemory memory_;
  std::mutex log_mutex_;
  std::atomic<std::size_t> structures_{0};
  std::atomic<std::uint64_t> structure_hits_{0};
  std::atomic<std::uint64_t> passes_run_{0};
  std::atomic<std::uint64_t> kernels_{0};
  std::atomic<std::uint64_t> pass_microseconds_{0};
  std::atomic<std::uint64_t> compile_microseconds_{0};
};

}  // namespace lathe::runtime
