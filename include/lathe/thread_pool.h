// ThreadPool: who runs the parts of a parallel step. Implement it to let Lathe work on the application's own threads.
#pragma once

namespace lathe {

/// Runs numbered parts of one piece of work. Lathe's own pool implements it; an application that has worker threads
/// already passes its own in EngineOptions, and Lathe then creates no thread.
///
/// Every function may be called from any number of threads at once, and `parallel` also from inside a task. The pool
/// must outlive every engine that uses it. New shapes are compiled in tasks too, which takes up to 1 MiB of stack.
class ThreadPool {
 public:
  /// One part of the work. Never throws. `worker` lies in [0, threads()); two tasks of the same `parallel` call that
  /// run at the same time have different workers.
  using Task = void (*)(void* context, int part, int worker);

  virtual ~ThreadPool() = default;

  /// The most tasks of one `parallel` call that run at the same time, the caller's thread included; at least 1, and
  /// constant over the pool's life.
  [[nodiscard]] virtual int threads() const noexcept = 0;

  /// Calls `task(context, part, worker)` once for each part in [0, parts), in any order on any threads, and returns
  /// when all are done; what they wrote is then visible to the caller. Running every part on the calling thread as
  /// worker 0 is always correct, and is what a pool that is busy should do: a task never waits for another one.
  virtual void parallel(int parts, Task task, void* context) noexcept = 0;

  /// Hints: a run of a model begins, or ends, on the calling thread. Between the two more parallel steps follow
  /// shortly, so workers may spin for a moment instead of sleeping. Calls come in pairs; runs on several threads
  /// overlap.
  virtual void begin_run() noexcept {}
  virtual void end_run() noexcept {}

 protected:
  ThreadPool() = default;
  ThreadPool(const ThreadPool&) = default;
  ThreadPool& operator=(const ThreadPool&) = default;
};

}  // namespace lathe
