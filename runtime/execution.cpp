// Running modules: segments by plan, single nodes by themselves.
#include "runtime/execution.h"

#include <algorithm>
#include <cstring>

#include "ops/ir/evaluate.h"
#include "ops/ir/scratch.h"
#include "runtime/thread_pool.h"

namespace lathe::runtime {
namespace {

/// Instances that a session keeps per segment; more shapes than this alternate at the cost of a lookup.
constexpr std::size_t kInstances = 8;

bool check_between_steps(void* raw) {
  const auto* control = static_cast<const RunControl*>(raw);
  return !control->stop.stop_requested() && std::chrono::steady_clock::now() < control->deadline;
}

std::vector<ops::Fact> facts_of(std::span<const Value> values) {
  std::vector<ops::Fact> facts;
  for (const Value& v : values) facts.push_back(ops::fact_of(v));
  return facts;
}

}  // namespace

Tensor Execution::allocate(DType dtype, const Shape& shape) {
  if (dtype == DType::string) return {dtype, shape};
  const std::shared_ptr<void> memory = core_->memory().allocate(Use::values, Tensor::byte_size(dtype, shape));
  return Tensor::borrow(dtype, shape, memory.get(), memory);
}

void Execution::reserve(const Plan& plan) {
  const ops::OnBehalfOf name(plan.largest);
  if (plan.arena_bytes > arena_bytes_ || (plan.arena_bytes < arena_bytes_ && core_->memory().tight())) {
    arena_.reset();
    arena_bytes_ = 0;
    arena_ = core_->memory().allocate(Use::arenas, plan.arena_bytes);
    arena_bytes_ = plan.arena_bytes;
  }
  if (plan.scratch_bytes > scratch_bytes_ || scratch_.empty()) reserve_scratch(plan.scratch_bytes);
}

void Execution::reserve_scratch(std::size_t bytes) {
  constexpr std::size_t kAlignment = ops::Scratch::kAlignment;
  const auto workers = static_cast<std::size_t>(core_->threads());
  const std::size_t each = (std::max(bytes, scratch_bytes_) + kAlignment - 1) / kAlignment * kAlignment;
  scratch_memory_.reset();
  scratch_bytes_ = 0;
  scratch_.clear();
  scratch_memory_ = core_->memory().allocate(Use::arenas, each * workers);
  scratch_bytes_ = each;
  scratch_.resize(workers);
  for (std::size_t w = 0; w < workers; ++w) scratch_[w] = static_cast<std::byte*>(scratch_memory_.get()) + w * each;
}

void Execution::set_real_time(bool real_time) {
  if (real_time != real_time_) instances_.clear();
  real_time_ = real_time;
}

PlanInstance* Execution::prepare(Segment& segment, std::span<const Value> inputs, const RunControl& control) {
  std::vector<Cached>& known = instances_[segment.id()];
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (!segment.same_key(inputs, known[i].made_for)) continue;
    if (i > 0)
      std::rotate(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(i),
                  known.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    reserve(known.front().instance->plan());
    known.front().instance->bind(static_cast<std::byte*>(arena_.get()));
    return known.front().instance.get();
  }
  std::shared_ptr<const Plan> plan = segment.plan(inputs, *core_, control, real_time_);
  if (!plan) return nullptr;
  Cached cached;
  for (const Value& v : inputs) {
    const bool small = v.tensor().size() <= ops::kKnownElements;
    cached.made_for.push_back({v.dtype(), v.shape(), small ? v.tensor().clone() : Tensor()});
  }
  cached.instance = std::make_unique<PlanInstance>(std::move(plan));
  reserve(cached.instance->plan());
  cached.instance->bind(static_cast<std::byte*>(arena_.get()));
  if (known.size() >= kInstances) known.pop_back();
  known.insert(known.begin(), std::move(cached));
  return known.front().instance.get();
}

void Execution::run_instance(PlanInstance& instance, std::span<void* const> inputs, std::span<void* const> outputs,
                             const RunControl& control) {
  const ops::MemoryScope memory(core_->memory().source(Use::values));
  instance.bind_io(inputs, outputs);
  if (scratch_wanted_ > scratch_bytes_) {
    static const std::string kWhose = "scratch memory of the model's kernels";
    const ops::OnBehalfOf name(kWhose);
    reserve_scratch(scratch_wanted_);
  }
  StepContext context;
  context.pool = core_->threads() > 1 ? &core_->pool() : nullptr;
  context.scratch = scratch_;
  context.scratch_bytes = scratch_bytes_;
  std::int32_t status = 0;
  RunControl copy = control;
  const int failed = instance.run(context, control.active() ? check_between_steps : nullptr, &copy, status);
  scratch_wanted_ = std::max(scratch_wanted_, context.scratch_wanted);
  overflowed_ = context.overflowed;
  if (failed < 0) return;
  control.check();
  const Step& step = *instance.plan().steps[static_cast<std::size_t>(failed)];
  if (status == loops::kIndexError) {
    fail(ErrorCode::out_of_range, "{}: index {} at element {} is out of range for an extent of {}", step.blame(),
         context.slot.value, context.slot.position, context.slot.extent);
  }
  if (status == kStepFailed) throw Failure(context.error);
  if (status == kStepOverran) fail(ErrorCode::internal, "{}: its kernel wrote beside its buffers", step.blame());
  fail(ErrorCode::internal, "{}: its kernel returned {}", step.blame(), status);
}

std::vector<Value> Execution::run_segment(Segment& segment, std::span<const Value> inputs, const RunControl& control,
                                          std::span<const Tensor> bound) {
  PlanInstance* instance = nullptr;
  const bool tensors = std::all_of(inputs.begin(), inputs.end(),
                                   [](const Value& v) { return v.is_tensor() && v.dtype() != DType::string; });
  if (tensors) instance = prepare(segment, inputs, control);
  if (visits_) visits_->inputs.insert_or_assign(&segment, std::vector<Value>(inputs.begin(), inputs.end()));
  if (!instance) return run_eager(segment.graph(), inputs, control);
  std::vector<void*> in;
  for (const Value& v : inputs) {
    Tensor t = v.tensor();
    in.push_back(t.mutable_data());
  }
  std::vector<Value> results;
  std::vector<void*> out;
  const std::vector<ops::Fact>& facts = instance->plan().outputs;
  for (std::size_t o = 0; o < facts.size(); ++o) {
    const bool fits = o < bound.size() && bound[o].defined() && bound[o].dtype() == facts[o].dtype &&
                      bound[o].shape() == facts[o].shape;
    static const std::string kUnwritten = "an output without elements";
    const int writer = instance->plan().writers[o];
    const ops::OnBehalfOf name(writer < 0 ? kUnwritten
                                          : instance->plan().steps[static_cast<std::size_t>(writer)]->record.name);
    Tensor t = fits ? bound[o] : allocate(facts[o].dtype, facts[o].shape);
    out.push_back(t.mutable_data());
    results.emplace_back(std::move(t));
  }
  run_instance(*instance, in, out, control);
  return results;
}

std::vector<Value> Execution::run_eager(const ops::Graph& graph, std::span<const Value> inputs,
                                        const RunControl& control) {
  std::vector<Value> values(graph.value_count());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[static_cast<std::size_t>(graph.inputs[i])] = inputs[i];
  const auto value_of = [&](ops::ValueId v) -> Value {
    if (v == ops::kNone) return {};
    return graph.value(v).is_constant() ? Value(graph.value(v).constant) : values[static_cast<std::size_t>(v)];
  };
  for (ops::NodeId id : graph.order()) {
    control.check();
    const ops::Node& node = graph.node(id);
    std::vector<Value> ins;
    for (ops::ValueId v : node.inputs) ins.push_back(value_of(v));
    std::vector<Value> outs = evaluate(node, ins);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] != ops::kNone) values[static_cast<std::size_t>(node.outputs[o])] = std::move(outs[o]);
    }
  }
  std::vector<Value> results;
  for (ops::ValueId v : graph.outputs) results.push_back(value_of(v));
  return results;
}

