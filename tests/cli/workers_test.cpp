// Worker processes: every job gets its answer, and one that crashes, leaves or hangs costs only itself.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <thread>

#include "cli/workers.h"

namespace lathe::cli {
namespace {

std::map<std::size_t, JobResult> results_of(std::size_t count, int processes,
                                            const std::function<std::string(std::size_t)>& work) {
  std::map<std::size_t, JobResult> results;
  run_jobs(count, processes, std::chrono::seconds(1), work,
           [&](const JobResult& r) { EXPECT_TRUE(results.emplace(r.job, r).second) << "job " << r.job << " twice"; });
  EXPECT_EQ(results.size(), count);
  return results;
}

TEST(Workers, AnswersOfAnySize) {
  for (int processes : {1, 3, 64}) {
    const auto results = results_of(20, processes, [](std::size_t i) { return std::string(i * 100'000, 'x'); });
    for (const auto& [job, result] : results) {
      EXPECT_EQ(result.answer.size(), job * 100'000);
      EXPECT_EQ(result.death, "");
    }
  }
}

TEST(Workers, DeathsAreNamedAndCostOneJob) {
  const auto results = results_of(12, 2, [](std::size_t i) -> std::string {
    if (i == 3) ::kill(::getpid(), SIGKILL);
    if (i == 5) ::_exit(7);
    if (i == 8) std::this_thread::sleep_for(std::chrono::seconds(30));
    return "fine";
  });
  for (const auto& [job, result] : results) {
    if (job == 3) {
      EXPECT_EQ(result.death, "crashed: Killed");
    } else if (job == 5) {
      EXPECT_EQ(result.death, "ended the process with status 7");
    } else if (job == 8) {
      EXPECT_EQ(result.death, "no answer in 1 s");
    } else {
      EXPECT_EQ(result.answer, "fine") << job << ": " << result.death;
    }
  }
}

}  // namespace
}  // namespace lathe::cli
