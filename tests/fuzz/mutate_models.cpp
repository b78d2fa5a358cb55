// mutate_models: loads and runs damaged models within tight limits, each batch in a process of its own, and counts how
// far they get. A crash, a hang, a leak, a breach of the limits or an internal error is a fault, and its model is kept.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <lathe/lathe.h>
#include <lathe/tools.h>

#include "tests/fuzz/corpus.h"
#include "tests/fuzz/inputs.h"
#include "tests/fuzz/mutator.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
extern "C" const char* __asan_default_options();   // NOLINT: the sanitizer's name
extern "C" const char* __asan_default_options() {  // NOLINT
  return "max_allocation_size_mb=1024:quarantine_size_mb=16:detect_leaks=1:handle_abort=1:allocator_may_return_null=0";
}
#endif

namespace lathe::fuzz {
namespace {

constexpr std::size_t kMemory = std::size_t{256} << 20;     // EngineOptions::memory_bytes
constexpr std::size_t kResident = std::size_t{1536} << 20;  // the whole process, code and sanitizer included
constexpr std::chrono::seconds kTime{2};                    // of a load, and of a run
constexpr int kHangSeconds = 10;                            // of processor time
constexpr int kStuckSeconds = 240;                          // of wall time: a busy machine is no hang
constexpr int kCodes = static_cast<int>(ErrorCode::internal) + 1;

/// What all processes write to; in shared memory.
struct Counters {
  std::atomic<std::uint64_t> mutants{0};
  std::atomic<std::uint64_t> loaded{0};
  std::atomic<std::uint64_t> specialized{0};
  std::atomic<std::uint64_t> ran{0};
  std::array<std::atomic<std::uint64_t>, kCodes> load_errors{};
  std::array<std::atomic<std::uint64_t>, kCodes> run_errors{};
  std::atomic<std::uint64_t> faults{0};
};
struct Progress {  // of one worker
  std::atomic<std::size_t> at{0};
  std::atomic<std::int64_t> since{0};  // CLOCK_MONOTONIC, seconds
};

struct Job {
  std::vector<Sample> corpus;
  std::vector<std::string> operators;
  std::uint64_t seed = 1;
  std::string keep = ".";
  Counters* counters = nullptr;
};

/// Counts what an engine holds, as its allocator: a second opinion on memory_bytes.
class CountingAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    const std::size_t now = held_ += bytes;
    if (now > most_) most_ = now;
    return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
  }
  void release(void* memory, std::size_t bytes, std::size_t alignment) noexcept override {
    held_ -= bytes;
    ::operator delete(memory, std::align_val_t(alignment));
  }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  std::atomic<std::size_t> held_{0};
  std::atomic<std::size_t> most_{0};
};