std::vector<Value> Execution::run_part(const Part& part, const Module& module, std::vector<Value>& values,
                                       const RunControl& control, std::span<const Tensor> bound) {
  const ops::Graph& graph = module.graph();
  std::vector<Value> inputs;
  inputs.reserve(part.inputs.size());
  for (ops::ValueId v : part.inputs) {
    if (v == ops::kNone) {
      inputs.emplace_back();
    } else {
      inputs.push_back(graph.value(v).is_constant() ? Value(graph.value(v).constant)
                                                    : values[static_cast<std::size_t>(v)]);
    }
  }
  if (part.segment) {
    std::vector<Tensor> places(part.outputs.size());
    for (std::size_t o = 0; o < part.outputs.size() && !bound.empty(); ++o) {
      const auto at = std::find(graph.outputs.begin(), graph.outputs.end(), part.outputs[o]);
      if (at != graph.outputs.end()) places[o] = bound[static_cast<std::size_t>(at - graph.outputs.begin())];
    }
    return run_segment(*part.segment, inputs, control, places);
  }
  control.check();
  const ops::Node& node = graph.node(part.node);
  if (node.op->region == ops::Region::none) return evaluate(node, inputs);
  ops::check_dtypes(node, inputs);
  if (!visits_) return run_region(part, node, inputs, control);
  visits_->alone.try_emplace(&node);  // it is entered, even if it does not come to an end
  std::vector<Value> outputs = run_region(part, node, inputs, control);
  visits_->alone[&node].outputs = facts_of(outputs);
  return outputs;
}

