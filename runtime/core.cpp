// The plan cache, data memory, and what specialization needs of an engine.
#include "runtime/core.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "jit/jit.h"
#include "ops/ir/evaluate.h"
#include "runtime/thread_pool.h"

namespace lathe::runtime {
namespace {

class CpuTarget final : public passes::TargetInfo {
 public:
  explicit CpuTarget(bool onednn) : onednn_(onednn) {}
  [[nodiscard]] bool prefers_channels_last() const override { return onednn_; }

 private:
  bool onednn_;
};

bool allows(const EngineOptions& options, std::string_view backend) {
  return options.backends.empty() ||
         std::find(options.backends.begin(), options.backends.end(), backend) != options.backends.end();
}

std::uint64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace

std::optional<PlanCache::Entry> PlanCache::find(const std::string& key, bool count) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) {
    misses_ += count;
    return std::nullopt;
  }
  hits_ += count;
  nodes_.splice(nodes_.begin(), nodes_, found->second);
  return found->second->entry;
}

void PlanCache::add(const std::string& key, Entry entry) {
  std::list<Node> gone;  // outlives the lock: what leaves is destroyed while others may look up
  const std::lock_guard lock(mutex_);
  const std::size_t charge = sizeof(Node) + 2 * key.size() + (entry.plan ? entry.plan->charge : 0);
  nodes_.push_front({key, std::move(entry), charge});
  index_[nodes_.front().key] = nodes_.begin();
  bytes_ += charge;
  while (bytes_ > limit_ && nodes_.size() > 1) remove(std::prev(nodes_.end()), gone);
}

void PlanCache::remove(std::list<Node>::iterator node, std::list<Node>& gone) {
  bytes_ -= node->charge;
  index_.erase(node->key);
  gone.splice(gone.end(), nodes_, node);
  ++evictions_;
}

void PlanCache::trim() {
  std::list<Node> gone;
  const std::lock_guard lock(mutex_);
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto node = it++;
    if (!node->entry.plan || node->entry.plan.use_count() == 1) remove(node, gone);
  }
}

void PlanCache::fill(CacheStats& stats) const {
  const std::lock_guard lock(mutex_);
  stats.plans = nodes_.size();
  stats.bytes = bytes_;
  stats.plan_hits = hits_;
  stats.plan_misses = misses_;
  stats.evictions = evictions_;
}

std::shared_ptr<void> DataMemory::allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t before = used_->fetch_add(rounded);
  if (limit_ != 0 && before + rounded > limit_) {
    used_->fetch_sub(rounded);
    fail(ErrorCode::limit_exceeded, "{} bytes more would exceed memory_bytes: {} of {} bytes are in use", rounded,
         before, limit_);
  }
  void* memory = allocator_ ? allocator_->allocate(rounded, kAlignment) : std::aligned_alloc(kAlignment, rounded);
  if (!memory) {
    used_->fetch_sub(rounded);
    fail(ErrorCode::out_of_memory, "no memory for {} bytes", rounded);
  }
  return {memory, [allocator = allocator_, used = used_, rounded](void* p) {
            used->fetch_sub(rounded);
            if (allocator) {
              allocator->release(p, rounded, kAlignment);
            } else {
              std::free(p);
            }
          }};
}

EngineCore::EngineCore(const EngineOptions& options)
    : options_(options),
      compiler_(jit::Compiler::get()),
      plans_(options.cache_bytes),
      memory_(options.allocator, options.memory_bytes) {
  if (options_.passes.empty()) {
    if (const char* environment = std::getenv("LATHE_PASSES")) options_.passes = environment;
  }
  passes::check_switches(options_.passes);
  for (const std::string& backend : options_.backends) {
    if (backend != "jit" && backend != "onednn" && backend != "plain") {
      fail(ErrorCode::invalid_argument, "there is no backend '{}': jit, onednn and plain exist", shown(backend));
    }
  }
  if (options_.threads < 0)
    fail(ErrorCode::invalid_argument, "threads is {}, expected 0 (one per core) or more", options_.threads);
  if (options_.pool) {
    pool_ = options_.pool;
  } else {
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    pool_ = make_thread_pool(options_.threads > 0 ? options_.threads : cores);
  }
  build_.jit = allows(options_, "jit");
  build_.onednn = allows(options_, "onednn");
  build_.plain = allows(options_, "plain");
  build_.code_level = static_cast<int>(options_.code_level) - 1;
  const auto switched_on = [](const char* name) {
    const char* value = std::getenv(name);
    return value && std::string_view(value) == "1";
  };
  build_.perf_map = options_.perf_map || switched_on("LATHE_PERF_MAP");
  build_.gdb = options_.gdb || switched_on("LATHE_GDB");
  build_.threads = pool_->threads();
  build_.packed = &packed_;
}

bool EngineCore::fuses() const { return passes::enabled(options_.passes, "graph_fuse"); }

void EngineCore::run_passes(ops::Graph& graph, bool at_load, std::vector<passes::Record>* records,
                            std::chrono::steady_clock::time_point deadline) {
  const CpuTarget target(build_.onednn);
  std::vector<passes::Record> run;
  passes::Context context;
  context.switches = options_.passes;
  context.target = &target;
  context.deadline = deadline;
  if (!at_load) context.folded = &folded_;
  context.records = &run;
  context.evaluate = [](const ops::Node& node, std::span<const Value> inputs) {
    return ops::evaluate_node(node, inputs, run_compiled);
  };
  const auto start = std::chrono::steady_clock::now();
  if (at_load) {
    passes::run_at_load(graph, context);
  } else {
    passes::run_for_structure(graph, context);
  }
  pass_microseconds_ += microseconds_since(start);
  passes_run_ += static_cast<std::uint64_t>(
      std::count_if(run.begin(), run.end(), [](const passes::Record& r) { return !r.switched_off; }));
  if (records) records->insert(records->end(), run.begin(), run.end());
}

std::shared_ptr<const Plan> EngineCore::make_plan(const Program& program, const RunControl& control) {
  const jit::Stats before = compiler_->stats();
  auto plan = runtime::make_plan(program, build_, [&] { control.check(); });
  const jit::Stats after = compiler_->stats();
  kernels_ += static_cast<std::uint64_t>(after.kernels_compiled - before.kernels_compiled);
  compile_microseconds_ += static_cast<std::uint64_t>((after.compile_ms - before.compile_ms) * 1000);
  return plan;
}

void EngineCore::fill(CacheStats& stats) const {
  plans_.fill(stats);
  stats.structures = structures_;
  stats.structure_hits = structure_hits_;
  stats.passes_run = passes_run_;
  stats.kernels_compiled = kernels_;
  stats.pass_seconds = static_cast<double>(pass_microseconds_) * 1e-6;
  stats.compile_seconds = static_cast<double>(compile_microseconds_) * 1e-6;
}

}  // namespace lathe::runtime
