// Session: bound buffers and the run that does nothing but run.
#include <lathe/session.h>

#include <algorithm>
#include <cstring>

#include "runtime/boundary.h"
#include "runtime/engine_impl.h"
#include "runtime/thread_pool.h"

namespace lathe {
namespace runtime {
namespace {

bool is_bound(const Value& value) { return !value.is_tensor() || value.tensor().defined(); }

bool overlaps(const Tensor& a, const Tensor& b) {
  const auto* pa = static_cast<const std::byte*>(a.data());
  const auto* pb = static_cast<const std::byte*>(b.data());
  return pa < pb + b.bytes() && pb < pa + a.bytes();
}

}  // namespace

void SessionImpl::bind_input(std::string_view name, Tensor tensor) {
  const auto index = static_cast<std::size_t>(engine->input_index(name));
  fast_ = nullptr;
  if (tensor.defined()) engine->check_input(index, tensor);
  bound_inputs[index] = std::move(tensor);
}

void SessionImpl::bind_output(std::string_view name, Tensor tensor) {
  const int index = engine->output_index(name);
  if (tensor.dtype() == DType::string) {
    fail(ErrorCode::invalid_argument, "output '{}': strings cannot be bound, their memory grows as they are written",
         shown(name));
  }
  fast_ = nullptr;
  bound_outputs[static_cast<std::size_t>(index)] = std::move(tensor);
}

bool SessionImpl::outputs_overlap(std::span<const Value> inputs) const {
  for (std::size_t o = 0; o < bound_outputs.size(); ++o) {
    const Tensor& out = bound_outputs[o];
    if (!out.defined()) continue;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].is_tensor() || !overlaps(out, inputs[i].tensor())) continue;
      if (out.data() != inputs[i].tensor().data() || out.bytes() != inputs[i].tensor().bytes()) {
        fail(ErrorCode::invalid_argument,
             "output '{}' is bound to memory that overlaps input '{}' in part: they must be the same memory or apart",
             shown(engine->outputs[o].name), shown(engine->inputs[i].name));
      }
      return true;
    }
  }
  for (std::size_t a = 0; a < bound_outputs.size(); ++a) {
    for (std::size_t b = a + 1; b < bound_outputs.size(); ++b) {
      if (bound_outputs[a].defined() && bound_outputs[b].defined() && overlaps(bound_outputs[a], bound_outputs[b])) {
        fail(ErrorCode::invalid_argument, "outputs '{}' and '{}' are bound to memory that overlaps",
             shown(engine->outputs[a].name), shown(engine->outputs[b].name));
      }
    }
  }
  return false;
}

void SessionImpl::make_fast(std::span<const Value> inputs, const RunControl& control) {
  fast_ = nullptr;
  const Module& module = *engine->module;
  if (module.parts().size() != 1 || !module.parts().front().segment || outputs_overlap(inputs)) return;
  const Part& part = module.parts().front();
  const ops::Graph& graph = module.graph();
  std::vector<Value> values;
  std::vector<void*> in;
  for (ops::ValueId v : part.inputs) {
    const auto at =
        static_cast<std::size_t>(std::find(graph.inputs.begin(), graph.inputs.end(), v) - graph.inputs.begin());
    if (at >= inputs.size() || !inputs[at].is_tensor()) return;
    values.push_back(inputs[at]);
    Tensor t = inputs[at].tensor();
    in.push_back(t.mutable_data());
  }
  PlanInstance* instance = execution.prepare(*part.segment, values, control);
  if (!instance || part.outputs.size() != graph.outputs.size()) return;
  std::vector<void*> out;
  for (std::size_t o = 0; o < part.outputs.size(); ++o) {
    const auto at = static_cast<std::size_t>(std::find(graph.outputs.begin(), graph.outputs.end(), part.outputs[o]) -
                                             graph.outputs.begin());
    const ops::Fact& fact = instance->plan().outputs[o];
    engine->check_output(at, fact);
    Tensor place = bound_outputs[at];
    if (place.defined() && (place.dtype() != fact.dtype || !(place.shape() == fact.shape))) {
      fail(ErrorCode::invalid_argument, "output '{}' is {}, but it is bound to memory for {}[{}]",
           shown(engine->outputs[at].name), fact.to_string(), place.dtype(), place.shape());
    }
    if (!place.defined()) {
      const std::shared_ptr<void> memory =
          execution.core().memory().allocate(Use::values, Tensor::byte_size(fact.dtype, fact.shape));
      place = Tensor::borrow(fact.dtype, fact.shape, memory.get(), memory);
    }
    results.resize(graph.outputs.size());
    results[at] = {engine->outputs[at].name, place};
    out.push_back(place.mutable_data());
  }
  fast_inputs_ = std::move(in);
  fast_outputs_ = std::move(out);
  fast_ = instance;
}

void SessionImpl::run_fast(const RunControl& control) {
  const RunScope scope(execution.core().pool());
  execution.run_instance(*fast_, fast_inputs_, fast_outputs_, control);
}