std::vector<Value> Execution::run_region(const Part& part, const ops::Node& node, std::span<const Value> inputs,
                                         const RunControl& control) {
  switch (node.op->region) {
    case ops::Region::if_:
      return run_if(part, node, inputs, control);
    case ops::Region::loop:
      return run_loop(part, node, inputs, control);
    case ops::Region::scan:
      return run_scan(part, node, inputs, control);
    case ops::Region::sequence_map:
      return run_sequence_map(part, node, inputs, control);
    case ops::Region::none:
      break;
  }
  fail(ErrorCode::internal, "{} has no bodies", ops::describe(node));
}

std::vector<Value> Execution::evaluate(const ops::Node& node, std::span<const Value> inputs) {
  if (!visits_) return ops::evaluate_node(node, inputs, core_->loop_runner());
  Visits::Alone visit;
  std::vector<Value> outputs =
      ops::evaluate_node(node, inputs, [&](const loops::Kernel& kernel, const loops::KernelArgs& args) {
        ++(core_->compiles(kernel) ? visit.compiled : visit.interpreted);
        visit.reduces = visit.reduces || kernel.inner > 0;
        return core_->run_loop(kernel, args);
      });
  visit.outputs = facts_of(outputs);
  visits_->alone.insert_or_assign(&node, std::move(visit));
  return outputs;
}

std::vector<Value> Execution::run(const Module& module, std::span<const Value> inputs, const RunControl& control,
                                  std::span<const Tensor> bound) {
  const ops::Graph& graph = module.graph();
  std::vector<Value> values(graph.value_count());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[static_cast<std::size_t>(graph.inputs[i])] = inputs[i];
  const RunScope scope(core_->pool());
  const ops::MemoryScope memory(core_->memory().source(Use::values));
  for (std::size_t p = 0; p < module.parts().size(); ++p) {
    const Part& part = module.parts()[p];
    std::vector<Value> outs = run_part(part, module, values, control, bound);
    for (std::size_t o = 0; o < part.outputs.size(); ++o) {
      if (part.outputs[o] != ops::kNone) values[static_cast<std::size_t>(part.outputs[o])] = std::move(outs[o]);
    }
    for (ops::ValueId v : part.inputs) {
      if (v != ops::kNone && module.last_use()[static_cast<std::size_t>(v)] == static_cast<int>(p))
        values[static_cast<std::size_t>(v)] = {};
    }
  }
  std::vector<Value> results;
  results.reserve(graph.outputs.size());
  for (std::size_t o = 0; o < graph.outputs.size(); ++o) {
    const ops::ValueId v = graph.outputs[o];
    Value result = graph.value(v).is_constant() ? Value(graph.value(v).constant) : values[static_cast<std::size_t>(v)];
    if (o < bound.size() && bound[o].defined() && result.is_tensor() && result.tensor().data() != bound[o].data()) {
      Tensor place = bound[o];
      if (place.dtype() != result.dtype() || !(place.shape() == result.shape())) {
        fail(ErrorCode::invalid_argument, "output '{}' is {}[{}], but it is bound to memory for {}[{}]",
             shown(graph.value(v).name), result.dtype(), result.shape(), place.dtype(), place.shape());
      }
      std::memcpy(place.mutable_data(), result.tensor().data(), place.bytes());
      result = place;
    }
    results.push_back(std::move(result));
  }
  return results;
}

void Execution::trim() {
  instances_.clear();
  arena_.reset();
  arena_bytes_ = 0;
  scratch_memory_.reset();
  scratch_bytes_ = 0;
  scratch_wanted_ = 0;
  scratch_.clear();
}

}  // namespace lathe::runtime
