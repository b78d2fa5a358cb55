// Progress: on a terminal, says what is going on once it takes more than a second.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace lathe::cli {

/// From construction to destruction; prints to stderr, only where that is a terminal, and clears its line at the end.
class Progress {
 public:
  explicit Progress(std::string what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Replaces the text shown.
  void say(std::string what);
  /// Prints to stdout, with the progress out of the way.
  void print(std::string_view text);

 private:
  void show(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string what_;
  std::jthread thread_;
};

}  // namespace lathe::cli
