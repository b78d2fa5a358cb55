// The thread pool: one job at a time, parts claimed through one counter, workers asleep between runs.
#include "runtime/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "ops/ir/failure.h"

namespace lathe {
namespace {

constexpr std::chrono::microseconds kSpin{40};  // about what waking a sleeping thread costs

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `done()` holds or `limit` has passed; says whether it holds.
template <class Done>
bool spin_until(std::chrono::microseconds limit, Done done) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + limit;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      relax();
    }
  } while (Clock::now() < end);
  return done();
}

class Pool final : public ThreadPool {
 public:
  explicit Pool(int threads) : threads_(std::max(threads, 1)) {
    workers_.reserve(static_cast<std::size_t>(threads_ - 1));
    // Signals are the host's business: workers block them all, which they inherit from the thread that starts them.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int w = 1; w < threads_; ++w) workers_.emplace_back([this, w] { work(w); });
    } catch (const std::exception& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      stop();
      fail(ErrorCode::out_of_memory, "the system refused thread {} of {}: {}", workers_.size() + 2, threads_,
           error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Pool() override { stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] int threads() const noexcept override { return threads_; }

  void parallel(int parts, Task task, void* context) noexcept override {
    if (parts <= 1 || threads_ == 1 || busy_.exchange(true, std::memory_order_acquire)) {
      for (int part = 0; part < parts; ++part) task(context, part, 0);
      return;
    }
    job_ = {task, context, parts};
    pending_.store(parts, std::memory_order_relaxed);
    unclaimed_.store(parts);  // publishes the job; ordered before the look at sleepers_
    wake(parts - 1);
    while (run_one(0)) {
    }
    wait_for_the_rest();
    busy_.store(false, std::memory_order_release);
  }

  void begin_run() noexcept override { runs_.fetch_add(1, std::memory_order_relaxed); }
  void end_run() noexcept override { runs_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  struct Job {
    Task task = nullptr;
    void* context = nullptr;
    int parts = 0;
  };

  /// Claims one part and runs it. The job may be read only by who holds a claim: until the part is counted as done,
  /// `parallel` does not return, so the job cannot change.
  bool run_one(int worker) {
    int left = unclaimed_.load(std::memory_order_relaxed);
    do {
      if (left == 0) return false;
    } while (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    job_.task(job_.context, job_.parts - left, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
    return true;
  }

  void wait_for_the_rest() {
    if (spin_until(kSpin, [this] { return pending_.load(std::memory_order_acquire) == 0; })) return;
    for (int left = pending_.load(std::memory_order_acquire); left != 0;
         left = pending_.load(std::memory_order_acquire)) {
      pending_.wait(left, std::memory_order_acquire);
    }
  }

  void wake(int most) {
    const int count = std::min(sleepers_.load(), most);
    if (count == 0) return;
    signal_.fetch_add(1);
    for (int i = 0; i < count; ++i) signal_.notify_one();
  }

  void work(int worker) {
    pthread_setname_np(pthread_self(), ("lathe-" + std::to_string(worker)).c_str());
    std::fesetenv(FE_DFL_ENV);  // a host's own rounding or denormal mode must not reach half of the result
    while (!stopping_.load(std::memory_order_acquire)) {
      if (run_one(worker)) continue;
      const auto more = [this] { return unclaimed_.load(std::memory_order_relaxed) != 0; };
      const auto over = [this] { return runs_.load(std::memory_order_relaxed) == 0; };
      if (!over() && spin_until(kSpin, [&] { return more() || over(); }) && more()) continue;
      sleep();
    }
  }

  /// A worker counts itself as asleep before its last look for work, and `parallel` publishes work before it looks for
  /// sleepers (both sequentially consistent), so one of the two sees the other.
  void sleep() {
    sleepers_.fetch_add(1);
    const std::uint32_t seen = signal_.load();
    if (unclaimed_.load() == 0 && !stopping_.load()) signal_.wait(seen);
    sleepers_.fetch_sub(1);
  }

  void stop() {
    stopping_.store(true);
    signal_.fetch_add(1);
    signal_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  const int threads_;
  std::vector<std::thread> workers_;
  Job job_;
  std::atomic<bool> busy_{false};  // someone has the workers
  alignas(64) std::atomic<int> unclaimed_{0};
  alignas(64) std::atomic<int> pending_{0};
  alignas(64) std::atomic<std::uint32_t> signal_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<int> runs_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace

std::unique_ptr<ThreadPool> make_thread_pool(int threads) { return std::make_unique<Pool>(threads); }

}  // namespace lathe
