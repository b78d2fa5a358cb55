// Progress on a terminal.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace lathe::cli {

Progress::Progress(std::string what) : what_(std::move(what)) {
  if (::isatty(STDERR_FILENO)) thread_ = std::jthread([this](const std::stop_token& stop) { show(stop); });
}

Progress::~Progress() = default;  // the thread is asked to stop, and joined

void Progress::say(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void Progress::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) fmt::print(stderr, "\r\033[K");
  fmt::print("{}", text);
  std::fflush(stdout);
}

void Progress::show(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
  if (stop.stop_requested()) return;
  while (!stop.stop_requested()) {
    fmt::print(stderr, "\r{}  {:.0f} s\033[K", what_, std::chrono::duration<double>(Clock::now() - begin).count());
    std::fflush(stderr);
    wake_.wait_for(lock, stop, std::chrono::milliseconds(200), [] { return false; });
  }
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace lathe::cli