std::int64_t seconds_now() {
  timespec t = {};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

/// Mutant `index`: half are damaged byte by byte, half with an eye for the format. None equals the sample it comes
/// from.
std::string make_mutant(const Job& job, std::size_t index) {
  const std::vector<Sample>& corpus = job.corpus;
  Random random(job.seed * 1'000'003 + index);
  for (;;) {
    const std::string& model = corpus[random.below(corpus.size())].model;
    const std::string& other = corpus[random.below(corpus.size())].model;
    std::string mutant =
        index % 2 == 0 ? mutate_bytes(model, other, random) : mutate_fields(model, other, job.operators, random);
    if (mutant != model) return mutant;
  }
}

void report(const Job& job, std::size_t index, const std::string& what) {
  const std::string path = job.keep + "/mutant-" + std::to_string(job.seed) + "-" + std::to_string(index) + ".onnx";
  const std::string bytes = make_mutant(job, index);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ++job.counters->faults;
  std::printf("FAULT %s: %s\n", path.c_str(), what.c_str());
  std::fflush(stdout);
}

void limit_processor_time(int seconds) {
  itimerval timer = {};
  timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

/// Loads and runs one model; the fault it shows, or nothing.
std::string try_model(const std::string& bytes, std::uint64_t seed, Counters& counters, bool verbose) {
  Random random(seed);
  const auto allocator = std::make_shared<CountingAllocator>();
  EngineOptions options;
  options.threads = 1;
  options.memory_bytes = kMemory;
  options.allocator = allocator;
  LoadOptions load;
  load.limits = {.bytes = std::uint64_t{64} << 20, .nodes = 20'000, .nesting = 32, .time = kTime};
  const auto count = [&](std::array<std::atomic<std::uint64_t>, kCodes>& errors, const Error& error) {
    ++errors[static_cast<std::size_t>(error.code)];
    if (verbose) std::printf("%s: %s\n", std::string(to_string(error.code)).c_str(), error.message.c_str());
    return error.code == ErrorCode::internal ? "internal error: " + error.message : std::string();
  };
  std::string fault;
  const std::clock_t start = std::clock();
  {
    const auto engine = Engine::try_load(std::as_bytes(std::span(bytes)), options, load);
    if (!engine) return count(counters.load_errors, engine.error());
    ++counters.loaded;
    for (int round = 0; round < 2 && fault.empty(); ++round) {
      const Inputs inputs = random_inputs(*engine, random);
      Shapes shapes;
      for (const NamedValue& input : inputs.values()) {
        if (input.value.is_tensor()) shapes.push_back({input.name, input.value.shape()});
      }
      if (round == 0 && engine->try_prepare(shapes)) ++counters.specialized;
      RunOptions run;
      run.deadline = std::chrono::steady_clock::now() + kTime;
      const auto outputs = engine->try_run(inputs, run);
      if (outputs && round == 0) ++counters.ran;
      if (!outputs) fault = count(counters.run_errors, outputs.error());
    }
  }
  const double used = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (!fault.empty()) return fault;
  if (allocator->most() > kMemory) return "memory_bytes was exceeded: " + std::to_string(allocator->most());
  if (used > 8) return "took " + std::to_string(used) + " s of processor time";
  return {};
}

/// A child process's life: mutants [begin, end).
[[noreturn]] void work(const Job& job, Progress& progress, std::size_t begin, std::size_t end) {
  long resident_before = 0;
  for (std::size_t i = begin; i < end; ++i) {
    progress.at = i;
    progress.since = seconds_now();
    ++job.counters->mutants;
    limit_processor_time(kHangSeconds);
    std::string fault = try_model(make_mutant(job, i), job.seed ^ i, *job.counters, false);
    limit_processor_time(0);
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    if (fault.empty() && static_cast<std::size_t>(usage.ru_maxrss) * 1024 > kResident &&
        usage.ru_maxrss > resident_before + (256 << 10)) {
      fault = "the process grew to " + std::to_string(usage.ru_maxrss / 1024) + " MB";
    }
    resident_before = std::max(resident_before, usage.ru_maxrss);
    if (!fault.empty()) report(job, i, fault);
  }
#if defined(__SANITIZE_ADDRESS__)
  if (__lsan_do_recoverable_leak_check() != 0) {
    report(job, end - 1, "mutants " + std::to_string(begin) + " to " + std::to_string(end) + " leak");
  }
#endif
  std::_Exit(0);
}

struct Worker {
  pid_t process = 0;
  std::size_t end = 0;
  Progress* progress = nullptr;
};

void start(const Job& job, Worker& worker, std::size_t begin, std::size_t end) {
  worker.end = end;
  worker.progress->at = begin;
  worker.progress->since = seconds_now();
  std::fflush(stdout);
  worker.process = fork();
  if (worker.process == 0) work(job, *worker.progress, begin, end);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGPROF) return "hang: over " + std::to_string(kHangSeconds) + " s of processor time";
    if (signal == SIGKILL) return "hang: stuck, or killed for memory";
    return std::string("crash: ") + strsignal(signal);
  }
  return "crash: the process ended with status " + std::to_string(WEXITSTATUS(status));
}

/// Runs every mutant; a batch that dies goes on after the mutant that killed it.
void run_all(const Job& job, std::size_t begin, std::size_t end, std::size_t jobs) {
  constexpr std::size_t kBatch = 100;
  auto* progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress) * jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<Worker> workers(jobs);
  std::size_t next = begin;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < jobs; ++i) workers[i].progress = new (&progress[i]) Progress;
  for (;;) {
    bool busy = false;
    for (Worker& worker : workers) {
      if (worker.process != 0) {
        int status = 0;
        if (seconds_now() - worker.progress->since > kStuckSeconds) kill(worker.process, SIGKILL);
        if (waitpid(worker.process, &status, WNOHANG) == 0) {
          busy = true;
          continue;
        }
        worker.process = 0;
        if (status != 0) {
          const std::size_t at = worker.progress->at;
          report(job, at, how_it_ended(status));
          if (at + 1 < worker.end) start(job, worker, at + 1, worker.end);
        }
      }
      if (worker.process == 0 && next < end) {
        start(job, worker, next, std::min(next + kBatch, end));
        next = worker.end;
      }
      busy = busy || worker.process != 0;
    }
    if (!busy) break;
    const std::size_t done = job.counters->mutants;
    if (done / 1000 > shown) {
      shown = done / 1000;
      std::fprintf(stderr, "%zu of %zu mutants, %zu faults\n", done, end - begin,
                   static_cast<std::size_t>(job.counters->faults));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// In a child, because the parent of the batches must not have threads.
std::vector<Sample> corpus_of(const std::string& models, int pieces, std::uint64_t seed, const std::string& file) {
  if (access(file.c_str(), R_OK) != 0) {
    const std::string fresh = file + "." + std::to_string(getpid());
    const pid_t child = fork();
    if (child == 0) {
      write_corpus(fresh, make_corpus(models, pieces, seed));
      std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
      std::printf("FAULT while the models were cut: %s\n", how_it_ended(status).c_str());
      std::exit(1);
    }
    std::rename(fresh.c_str(), file.c_str());
  }
  return read_corpus(file);
}

void print_errors(const char* where, const std::array<std::atomic<std::uint64_t>, kCodes>& errors) {
  for (int code = 0; code < kCodes; ++code) {
    const std::uint64_t n = errors[static_cast<std::size_t>(code)];
    if (n != 0) {
      std::printf("  %-5s %-18s %8llu\n", where, std::string(to_string(static_cast<ErrorCode>(code))).c_str(),
                  static_cast<unsigned long long>(n));
    }
  }
}

void print(const Counters& c) {
  const auto line = [&](const char* what, std::uint64_t n) {
    std::printf("%-24s %8llu  (%.1f %%)\n", what, static_cast<unsigned long long>(n),
                100.0 * static_cast<double>(n) / static_cast<double>(std::max<std::uint64_t>(c.mutants, 1)));
  };
  line("mutants", c.mutants);
  line("imported and loaded", c.loaded);
  line("specialized", c.specialized);
  line("ran to the end", c.ran);
  print_errors("load", c.load_errors);
  print_errors("run", c.run_errors);
  line("faults", c.faults);
}

int main_checked(int argc, char** argv) {
  CLI::App app("Loads and runs damaged models within tight limits");
  std::size_t count = 500;
  std::size_t first = 0;
  std::size_t jobs = 2;
  std::uint64_t seed = 1;
  int pieces = 40;
  std::string models;
  std::string corpus = "mutate_models.corpus";
  std::string keep = ".";
  std::string replay;
  double wanted = 0.25;
  app.add_option("models", models, "folder of the .onnx files");
  app.add_option("--count", count, "mutants")->capture_default_str();
  app.add_option("--first", first, "index of the first mutant")->capture_default_str();
  app.add_option("--seed", seed, "another seed, other mutants")->capture_default_str();
  app.add_option("--jobs", jobs, "processes at a time")->capture_default_str();
  app.add_option("--pieces", pieces, "pieces cut from each model")->capture_default_str();
  app.add_option("--corpus", corpus, "the cut models; made where the file is absent")->capture_default_str();
  app.add_option("--keep", keep, "folder for the models that show a fault")->capture_default_str();
  app.add_option("--loaded", wanted, "the part of the mutants that must load")->capture_default_str();
  app.add_option("--replay", replay, "a model to load and run once, in this process");
  CLI11_PARSE(app, argc, argv);

  auto* counters =
      new (mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Counters;
  if (!replay.empty()) {
    std::ifstream in(replay, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::size_t dash = replay.rfind('-');
    const std::uint64_t index = dash == std::string::npos ? 0 : std::strtoull(replay.c_str() + dash + 1, nullptr, 10);
    const std::string fault = try_model(bytes, seed ^ index, *counters, true);
    print(*counters);
    std::printf("%s\n", fault.empty() ? "no fault" : fault.c_str());
    return fault.empty() ? 0 : 1;
  }
  Job job;
  job.seed = seed;
  job.keep = keep;
  job.counters = counters;
  job.corpus = corpus_of(models, pieces, seed, corpus);
  for (const tools::OperatorInfo& op : tools::operators()) {
    if (op.domain.empty()) job.operators.push_back(op.name);
  }
  if (job.corpus.empty()) {
    std::fprintf(stderr, "there is no model in '%s'\n", models.c_str());
    return 1;
  }
  run_all(job, first, first + count, std::max<std::size_t>(jobs, 1));
  print(*counters);
  const bool enough = static_cast<double>(counters->loaded) >= wanted * static_cast<double>(counters->mutants);
  if (!enough) std::printf("FAULT too few mutants load to be a test of anything past the import\n");
  return counters->faults == 0 && enough ? 0 : 1;
}

}  // namespace
}  // namespace lathe::fuzz

int main(int argc, char** argv) { return lathe::fuzz::main_checked(argc, argv); }
