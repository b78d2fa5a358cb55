// Binding and running a plan.
#include "runtime/plan.h"

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
    pointers_[p.pointer] = p.slot.where == Slot::Where::input ? inputs[index] : outputs[index];
  }
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
    status = step.run(pointers, context);
    if (status != 0) return static_cast<int>(i);
    pointers += step.slots.size();
  }
  return -1;
}

}  // namespace lathe::runtime
