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

/// Whether somebody beside the cache holds an entry.
struct InUse {
  bool operator()(const Eager&) const { return false; }
  template <class T>
  bool operator()(const std::shared_ptr<T>& entry) const {
    return entry.use_count() > 1;
  }
};

/// Element operations of a whole kernel.
double operations_of(const loops::Kernel& kernel) {
  double operations = static_cast<double>(kernel.insts.size());
  for (int d = 0; d < kernel.rank(); ++d)
    operations *= static_cast<double>(kernel.extents[static_cast<std::size_t>(d)]);
  return operations;
}

}  // namespace

std::optional<Specialized> SpecializationCache::find(const std::string& key, bool count) {
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

void SpecializationCache::add(const std::string& key, Specialized entry, std::size_t code, std::size_t other) {
  Nodes gone;  // outlives the lock
  Nodes added;
  added.push_front({key, std::move(entry), code, sizeof(Node) + 2 * key.size() + code + other});
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(key); known != index_.end()) {
    remove(known->second, gone);
  }
  bytes_ += added.front().charge;
  nodes_.splice(nodes_.begin(), added);
  index_[nodes_.front().key] = nodes_.begin();
  while (bytes_ > limit_ && nodes_.size() > 1) {
    remove(std::prev(nodes_.end()), gone);
    ++evictions_;
  }
}

void SpecializationCache::remove(Nodes::iterator node, Nodes& gone) {
  bytes_ -= node->charge;
  index_.erase(node->key);
  gone.splice(gone.end(), nodes_, node);
}

void SpecializationCache::trim() {
  Nodes gone;
  const std::lock_guard lock(mutex_);
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const auto node = it++;
    if (std::visit(InUse(), node->entry)) continue;
    remove(node, gone);
    ++evictions_;
  }
}

void SpecializationCache::fill(CacheStats& stats) const {
  const std::lock_guard lock(mutex_);
  for (const Node& node : nodes_) {
    stats.plans += std::holds_alternative<std::shared_ptr<const Plan>>(node.entry);
    stats.structures += std::holds_alternative<std::shared_ptr<Program>>(node.entry);
  }
  stats.bytes = bytes_;
  stats.plan_hits = hits_;
  stats.plan_misses = misses_;
  stats.evictions = evictions_;
}

std::size_t SpecializationCache::code_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const Node& node : nodes_) bytes += node.code;
  return bytes;
}

EngineCore::EngineCore(const EngineOptions& options)
    : options_(options),
      compiler_(jit::Compiler::get()),
      memory_(options.allocator, options.memory_bytes),
      cache_(options.cache_bytes),
      loop_runner_(
          [this](const loops::Kernel& kernel, const loops::KernelArgs& args) { return run_loop(kernel, args); }) {
  std::string_view source;
  if (options_.passes.empty()) {
    if (const char* environment = std::getenv("LATHE_PASSES")) {
      options_.passes = environment;
      source = "LATHE_PASSES: ";
    }
  }
  passes::check_switches(options_.passes, source);
  for (const std::string& backend : options_.backends) {
    if (backend != "jit" && backend != "onednn" && backend != "plain") {
      fail(ErrorCode::invalid_argument, "there is no backend '{}': jit, onednn and plain exist", shown(backend));
    }
  }
  if (options_.threads < 0 || options_.threads > EngineOptions::kMaxThreads) {
    fail(ErrorCode::invalid_argument, "threads is {}, expected 0 (one per core) to {}", options_.threads,
         EngineOptions::kMaxThreads);
  }
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
  build_.pool = pool_.get();
  build_.own_pool = !options_.pool;
  build_.packed = packed_.get();
  build_.memory = &memory_;
}

void EngineCore::share_constants(const EngineCore& other) {
  packed_ = other.packed_;
  folded_ = other.folded_;
  build_.packed = packed_.get();
}

passes::Context EngineCore::context(std::vector<passes::Record>& records, std::function<void()> check) {
  passes::Context context;
  context.switches = options_.passes;
  context.records = &records;
  context.evaluate = [this, check](const ops::Node& node, std::span<const Value> inputs) {
    return ops::evaluate_node(node, inputs, [&](const loops::Kernel& kernel, const loops::KernelArgs& args) {
      return run_loop(kernel, args, [&] { passes::check_at(check, node); });
    });
  };
  context.check = std::move(check);
  return context;
}

