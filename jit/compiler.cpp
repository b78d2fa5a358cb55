// The kernel cache: structures compiled once, in few modules, each by one thread while the others wait.
#include <unistd.h>

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>

#include "jit/codegen.h"
#include "jit/service.h"
#include "jit/target.h"
#include "ops/ir/failure.h"

namespace lathe::jit {
namespace {

using loops::Kernel;
using Handle = std::shared_ptr<const CompiledKernel>;

constexpr std::size_t kKernelsPerModule = 16;
constexpr std::size_t kRecent = 256;  ///< kernels kept although nobody holds them

/// A kernel to compile, with all that decides its code.
struct Job {
  explicit Job(const Kernel& kernel) : analysis(kernel) {}

  Analysis analysis;
  Schedule schedule;
  std::string key;
  std::string symbol;
  llvm::CodeGenOptLevel level = llvm::CodeGenOptLevel::Less;
  std::promise<Handle> promise;
};

llvm::CodeGenOptLevel level_of(const Analysis& analysis, int wanted) {
  if (wanted == 0) return llvm::CodeGenOptLevel::None;
  if (wanted == 1) return llvm::CodeGenOptLevel::Less;
  if (wanted >= 2) return llvm::CodeGenOptLevel::Default;
  return analysis.sweeps > 0 ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::None;
}

std::string symbol_of(const Kernel& kernel) {
  static std::atomic<std::uint64_t> count{0};
  std::string symbol = "lathe_" + std::to_string(count++);
  for (const char c : kernel.name.substr(0, 64)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (symbol.back() != '_' || plain) symbol += plain ? c : '_';
  }
  return symbol;
}

/// One line per function in the form that `perf report` reads.
void write_perf_map(const std::vector<std::string>& names, const std::vector<void*>& addresses) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return;
  for (std::size_t i = 0; i < names.size(); ++i) {
    // The next function of the module bounds this one; the last is given a page.
    auto address = reinterpret_cast<std::uintptr_t>(addresses[i]);
    std::uintptr_t size = 4096;
    for (void* other : addresses) {
      const auto next = reinterpret_cast<std::uintptr_t>(other);
      if (next > address) size = std::min(size, next - address);
    }
    std::fprintf(file, "%zx %zx %s\n", static_cast<std::size_t>(address), static_cast<std::size_t>(size),
                 names[i].c_str());
  }
  std::fclose(file);
}

std::vector<void*> compile_jobs(Service& service, std::span<Job* const> jobs, const Options& options,
                                std::shared_ptr<const CodeModule>& code, std::size_t& bytes) {
  const Target& target = Target::host();
  const Machine machine = target.machine(options.max_vector_bits);
  auto target_machine = target.take_machine(jobs.front()->level);
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  llvm::Module module("lathe", context);
  module.setTargetTriple(target_machine->getTargetTriple());
  module.setDataLayout(target_machine->createDataLayout());
  std::vector<std::string> names;
  for (Job* job : jobs) {
    job->symbol = symbol_of(job->analysis.kernel);
    emit_kernel(module, job->analysis, job->schedule, machine, job->symbol);
    names.push_back(job->symbol);
  }
  auto object = compile_module(module, *target_machine);
  target.put_back(std::move(target_machine));
  bytes = object->getBufferSize();
  Service::Linked linked = service.link(std::move(object), names, options.gdb);
  if (options.perf_map) write_perf_map(names, linked.addresses);
  code = std::move(linked.module);
  return linked.addresses;
}

}  // namespace

struct Compiler::State {
  std::shared_ptr<Service> service = Service::get();

  mutable std::mutex mutex;
  struct Entry {
    std::weak_ptr<const CompiledKernel> kernel;
    std::shared_future<Handle> pending;  ///< valid while a thread compiles it
  };
  std::unordered_map<std::string, Entry> cache;
  std::list<Handle> recent;
  std::size_t swept_at = 1024;
  Stats stats;

  /// Keeps a kernel alive for a while, where there is memory to. The caller holds the mutex.
  void touch(const Handle& kernel) noexcept {
    try {
      recent.push_front(kernel);
    } catch (const std::bad_alloc&) {
      return;  // it goes with its last holder
    }
    if (recent.size() > kRecent) recent.pop_back();
  }
  /// Ends jobs that will not be compiled; who waits for them gets the failure.
  void give_up(std::span<const std::unique_ptr<Job>> jobs, const std::exception_ptr& failure) noexcept {
    const std::lock_guard lock(mutex);
    for (const auto& job : jobs) {
      cache.erase(job->key);
      job->promise.set_exception(failure);
    }
  }
  /// Forgets structures whose code is gone, once there are many.
  void sweep() {
    if (cache.size() < swept_at) return;
    for (auto i = cache.begin(); i != cache.end();) {
      i = !i->second.pending.valid() && i->second.kernel.expired() ? cache.erase(i) : std::next(i);
    }
    swept_at = std::max<std::size_t>(1024, cache.size() * 2);
  }

  /// The code of a kernel, now or once it is compiled; what the caller must compile for it joins `jobs`, which have
  /// room.
  std::shared_future<Handle> find_or_add(const Kernel& kernel, const Machine& machine, const Options& options,
                                         std::vector<std::unique_ptr<Job>>& jobs) {
    auto job = std::make_unique<Job>(kernel);
    job->schedule = choose_schedule(job->analysis, machine);
    job->level = level_of(job->analysis, options.code_level);
    job->key = loops::structure_key(kernel) + job->schedule.key();
    job->key += static_cast<char>(job->level);
    job->key += static_cast<char>(machine.vector_bits / 128);
    job->key += static_cast<char>((options.perf_map ? 1 : 0) + (options.gdb ? 2 : 0));

    std::shared_future<Handle> result = job->promise.get_future().share();
    const std::lock_guard lock(mutex);
    Entry& entry = cache[job->key];
    if (Handle known = entry.kernel.lock()) {
      ++stats.cache_hits;
      job->promise.set_value(std::move(known));
      return result;
    }
    if (entry.pending.valid()) {
      ++stats.cache_hits;
      return entry.pending;
    }
    entry.pending = result;
    jobs.push_back(std::move(job));
    return result;
  }

