// The kinds of steps: compiled loops, plain kernels, copies; oneDNN's stand in contraction.h.
#pragma once

#include <memory>
#include <vector>

#include "jit/jit.h"
#include "ops/ir/kernel_context.h"
#include "runtime/plan.h"

namespace lathe::runtime {

/// A compiled loop kernel over a range, split among threads where the work is worth it.
class LoopStep final : public Step {
 public:
  explicit LoopStep(loops::Kernel k) : kernel(std::move(k)) {}
  /// Decides the split once the code is there.
  void finish(std::shared_ptr<const jit::CompiledKernel> compiled, int threads);
  /// Runs by the kernel's definition instead, where the JIT is switched off.
  void finish_plain();
  std::int32_t run(void* const* buffers, StepContext& context) const noexcept override;

  loops::Kernel kernel;

 private:
  std::int32_t evaluate(const loops::KernelArgs& args, StepContext& context) const noexcept;

  std::shared_ptr<const jit::CompiledKernel> code_;  ///< null: by the definition
  std::vector<std::int64_t> params_;
  std::int64_t extent_ = 1;
  std::int64_t part_size_ = 1;
  int parts_ = 1;
};

/// A plain C++ kernel. The node is copied, so that the step does not depend on the program. Values that are not
/// row-major pass through row-major copies.
class PlainStep final : public Step {
 public:
  PlainStep(const ops::Graph& graph, ops::NodeId id);
  std::int32_t run(void* const* buffers, StepContext& context) const noexcept override;

 private:
  std::int32_t run_kernel(void* const* buffers, StepContext& context, ops::Workers& workers,
                          ops::Scratch& scratch) const noexcept;

  ops::Node node_;
  std::vector<ops::Fact> in_facts_;
  std::vector<ops::Fact> out_facts_;
  std::vector<const ops::Fact*> in_pointers_;  // null where omitted
  std::vector<const ops::Fact*> out_pointers_;
};

/// Copies bytes: an output that is also an input, a constant or another output.
class CopyStep final : public Step {
 public:
  explicit CopyStep(std::size_t bytes) : bytes_(bytes) {}
  std::int32_t run(void* const* buffers, StepContext& context) const noexcept override;

 private:
  std::size_t bytes_;
};

}  // namespace lathe::runtime
