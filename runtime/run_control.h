// RunControl: when a run must end early; Turn: waiting for one another no longer than that.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace lathe::runtime {

struct RunControl {
  std::stop_token stop;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  [[nodiscard]] bool active() const {
    return stop.stop_possible() || deadline != std::chrono::steady_clock::time_point::max();
  }
  /// Failure (cancelled, deadline_exceeded) where the run must end.
  void check() const;
};

/// What one thread does at a time while others wait. Thread-safe.
class Turn {
 public:
  /// Held from construction to destruction. Failure where `control` ends the wait for it.
  class Hold {
   public:
    Hold(Turn& turn, const RunControl& control);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Turn& turn_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable_any given_back_;
  bool taken_ = false;
};

}  // namespace lathe::runtime
