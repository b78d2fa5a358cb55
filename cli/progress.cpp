// Progress on a terminal.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace lathe::cli {

using std::chrono::milliseconds;

Progress::Progress(std::string what, bool own_thread)
    : terminal_(::isatty(STDERR_FILENO) != 0), what_(std::move(what)) {
  if (!terminal_ || !own_thread) return;
  thread_ = std::jthread([this](const std::stop_token& stop) {
    for (milliseconds pause(1000);; pause = milliseconds(200)) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, stop, pause, [] { return false; });
      }
      if (stop.stop_requested()) return;
      show();
    }
  });
}

Progress::~Progress() {
  thread_ = {};  // asked to stop, and joined
  clear();
}

void Progress::say(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void Progress::print(std::string_view text) {
  const std::lock_guard lock(mutex_);
  clear();
  fmt::print("{}", text);
  std::fflush(stdout);
}

void Progress::show() {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  if (!terminal_ || passed.count() < 1) return;
  fmt::print(stderr, "\r{}  {:.0f} s\033[K", what_, passed.count());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() const {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace lathe::cli