void EngineCore::count(const std::vector<passes::Record>& run, std::chrono::steady_clock::time_point start,
                       std::vector<passes::Record>* records) {
  pass_microseconds_ += microseconds_since(start);
  passes_run_ += static_cast<std::uint64_t>(
      std::count_if(run.begin(), run.end(), [](const passes::Record& r) { return !r.switched_off; }));
  if (records) records->insert(records->end(), run.begin(), run.end());
}

void EngineCore::count(const jit::Spent& spent) {
  kernels_ += static_cast<std::uint64_t>(spent.kernels);
  compile_microseconds_ += static_cast<std::uint64_t>(spent.ms * 1000);
}

void EngineCore::freeze(ops::Graph& graph, std::vector<passes::Record>& records, const std::function<void()>& check) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<passes::Record> run;
  passes::Context c = context(run, check);
  passes::run_at_load(graph, c);
  count(run, start, &records);
}

void EngineCore::specialize(Program& program, const RunControl& control, std::vector<passes::Record>* records) {
  const auto start = std::chrono::steady_clock::now();
  const CpuTarget target(build_.onednn);
  std::vector<passes::Record> run;
  passes::Context c = context(run, [&] { control.check(); });
  c.target = &target;
  c.folded = folded_.get();
  passes::run_for_structure(program.graph, c);
  program.groups = std::move(c.groups);
  program.folded = std::move(c.kept);
  program.charge = program.graph.node_count() * (sizeof(ops::Node) + sizeof(ops::Group) + 256) +
                   program.graph.value_count() * (sizeof(ops::ValueDef) + 64) + c.folded_bytes;
  count(run, start, records);
}

std::shared_ptr<const Plan> EngineCore::make_plan(Program& program, const RunControl& control, bool real_time) {
  BuildOptions options = build_;
  options.real_time = real_time;
  auto plan = runtime::make_plan(program, options, [&] { control.check(); });
  count(plan->spent);
  return plan;
}

bool EngineCore::compiles(const loops::Kernel& kernel) const {
  // Below this many element operations interpreting a kernel is cheaper than looking its code up.
  constexpr double kInterpret = 256;
  return build_.jit && operations_of(kernel) > kInterpret;
}

std::int32_t EngineCore::run_loop(const loops::Kernel& kernel, const loops::KernelArgs& args,
                                  const std::function<void()>& check) {
  constexpr double kBetweenChecks = 1e7;  // element operations: some milliseconds
  const double operations = operations_of(kernel);
  const std::int64_t extent = args.end - args.begin;
  std::int64_t part = extent;
  if (check && operations > kBetweenChecks) {
    part =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(extent) * kBetweenChecks / operations));
  }
  const auto run_parts = [&](loops::KernelArgs range, const auto& run) {
    for (std::int64_t begin = args.begin; begin < args.end; begin += part) {
      if (part < extent) check();
      range.begin = begin;
      range.end = std::min(args.end, begin + part);
      if (const std::int32_t status = run(range); status != loops::kOk) return status;
    }
    return loops::kOk;
  };
  if (!compiles(kernel)) {
    return run_parts(args, [&](const loops::KernelArgs& range) { return loops::evaluate(kernel, range); });
  }
  using Code = std::shared_ptr<const jit::CompiledKernel>;
  const std::string key = "code" + loops::structure_key(kernel);
  Code code;
  if (const auto found = cache_.find(key, false)) {
    code = std::get<Code>(*found);
  } else {
    const loops::Kernel* const list[] = {&kernel};
    jit::Options options = build_.compiling();
    options.check = check;
    jit::Spent spent;
    code = compiler_->compile(list, options, &spent).front();
    count(spent);
    cache_.add(key, code, code->code_bytes, sizeof(jit::CompiledKernel));
  }
  const std::shared_ptr<void> scratch =
      memory_.allocate(Use::values, static_cast<std::size_t>(code->scratch_bytes(kernel)));
  loops::KernelArgs with_scratch = args;
  with_scratch.scratch = scratch.get();
  part = (part + code->grain - 1) / code->grain * code->grain;
  return run_parts(with_scratch, [&](const loops::KernelArgs& range) { return code->fn(&range); });
}

void EngineCore::fill(CacheStats& stats) const {
  cache_.fill(stats);
  stats.structure_hits = structure_hits_;
  stats.passes_run = passes_run_;
  stats.kernels_compiled = kernels_;
  stats.pass_seconds = static_cast<double>(pass_microseconds_) * 1e-6;
  stats.compile_seconds = static_cast<double>(compile_microseconds_) * 1e-6;
}

}  // namespace lathe::runtime
