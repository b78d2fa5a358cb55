// Plan: a program bound to one set of shapes, a flat list of steps whose buffers are slots of one arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lathe/thread_pool.h>
#include <lathe/tools.h>

#include "jit/jit.h"
#include "ops/ir/fact.h"
#include "ops/loops/kernel.h"

namespace lathe::runtime {

/// Where a buffer of a step lies.
struct Slot {
  enum class Where : std::uint8_t { arena, input, output, constant };
  Where where = Where::arena;
  std::int32_t index = 0;  ///< which input, output or constant
  std::size_t offset = 0;  ///< bytes, in the arena or in the output
};

class Step;

/// What a running step may use, and where it reports.
struct StepContext {
  ThreadPool* pool = nullptr;        ///< null: run on the calling thread alone
  std::span<void* const> scratch;    ///< one block per worker
  std::size_t scratch_bytes = 0;     ///< of each, at least Plan::scratch_bytes
  std::size_t scratch_wanted = 0;    ///< what plain kernels would have used of it, had it been large enough
  const Step* overflowed = nullptr;  ///< a step for which it was not
  loops::ErrorSlot slot;
  Error error;  ///< set where the step returns kStepFailed
};

inline constexpr std::int32_t kStepFailed = 1000;   ///< the reason is in StepContext::error
inline constexpr std::int32_t kStepOverran = 1001;  ///< it wrote beside its buffers: see Plan::watched

/// One kernel call with everything decided but the pointers. Immutable: any number of threads may run it.
class Step {
 public:
  virtual ~Step() = default;
  /// `buffers` are the resolved `slots`. 0, kIndexError (with StepContext::slot filled) or kStepFailed.
  virtual std::int32_t run(void* const* buffers, StepContext& context) const noexcept = 0;

  std::vector<Slot> slots;
  tools::StepRecord record;
  /// The "Gather 'name'" that an index error of load `i` is blamed on.
  [[nodiscard]] const std::string& blame() const { return record.name; }
};

/// A buffer of the arena with kCanaryBytes before and behind it that no step may touch while it lives.
struct WatchedBuffer {
  std::size_t offset = 0;
  std::size_t bytes = 0;
  int first = 0;  ///< the steps it lives from and to
  int last = 0;
};
inline constexpr std::size_t kCanaryBytes = 64;

/// A plan; shared between sessions, kept alive by those that run it.
struct Plan {
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<Tensor> constants;                  ///< what constant slots point to
  std::vector<std::shared_ptr<const void>> keep;  ///< packed weights and the like
  std::vector<ops::Fact> inputs;
  std::vector<ops::Fact> outputs;
  std::size_t arena_bytes = 0;
  std::size_t scratch_bytes = 0;  ///< per worker
  std::size_t kernels = 0;
  std::size_t charge = 0;              ///< bytes that the cache counts for it
  jit::Spent spent;                    ///< on compiling for it
  std::string largest;                 ///< the step that writes the largest buffer of the arena
  std::vector<WatchedBuffer> watched;  ///< with BuildOptions::canaries; checked after every step
  /// What nothing runs for, each with the number of steps before it.
  std::vector<std::pair<std::size_t, tools::StepRecord>> views;
  std::vector<int> writers;  ///< per output, the last step that writes it; -1 where it is empty
};

/// A plan's steps with pointers resolved against one arena. Owned by a session.
class PlanInstance {
 public:
  explicit PlanInstance(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  [[nodiscard]] const Plan& plan() const { return *plan_; }
  [[nodiscard]] const std::shared_ptr<const Plan>& shared() const { return plan_; }

  /// Resolves arena and constant pointers; again whenever the arena moves.
  void bind(std::byte* arena);
  [[nodiscard]] const std::byte* arena() const { return arena_; }

  /// Points the inputs and outputs at this run's memory.
  void bind_io(std::span<void* const> inputs, std::span<void* const> outputs);

  /// Called between steps; false ends the run.
  using Checkpoint = bool (*)(void* context);

  /// Runs every step. Returns the index of the step that failed, or -1; `status` says how.
  int run(StepContext& context, Checkpoint checkpoint, void* checkpoint_context, std::int32_t& status) const;

 private:
  struct Patch {
    std::size_t pointer;
    Slot slot;
  };
  void plant_canaries(int step) const;
  [[nodiscard]] bool canaries_live(int step) const;

  std::shared_ptr<const Plan> plan_;
  std::byte* arena_ = nullptr;
  bool bound_ = false;
  std::vector<void*> pointers_;  // of all steps, one after the other
  std::vector<Patch> patches_;   // the ones that change from run to run
};

}  // namespace lathe::runtime
