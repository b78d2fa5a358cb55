// Running loops, plain kernels and copies.
#include "runtime/steps.h"

#include <algorithm>
#include <cstring>

#include "ops/ir/kernel_context.h"
#include "ops/ir/memory.h"
#include "runtime/thread_pool.h"

namespace lathe::runtime {
namespace {

/// Below this many instructions a second thread costs more than it brings.
constexpr double kWorthAThread = 60'000;

double work_of(const loops::Kernel& kernel) {
  double points = 1;
  for (int d = 0; d < kernel.rank(); ++d) points *= static_cast<double>(kernel.extents[static_cast<std::size_t>(d)]);
  return points * static_cast<double>(kernel.insts.size() + 2 * kernel.loads.size());
}

/// Copies between a fact's memory order and row-major, element by element.
void reorder(const ops::Fact& fact, const std::byte* from, std::byte* to, bool to_rows) {
  const auto size = static_cast<std::size_t>(fact.dtype.bits() / 8);
  const Shape strides = ops::strides_of(fact);
  const std::int64_t count = fact.shape.elements();
  Shape at = Shape::filled(fact.rank(), 0);
  std::int64_t place = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto rows = static_cast<std::size_t>(i) * size;
    const auto ordered = static_cast<std::size_t>(place) * size;
    std::memcpy(to + (to_rows ? rows : ordered), from + (to_rows ? ordered : rows), size);
    for (int d = fact.rank() - 1; d >= 0; --d) {
      place += strides[d];
      if (++at[d] < fact.shape[d]) break;
      place -= strides[d] * fact.shape[d];
      at[d] = 0;
    }
  }
}

}  // namespace

void LoopStep::finish(std::shared_ptr<const jit::CompiledKernel> compiled, int threads) {
  code_ = std::move(compiled);
  params_ = loops::pack_params(kernel);
  extent_ = kernel.outer > 0 ? kernel.extents[0] : 1;
  record.scratch_bytes = static_cast<std::size_t>(code_->scratch_bytes(kernel));
  parts_ = 1;
  part_size_ = extent_;
  if (threads > 1 && kernel.outer > 0 && work_of(kernel) > kWorthAThread) {
    const std::int64_t grain = std::max<std::int64_t>(1, code_->grain);
    const std::int64_t wanted = (extent_ + threads - 1) / threads;
    part_size_ = (wanted + grain - 1) / grain * grain;
    parts_ = static_cast<int>((extent_ + part_size_ - 1) / part_size_);
  }
}

void LoopStep::finish_plain() {
  params_ = loops::pack_params(kernel);
  extent_ = kernel.outer > 0 ? kernel.extents[0] : 1;
  record.backend = "plain";
  record.kernel += ", evaluated element by element";
  record.allocates = true;
  record.why_not_real_time = "is not compiled: the backend 'jit' is switched off";
}

std::int32_t LoopStep::evaluate(const loops::KernelArgs& args, StepContext& context) const noexcept {
  try {
    return loops::evaluate(kernel, args);
  } catch (const std::exception& error) {
    context.error = {ErrorCode::out_of_memory, record.name + ": " + error.what()};
    return kStepFailed;
  }
}

std::int32_t LoopStep::run(void* const* buffers, StepContext& context) const noexcept {
  if (parts_ <= 1 || !context.pool) {
    loops::KernelArgs args{buffers, params_.data(), 0, extent_, context.scratch.front(), &context.slot};
    return code_ ? code_->fn(&args) : evaluate(args, context);
  }
  std::atomic<std::int32_t> first_failure{0};
  parallel_for(*context.pool, parts_, [&](int index, int worker) {
    loops::ErrorSlot slot;
    const std::int64_t begin = index * part_size_;
    const std::int64_t end = std::min(begin + part_size_, extent_);
    const loops::KernelArgs args{buffers, params_.data(), begin, end, context.scratch[static_cast<std::size_t>(worker)],
                                 &slot};
    const std::int32_t status = code_->fn(&args);
    std::int32_t expected = 0;
    if (status != 0 && first_failure.compare_exchange_strong(expected, status)) context.slot = slot;
  });
  return first_failure.load();
}

