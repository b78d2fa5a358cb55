// The thread pool: every part once, distinct workers, many callers, nesting, idle workers that use no CPU.
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <latch>
#include <thread>
#include <vector>

namespace lathe {
namespace {

using namespace std::chrono_literals;

/// The clocks of what each of the pool's threads takes of the processor, the caller's included.
std::vector<clockid_t> clocks_of(ThreadPool& pool) {
  std::vector<clockid_t> clocks(static_cast<std::size_t>(pool.threads()));
  std::latch all(pool.threads());
  parallel_for(pool, pool.threads(), [&](int part, int) {
    pthread_getcpuclockid(pthread_self(), &clocks[static_cast<std::size_t>(part)]);
    all.arrive_and_wait();  // so that no thread takes two parts
  });
  return clocks;
}

double cpu_ms(const std::vector<clockid_t>& clocks) {
  double ms = 0;
  for (const clockid_t clock : clocks) {
    timespec t{};
    clock_gettime(clock, &t);
    ms += static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
  }
  return ms;
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

class ThreadPoolTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, RunsEveryPartOnce) {
  const auto pool = make_thread_pool(GetParam());
  EXPECT_EQ(pool->threads(), GetParam());
  for (int parts : {0, 1, 2, 3, 7, 100}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<int> hits(static_cast<std::size_t>(parts));  // plain ints: what tasks wrote must be visible here
      parallel_for(*pool, parts, [&](int part, int) { ++hits[static_cast<std::size_t>(part)]; });
      for (int h : hits) ASSERT_EQ(h, 1);
    }
  }
}

TEST_P(ThreadPoolTest, TasksThatOverlapHaveDistinctWorkers) {
  const auto pool = make_thread_pool(GetParam());
  const RunScope run(*pool);
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(GetParam()));
  std::atomic<int> clashes{0};
  for (int repeat = 0; repeat < 100; ++repeat) {
    parallel_for(*pool, 16, [&](int, int worker) {
      std::atomic<int>& here = inside.at(static_cast<std::size_t>(worker));
      if (here.fetch_add(1) != 0) ++clashes;
      here.fetch_sub(1);
    });
  }
  EXPECT_EQ(clashes, 0);
}

TEST_P(ThreadPoolTest, ManyCallersAndNestedCallsGetTheirOwnResults) {
  const auto pool = make_thread_pool(GetParam());
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        const RunScope run(*pool);
        std::atomic<int> sum{0};
        parallel_for(*pool, 5,
                     [&](int part, int) { parallel_for(*pool, 3, [&](int inner, int) { sum += part * 3 + inner; }); });
        if (sum != 15 * 14 / 2) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(PoolThreads, OneThreadCreatesNone) {
  std::thread([] {}).join();  // TSan adds a thread of its own to the first
  const auto before = threads_of_this_process();
  const auto one = make_thread_pool(1);
  EXPECT_EQ(threads_of_this_process(), before);
  const auto three = make_thread_pool(3);
  EXPECT_EQ(threads_of_this_process(), before + 2);
}

TEST(PoolThreads, ASecondThreadReallyHelps) {
  const auto pool = make_thread_pool(2);
  std::atomic<int> present{0};
  parallel_for(*pool, 2, [&](int, int) {  // neither part can end unless both run at the same time
    ++present;
    while (present != 2) std::this_thread::yield();
  });
  EXPECT_EQ(present, 2);
}

TEST(PoolThreads, SlowPartsAreWaitedFor) {
  const auto pool = make_thread_pool(2);
  std::atomic<int> done{0};
  parallel_for(*pool, 4, [&](int part, int) {
    std::this_thread::sleep_for(part % 2 != 0 ? 5ms : 0ms);
    ++done;
  });
  EXPECT_EQ(done, 4);
}

TEST(PoolThreads, UsesNoCpuWhenIdle) {
  const auto pool = make_thread_pool(4);
  const std::vector<clockid_t> clocks = clocks_of(*pool);
  for (const bool in_flight : {false, true}) {
    if (in_flight) pool->begin_run();  // a run that makes no parallel step for long must not keep workers spinning
    parallel_for(*pool, 8, [](int, int) {});
    std::this_thread::sleep_for(20ms);
    const double before = cpu_ms(clocks);
    std::this_thread::sleep_for(300ms);
    EXPECT_LT(cpu_ms(clocks) - before, 10.0) << "in flight: " << in_flight;
    if (in_flight) pool->end_run();
  }
}

TEST(PoolThreads, LeavesTheCallersSignalMask) {
  sigset_t before;
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  const auto pool = make_thread_pool(3);
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int s = 1; s < 32; ++s) EXPECT_EQ(sigismember(&before, s), sigismember(&after, s));
}

}  // namespace
}  // namespace lathe
