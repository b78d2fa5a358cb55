// Ending runs early, and waiting that can be ended.
#include "runtime/run_control.h"

#include "ops/ir/failure.h"

namespace lathe::runtime {

void RunControl::check() const {
  if (stop.stop_requested()) fail(ErrorCode::cancelled, "the run was cancelled");
  if (deadline != std::chrono::steady_clock::time_point::max() && std::chrono::steady_clock::now() >= deadline) {
    fail(ErrorCode::deadline_exceeded, "the run did not end before its deadline");
  }
}

Turn::Hold::Hold(Turn& turn, const RunControl& control) : turn_(turn) {
  std::unique_lock lock(turn.mutex_);
  const auto free = [&] { return !turn.taken_; };
  while (!free()) {
    control.check();
    if (control.deadline == std::chrono::steady_clock::time_point::max()) {
      turn.given_back_.wait(lock, control.stop, free);
    } else {
      turn.given_back_.wait_until(lock, control.stop, control.deadline, free);
    }
  }
  turn.taken_ = true;
}

Turn::Hold::~Hold() {
  const std::lock_guard lock(turn_.mutex_);
  turn_.taken_ = false;
  turn_.given_back_.notify_all();
}

}  // namespace lathe::runtime