  void compile_chunk(std::span<Job* const> jobs, const Options& options, Spent& spent) noexcept {
    const auto start = std::chrono::steady_clock::now();
    std::shared_ptr<const CodeModule> code;
    std::size_t bytes = 0;
    std::vector<Handle> handles;
    std::exception_ptr failure;
    try {
      const std::vector<void*> addresses = compile_jobs(*service, jobs, options, code, bytes);
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        const Job& job = *jobs[i];
        auto kernel = std::make_shared<CompiledKernel>();
        kernel->fn = reinterpret_cast<loops::KernelFn>(addresses[i]);
        kernel->lanes = job.schedule.lanes;
        kernel->grain = grain(job.analysis.kernel, job.schedule);
        kernel->scratch = scratch_slots(job.analysis, job.schedule);
        kernel->code = code;
        kernel->code_bytes = bytes / jobs.size();
        handles.push_back(std::move(kernel));
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    const std::lock_guard lock(mutex);
    stats.compile_ms += took.count();
    spent.ms += took.count();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (failure != nullptr) {
        cache.erase(jobs[i]->key);
        jobs[i]->promise.set_exception(failure);
        continue;
      }
      ++stats.kernels_compiled;
      ++spent.kernels;
      Entry& entry = cache.find(jobs[i]->key)->second;  // there as long as it is pending
      entry.kernel = handles[i];
      entry.pending = {};
      touch(handles[i]);
      jobs[i]->promise.set_value(handles[i]);
    }
  }

  /// Jobs of one level share modules.
  static std::vector<std::vector<Job*>> modules_of(std::vector<std::unique_ptr<Job>>& jobs, std::size_t threads) {
    std::stable_sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a->level < b->level; });
    std::vector<std::vector<Job*>> chunks;
    const std::size_t size = std::clamp((jobs.size() + threads - 1) / threads, std::size_t{1}, kKernelsPerModule);
    for (const auto& job : jobs) {
      if (chunks.empty() || chunks.back().size() == size || chunks.back().front()->level != job->level) {
        chunks.emplace_back();
      }
      chunks.back().push_back(job.get());
    }
    return chunks;
  }

  /// Several modules are compiled at the same time where the options allow.
  void compile_all(std::vector<std::vector<Job*>>& chunks, const Options& options, Spent& spent) noexcept {
    const auto compile = [&](int i) { compile_chunk(chunks[static_cast<std::size_t>(i)], options, spent); };
    const int count = static_cast<int>(chunks.size());
    if (options.pool == nullptr || count <= 1) {
      for (int i = 0; i < count; ++i) compile(i);
      return;
    }
    options.pool->parallel(
        count, [](void* context, int part, int) { (*static_cast<decltype(compile)*>(context))(part); },
        const_cast<void*>(static_cast<const void*>(&compile)));
  }
};

Compiler::Compiler(std::shared_ptr<State> state) : state_(std::move(state)) {}
Compiler::~Compiler() { remove_unused(); }

void Compiler::remove_unused() noexcept { state_->service->remove_queued(); }

std::shared_ptr<Compiler> Compiler::get() {
  static std::mutex mutex;
  static std::weak_ptr<State> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<State> state = current.lock();
  if (state == nullptr) {
    state = std::make_shared<State>();
    current = state;
  }
  return std::shared_ptr<Compiler>(new Compiler(std::move(state)));
}

std::vector<Handle> Compiler::compile(std::span<const Kernel* const> kernels, const Options& options, Spent* spent) {
  const Machine machine = Target::host().machine(options.max_vector_bits);
  std::vector<std::shared_future<Handle>> results(kernels.size());
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<std::vector<Job*>> modules;
  const std::size_t threads = options.pool != nullptr ? static_cast<std::size_t>(options.pool->threads()) : 1;
  jobs.reserve(kernels.size());
  try {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      results[i] = state_->find_or_add(*kernels[i], machine, options, jobs);
    }
    modules = State::modules_of(jobs, threads);
  } catch (...) {
    state_->give_up(jobs, std::current_exception());
    throw;
  }
  if (options.may_start_thread) state_->service->allow_thread();
  Spent unasked;
  state_->compile_all(modules, options, spent != nullptr ? *spent : unasked);
  // What callers hold keeps the cache alive; what the cache holds must not.
  struct Held {
    std::shared_ptr<State> state;
    Handle kernel;
  };
  std::vector<Handle> handles;
  for (const auto& result : results) {
    constexpr std::chrono::milliseconds kBetweenChecks(2);
    while (options.check && result.wait_for(kBetweenChecks) != std::future_status::ready) options.check();
    auto held = std::make_shared<Held>(Held{state_, result.get()});
    const CompiledKernel* kernel = held->kernel.get();
    handles.emplace_back(std::move(held), kernel);
  }
  const std::lock_guard lock(state_->mutex);
  state_->sweep();
  return handles;
}

Stats Compiler::stats() const {
  const std::lock_guard lock(state_->mutex);
  Stats stats = state_->stats;
  stats.live_modules = state_->service->live_modules();
  stats.code_bytes = state_->service->code_bytes();
  return stats;
}

}  // namespace lathe::jit
