// Worker processes that run numbered jobs, so that a job that crashes or hangs costs only itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace lathe::cli {

/// What became of a job: its answer, or what ended its process.
struct JobResult {
  std::size_t job = 0;
  std::string answer;
  std::string death;  ///< "crashed: Segmentation fault", "no answer in 60 s"; empty where it answered
};

/// Runs `work(job)` for each job in [0, count) in up to `processes` forked processes, and `done` in this one, in the
/// order of the answers; `meanwhile` again and again while it waits. The calling process must have no other thread.
void run_jobs(
    std::size_t count, int processes, std::chrono::seconds limit, const std::function<std::string(std::size_t)>& work,
    const std::function<void(const JobResult&)>& done, const std::function<void()>& meanwhile = [] {});

}  // namespace lathe::cli