PlainStep::PlainStep(const ops::Graph& graph, ops::NodeId id) {
  const ops::Node& n = graph.node(id);
  node_.op = n.op;
  node_.name = n.name;
  node_.inputs = n.inputs;
  node_.outputs = n.outputs;
  node_.attributes = n.attributes;
  for (ops::ValueId v : n.inputs) in_facts_.push_back(v == ops::kNone ? ops::Fact() : *graph.value(v).fact);
  for (ops::ValueId v : n.outputs) out_facts_.push_back(v == ops::kNone ? ops::Fact() : *graph.value(v).fact);
  const auto pointers = [](const std::vector<ops::Fact>& facts, const std::vector<ops::ValueId>& values) {
    std::vector<const ops::Fact*> result;
    for (std::size_t i = 0; i < facts.size(); ++i) result.push_back(values[i] == ops::kNone ? nullptr : &facts[i]);
    return result;
  };
  in_pointers_ = pointers(in_facts_, n.inputs);
  out_pointers_ = pointers(out_facts_, n.outputs);
}

std::int32_t PlainStep::run(void* const* buffers, StepContext& context) const noexcept {
  const ops::OnBehalfOf name(node_);
  ops::Workers workers;
  workers.pool = context.pool;
  workers.blocks = context.scratch;
  workers.block_bytes = context.scratch_bytes;
  ops::Scratch scratch = workers.scratch(0);
  const std::int32_t status = run_kernel(buffers, context, workers, scratch);
  workers.note(scratch);
  if (workers.wanted > context.scratch_wanted) context.scratch_wanted = workers.wanted;
  if (workers.wanted > context.scratch_bytes) context.overflowed = this;
  return status;
}

std::int32_t PlainStep::run_kernel(void* const* buffers, StepContext& context, ops::Workers& workers,
                                   ops::Scratch& scratch) const noexcept {
  try {
    const std::pmr::polymorphic_allocator<> allocator(&scratch);
    std::pmr::vector<Value> inputs(node_.inputs.size(), allocator);
    std::pmr::vector<Value> outputs(node_.outputs.size(), allocator);
    std::pmr::vector<std::byte*> places(outputs.size(), nullptr, allocator);
    std::pmr::vector<const Tensor*> values(inputs.size(), nullptr, allocator);
    const ops::OpView view(node_, in_pointers_, values, out_pointers_);
    ops::KernelContext kernel(view, inputs, outputs, workers, scratch);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (node_.inputs[i] == ops::kNone) continue;
      void* memory = *buffers++;
      if (in_facts_[i].layout.row_major) {
        inputs[i] = Tensor::borrow(in_facts_[i].dtype, in_facts_[i].shape, memory);
      } else {
        Tensor rows = kernel.temporary(in_facts_[i].dtype, in_facts_[i].shape);
        reorder(in_facts_[i], static_cast<const std::byte*>(memory), static_cast<std::byte*>(rows.mutable_data()),
                true);
        inputs[i] = std::move(rows);
      }
      values[i] = &inputs[i].tensor();
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (node_.outputs[i] == ops::kNone) continue;
      places[i] = static_cast<std::byte*>(*buffers++);
      outputs[i] = out_facts_[i].layout.row_major ? Tensor::borrow(out_facts_[i].dtype, out_facts_[i].shape, places[i])
                                                  : kernel.temporary(out_facts_[i].dtype, out_facts_[i].shape);
    }
    ops::run_kernel(kernel);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!places[i] || out_facts_[i].layout.row_major) continue;
      reorder(out_facts_[i], static_cast<const std::byte*>(outputs[i].tensor().data()), places[i], false);
    }
    return 0;
  } catch (const Failure& f) {
    context.error = f.error;
  } catch (const std::bad_alloc&) {
    context.error = {ErrorCode::out_of_memory, fmt::format("{}: out of memory", ops::describe(node_))};
  } catch (const std::exception& e) {
    context.error = {ErrorCode::internal, fmt::format("{}: {}", ops::describe(node_), e.what())};
  }
  return kStepFailed;
}

std::int32_t CopyStep::run(void* const* buffers, StepContext&) const noexcept {
  if (bytes_ > 0) std::memmove(buffers[1], buffers[0], bytes_);
  return 0;
}

}  // namespace lathe::runtime