void SessionImpl::prepare(const PrepareOptions& options) {
  const std::vector<Value> values = engine->placeholders(options.shapes, bound_inputs);
  const bool all_bound = std::all_of(bound_inputs.begin(), bound_inputs.end(), is_bound);
  fast_ = nullptr;
  execution.set_real_time(options.real_time);
  if (!options.real_time) {
    engine->prepare(values);
    if (all_bound) make_fast(values);
    return;
  }
  std::string faults;
  for (std::size_t i = 0; i < bound_inputs.size(); ++i) {
    if (!is_bound(bound_inputs[i])) faults += fmt::format("\n  input '{}' is not bound", shown(engine->inputs[i].name));
  }
  for (std::size_t o = 0; o < bound_outputs.size(); ++o) {
    if (!bound_outputs[o].defined())
      faults += fmt::format("\n  output '{}' is not bound", shown(engine->outputs[o].name));
  }
  for (const Part& part : engine->module->parts()) {
    if (!part.segment)
      faults += fmt::format("\n  {}: its shapes follow from data, so it runs on its own",
                            ops::describe(engine->module->graph().node(part.node)));
  }
  if (faults.empty()) {
    make_fast(values);
    if (!fast_) {
      faults += outputs_overlap(values)
                    ? "\n  an output is bound to an input's memory"
                    : "\n  values that are no plain tensors (strings, sequences, complex or packed) run node by node";
    } else {
      for (const auto& step : fast_->plan().steps) {
        if (!step->record.why_not_real_time.empty())
          faults += fmt::format("\n  {}: {}", step->record.name, step->record.why_not_real_time);
      }
    }
  }
  if (!faults.empty()) {
    fast_ = nullptr;
    fail(ErrorCode::unsupported, "the session cannot run in real time:{}", faults);
  }
  // The first run shows how much scratch memory the kernels want, the second must find it there. They touch every page
  // that later ones touch: of the arena, the scratch, the code and the buffers themselves.
  std::vector<Tensor> saved;
  for (const Tensor& t : bound_outputs) saved.push_back(t.clone());
  run_fast({});
  run_fast({});
  for (std::size_t o = 0; o < saved.size(); ++o)
    std::memcpy(bound_outputs[o].mutable_data(), saved[o].data(), saved[o].bytes());
  if (const Step* step = execution.overflowed()) {
    fast_ = nullptr;
    fail(ErrorCode::unsupported, "the session cannot run in real time:\n  {}: wants more memory from run to run",
         step->record.name);
  }
}

void SessionImpl::run(std::span<const NamedValue> inputs, const RunOptions& options) {
  const RunControl control = control_of(options);
  if (fast_ && inputs.empty() && options.outputs.empty()) {
    run_fast(control);
    return;
  }
  control.check();
  const std::vector<std::size_t> wanted = wanted_outputs(*engine, options);
  const std::vector<Value> values = engine->gather(inputs, bound_inputs);
  if (inputs.empty() && options.outputs.empty()) {
    make_fast(values, control);
    if (fast_) {
      run_fast(control);
      return;
    }
  }
  fast_ = nullptr;
  const bool shared = outputs_overlap(values);
  std::vector<Value> outs = execution.run(*engine->module, values, control,
                                          shared ? std::span<const Tensor>() : std::span<const Tensor>(bound_outputs));
  results.clear();
  for (std::size_t w : wanted) {
    engine->check_output(w, ops::fact_of(outs[w]));
    if (shared && bound_outputs[w].defined()) {
      Tensor place = bound_outputs[w];
      if (!outs[w].is_tensor() || outs[w].dtype() != place.dtype() || !(outs[w].shape() == place.shape())) {
        fail(ErrorCode::invalid_argument, "output '{}' does not fit the memory it is bound to",
             shown(engine->outputs[w].name));
      }
      std::memcpy(place.mutable_data(), outs[w].tensor().data(), place.bytes());
      outs[w] = place;
    }
    results.push_back({engine->outputs[w].name, std::move(outs[w])});
  }
}

}  // namespace runtime

using runtime::guarded;

Session::Session(std::unique_ptr<runtime::SessionImpl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

namespace {

runtime::SessionImpl& checked(const std::unique_ptr<runtime::SessionImpl>& impl) {
  if (!impl) fail(ErrorCode::invalid_argument, "the session was moved from");
  return *impl;
}

}  // namespace

Result<void> Session::try_bind_input(std::string_view name, Tensor tensor) noexcept {
  return guarded<void>([&] { checked(impl_).bind_input(name, std::move(tensor)); });
}
Result<void> Session::try_bind_output(std::string_view name, Tensor tensor) noexcept {
  return guarded<void>([&] { checked(impl_).bind_output(name, std::move(tensor)); });
}
Result<void> Session::try_prepare(const PrepareOptions& options) noexcept {
  return guarded<void>([&] { checked(impl_).prepare(options); });
}
Result<void> Session::try_run(const RunOptions& options) noexcept {
  return guarded<void>([&] { checked(impl_).run({}, options); });
}
Result<void> Session::try_run(const Inputs& inputs, const RunOptions& options) noexcept {
  return guarded<void>([&] { checked(impl_).run(inputs.values(), options); });
}

const Value* Session::find_output(std::string_view name) const noexcept {
  if (!impl_) return nullptr;
  for (const NamedValue& r : impl_->results) {
    if (r.name == name) return &r.value;
  }
  return nullptr;
}
const Value* Session::find_output(std::size_t index) const noexcept {
  return impl_ && index < impl_->results.size() ? &impl_->results[index].value : nullptr;
}

}  // namespace lathe
