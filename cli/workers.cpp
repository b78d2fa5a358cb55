// Worker processes: each takes a job's number from one pipe and writes the length and bytes of its answer to another.
#include "cli/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;

bool read_all(int fd, void* data, std::size_t size) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool write_all(int fd, const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

[[noreturn]] void serve(int jobs, int answers, const std::function<std::string(std::size_t)>& work) {
  std::size_t job = 0;
  while (read_all(jobs, &job, sizeof job)) {
    const std::string answer = work(job);
    const std::uint64_t size = answer.size();
    if (!write_all(answers, &size, sizeof size) || !write_all(answers, answer.data(), answer.size())) break;
  }
  ::_exit(0);
}

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { end(); }

  void start(const std::vector<std::unique_ptr<Worker>>& all, const std::function<std::string(std::size_t)>& work) {
    int jobs[2], answers[2];
    if (::pipe(jobs) != 0 || ::pipe(answers) != 0)
      throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    std::fflush(nullptr);  // else the child would print it again
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error(fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (pid_ == 0) {
      for (const auto& other : all) other->close_pipes();  // a worker ends when its parent closes its pipe
      ::close(jobs[1]);
      ::close(answers[0]);
      serve(jobs[0], answers[1], work);
    }
    ::close(jobs[0]);
    ::close(answers[1]);
    jobs_ = jobs[1];
    answers_ = answers[0];
  }
  [[nodiscard]] bool running() const { return pid_ > 0; }
  [[nodiscard]] int answers() const { return answers_; }

  void give(std::size_t job, std::chrono::seconds limit) {
    job_ = job;
    deadline_ = Clock::now() + limit;
    (void)write_all(jobs_, &job, sizeof job);  // where the worker is gone, its answer is missing: seen then
  }
  std::optional<std::size_t> job_;
  Clock::time_point deadline_;

  /// The answer that is waiting, or what the process died of.
  JobResult take() {
    JobResult result;
    result.job = *job_;
    job_.reset();
    std::uint64_t size = 0;
    bool whole = read_all(answers_, &size, sizeof size);
    if (whole) {
      result.answer.resize(size);
      whole = read_all(answers_, result.answer.data(), size);
    }
    if (!whole) result.death = death();
    return result;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    end();
  }
  void end() {
    if (pid_ <= 0) return;
    close_pipes();
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  std::string death() {
    close_pipes();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? fmt::format("crashed: {}", ::strsignal(WTERMSIG(status)))
                               : fmt::format("ended the process with status {}", WEXITSTATUS(status));
  }
  void close_pipes() {
    if (jobs_ >= 0) ::close(jobs_);
    if (answers_ >= 0) ::close(answers_);
    jobs_ = answers_ = -1;
  }

  pid_t pid_ = -1;
  int jobs_ = -1;
  int answers_ = -1;
};

/// Until the first deadline, though no longer than people like to wait for news.
int milliseconds_to_wait(const std::vector<std::unique_ptr<Worker>>& workers) {
  Clock::time_point first = Clock::time_point::max();
  for (const auto& w : workers) {
    if (w->job_) first = std::min(first, w->deadline_);
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(first - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 200));
}

}  // namespace

void run_jobs(std::size_t count, int processes, std::chrono::seconds limit,
              const std::function<std::string(std::size_t)>& work, const std::function<void(const JobResult&)>& done,
              const std::function<void()>& meanwhile) {
  ::signal(SIGPIPE, SIG_IGN);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < processes; ++i) workers.push_back(std::make_unique<Worker>());
  std::size_t next = 0, finished = 0;
  while (finished < count) {
    std::vector<pollfd> waiting;
    std::vector<Worker*> owners;
    for (const auto& w : workers) {
      if (!w->job_ && next < count) {
        if (!w->running()) w->start(workers, work);
        w->give(next++, limit);
      }
      if (w->job_) {
        waiting.push_back({w->answers(), POLLIN, 0});
        owners.push_back(w.get());
      }
    }
    ::poll(waiting.data(), waiting.size(), milliseconds_to_wait(workers));
    meanwhile();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      Worker& worker = *owners[i];
      if (waiting[i].revents != 0) {
        done(worker.take());
        ++finished;
      } else if (Clock::now() >= worker.deadline_) {
        JobResult late{*worker.job_, {}, fmt::format("no answer in {} s", limit.count())};
        worker.job_.reset();
        worker.kill();
        done(late);
        ++finished;
      }
    }
  }
}

}  // namespace lathe::cli
