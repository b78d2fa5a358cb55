// Binding and running a plan.
#include "runtime/plan.h"

#include <algorithm>

namespace lathe::runtime {

void PlanInstance::bind(std::byte* arena) {
  if (bound_ && arena == arena_) return;
  arena_ = arena;
  bound_ = true;
  pointers_.clear();
  patches_.clear();
  for (const auto& step : plan_->steps) {
    for (const Slot& slot : step->slots) {
      switch (slot.where) {
        case Slot::Where::arena:
          pointers_.push_back(arena + slot.offset);
          break;
        case Slot::Where::constant: {
          Tensor t = plan_->constants[static_cast<std::size_t>(slot.index)];
          pointers_.push_back(t.mutable_data());
          break;
        }
        case Slot::Where::input:
        case Slot::Where::output:
          patches_.push_back({pointers_.size(), slot});
          pointers_.push_back(nullptr);
          break;
      }
    }
  }
}

void PlanInstance::bind_io(std::span<void* const> inputs, std::span<void* const> outputs) {
  for (const Patch& p : patches_) {
    const auto index = static_cast<std::size_t>(p.slot.index);
    pointers_[p.pointer] =
        p.slot.where == Slot::Where::input ? inputs[index] : static_cast<std::byte*>(outputs[index]) + p.slot.offset;
  }
}

namespace {

/// Read as a float it is a NaN, as an index out of range: what strays here shows in the results too.
constexpr std::byte kCanary{0xFF};

}  // namespace

void PlanInstance::plant_canaries(int step) const {
  for (const WatchedBuffer& b : plan_->watched) {
    if (b.first != step) continue;
    std::fill_n(arena_ + b.offset - kCanaryBytes, kCanaryBytes, kCanary);
    std::fill_n(arena_ + b.offset + b.bytes, kCanaryBytes, kCanary);
  }
}

bool PlanInstance::canaries_live(int step) const {
  const auto lives = [](const std::byte* from) {
    return std::all_of(from, from + kCanaryBytes, [](std::byte b) { return b == kCanary; });
  };
  return std::all_of(plan_->watched.begin(), plan_->watched.end(), [&](const WatchedBuffer& b) {
    return step < b.first || b.last < step ||
           (lives(arena_ + b.offset - kCanaryBytes) && lives(arena_ + b.offset + b.bytes));
  });
}

int PlanInstance::run(StepContext& context, Checkpoint checkpoint, void* checkpoint_context,
                      std::int32_t& status) const {
  void* const* pointers = pointers_.data();
  const std::size_t count = plan_->steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = *plan_->steps[i];
    if (checkpoint && !checkpoint(checkpoint_context)) {
      status = kStepFailed;
      return static_cast<int>(i);
    }
    if (!plan_->watched.empty()) plant_canaries(static_cast<int>(i));
    status = step.run(pointers, context);
    if (status == 0 && !canaries_live(static_cast<int>(i))) status = kStepOverran;
    if (status != 0) return static_cast<int>(i);
    pointers += step.slots.size();
  }
  return -1;
}

}  // namespace lathe::runtime
