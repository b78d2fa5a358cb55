// Progress: on a terminal, says what is going on once it takes more than a second.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace lathe::cli {

/// From construction to destruction; prints to stderr, only where that is a terminal, and clears its line at the end.
class Progress {
 public:
  /// `own_thread`: it shows itself; else show() is to be called again and again, for processes that fork.
  explicit Progress(std::string what, bool own_thread = true);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Replaces the text shown.
  void say(std::string what);
  /// Prints to stdout, with the progress out of the way.
  void print(std::string_view text);
  /// Brings what is shown up to date.
  void show();

 private:
  void clear() const;

  const bool terminal_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string what_;
  bool shown_ = false;
  std::jthread thread_;
};

/// What `make` returns, with progress shown until it does.
template <class Make>
auto with_progress(std::string what, const Make& make) {
  const Progress progress(std::move(what));
  return make();
}

}  // namespace lathe::cli
