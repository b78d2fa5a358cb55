// Lathe's own thread pool, and the helpers through which the runtime uses any pool.
#pragma once

#include <lathe/thread_pool.h>

#include <memory>
#include <type_traits>

namespace lathe {

/// A pool of `threads` threads, the caller's own included: 1 creates none. Workers sleep unless a run is in flight.
/// One `parallel` call at a time has the workers; what is called meanwhile runs on its caller's thread alone.
/// Failure (out_of_memory) where the system refuses a thread.
[[nodiscard]] std::unique_ptr<ThreadPool> make_thread_pool(int threads);

/// A run in flight: while one lives, the pool's workers may spin between parallel steps.
class RunScope {
 public:
  explicit RunScope(ThreadPool& pool) noexcept : pool_(pool) { pool_.begin_run(); }
  ~RunScope() { pool_.end_run(); }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  ThreadPool& pool_;
};

/// `body(part, worker)` for each part; a single part stays on the calling thread. Allocates nothing.
template <class Body>
void parallel_for(ThreadPool& pool, int parts, Body&& body) noexcept {
  if (parts == 1) {
    body(0, 0);
    return;
  }
  using Plain = std::remove_reference_t<Body>;
  pool.parallel(
      parts, [](void* context, int part, int worker) { (*static_cast<Plain*>(context))(part, worker); }, &body);
}

}  // namespace lathe
