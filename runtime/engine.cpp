// Engine: loading, checking inputs, leasing executions.
#include <lathe/engine.h>

#include <algorithm>

#include "frontends/frontend.h"
#include "runtime/boundary.h"
#include "runtime/engine_impl.h"
#include "runtime/same_file.h"

namespace lathe {
namespace runtime {
namespace {

std::string list_names(const std::vector<ValueInfo>& infos) {
  std::string text;
  for (const ValueInfo& info : infos) text += (text.empty() ? "'" : ", '") + shown(info.name) + "'";
  return text.empty() ? "none" : text;
}

std::string describe(const Value& value) {
  if (value.is_sequence()) return "a sequence";
  if (value.is_optional()) return "an optional";
  if (value.is_map()) return "a map";
  if (!value.tensor().defined()) return "nothing";
  return fmt::format("{}[{}]", value.dtype(), fmt::join(value.shape().begin(), value.shape().end(), ","));
}

ValueInfo info_of(const ops::Graph& graph, ops::ValueId id) {
  const ops::ValueDef& def = graph.value(id);
  ValueInfo info = def.declared.value_or(ValueInfo{});
  info.name = def.name;
  return info;
}

/// Whether every tensor inside is defined and of that dtype (undefined: of any).
bool tensors_fit(const Value& value, DType dtype) {
  if (value.is_sequence()) {
    return std::all_of(value.sequence().begin(), value.sequence().end(),
                       [&](const Value& element) { return tensors_fit(element, dtype); });
  }
  if (value.is_optional()) return !value.optional().value || tensors_fit(*value.optional().value, dtype);
  if (value.is_map()) {
    return std::all_of(value.map().begin(), value.map().end(),
                       [&](const auto& entry) { return tensors_fit(entry.second, dtype); });
  }
  return value.tensor().defined() && (dtype == DType::undefined || value.dtype() == dtype);
}

/// Whether a value is of the kind declared; what is declared as an optional may be any.
bool has_kind(const ValueInfo& info, ops::Fact::Kind kind) {
  switch (info.kind) {
    case ValueInfo::Kind::tensor:
      return kind == ops::Fact::Kind::tensor;
    case ValueInfo::Kind::sequence:
      return kind == ops::Fact::Kind::sequence;
    case ValueInfo::Kind::map:
      return kind == ops::Fact::Kind::map;
    case ValueInfo::Kind::optional:
    case ValueInfo::Kind::optional_sequence:
      break;
  }
  return true;
}

Tensor zeros(DType dtype, const Shape& shape) {
  Result<Tensor> made = Tensor::try_make(dtype, shape);
  if (!made.ok()) throw Failure(std::move(made).error());
  return *std::move(made);
}

}  // namespace

EngineImpl::EngineImpl(std::shared_ptr<EngineCore> shared_core, ops::Graph graph, const std::function<void()>& check)
    : core(std::move(shared_core)) {
  for (ops::ValueId v : graph.inputs) inputs.push_back(info_of(graph, v));
  for (ops::ValueId v : graph.outputs) outputs.push_back(info_of(graph, v));
  defaults.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    defaults[i] = graph.value(graph.inputs[i]).default_value;
    inputs[i].required = !defaults[i].tensor().defined();
  }
  sink_constants(graph);
  core->freeze(graph, load_records, check);
  finish(std::move(graph));
  weight_bytes = core->memory().used(Use::weights);
}

EngineImpl::EngineImpl(std::shared_ptr<EngineCore> shared_core, const EngineImpl& other)
    : core(std::move(shared_core)),
      inputs(other.inputs),
      outputs(other.outputs),
      defaults(other.defaults),
      load_records(other.load_records),
      weight_bytes(other.weight_bytes) {
  static const std::string kWhose = "the model's weights";
  const ops::OnBehalfOf name(kWhose);
  shared_weights_ = core->memory().charge(Use::weights, weight_bytes);
  core->share_constants(*other.core);
  finish(other.module->graph().clone());
}

void EngineImpl::finish(ops::Graph graph) {
  warned_ = std::vector<std::atomic_flag>(outputs.size());
  int next_id = 0;
  module = std::make_unique<Module>(std::move(graph), next_id);
  core->memory().on_pressure([this] { drop_idle(); });
}

int EngineImpl::input_index(std::string_view name) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == name) return static_cast<int>(i);
  }
  fail(ErrorCode::not_found, "the model has no input '{}'; its inputs are {}", shown(name), list_names(inputs));
}

int EngineImpl::output_index(std::string_view name) const {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == name) return static_cast<int>(i);
  }
  fail(ErrorCode::not_found, "the model has no output '{}'; its outputs are {}", shown(name), list_names(outputs));
}

void EngineImpl::check_input(std::size_t index, const Value& value) const {
  const ValueInfo& info = inputs[index];
  const auto refuse = [&] {
    fail(ErrorCode::invalid_argument, "input '{}' must be {}, got {}", shown(info.name), info.to_string(),
         describe(value));
  };
  if (info.kind != ValueInfo::Kind::tensor) {
    if (!has_kind(info, ops::fact_of(value).kind) || !tensors_fit(value, info.dtype)) refuse();
    return;
  }
  if (!value.is_tensor() || !value.tensor().defined()) refuse();
  if (info.dtype != DType::undefined && value.dtype() != info.dtype) refuse();
  if (!info.admits(value.shape())) refuse();
}

void EngineImpl::check_output(std::size_t index, const ops::Fact& fact) {
  const ValueInfo& info = outputs[index];
  if (info.kind == ValueInfo::Kind::optional || info.kind == ValueInfo::Kind::optional_sequence) return;
  const bool known = fact.dtype != DType::undefined && info.dtype != DType::undefined;
  if (!has_kind(info, fact.kind) || (known && fact.dtype != info.dtype)) {
    fail(ErrorCode::invalid_model, "output '{}' is declared as {}, but the model computes {}", shown(info.name),
         info.to_string(), fact.to_string());
  }
  if (fact.is_tensor() && !info.admits(fact.shape) && !warned_[index].test_and_set()) {
    core->log(LogLevel::warning, [&] {
      return fmt::format("output '{}' is declared as {}, but the model computes {}", shown(info.name), info.to_string(),
                         fact.to_string());
    });
  }
}

std::vector<Value> EngineImpl::gather(std::span<const NamedValue> given, std::span<const Value> also) const {
  std::vector<Value> values(inputs.size());
  std::vector<bool> present(inputs.size(), false);
  for (const NamedValue& n : given) {
    std::size_t index = 0;
    if (n.name.empty() && given.size() == 1) {
      const auto required = std::count_if(inputs.begin(), inputs.end(), [](const ValueInfo& i) { return i.required; });
      if (inputs.size() != 1 && required != 1) {
        fail(ErrorCode::invalid_argument, "an input without a name fits a model with one input; this one's are {}",
             list_names(inputs));
      }
      index =
          static_cast<std::size_t>(std::find_if(inputs.begin(), inputs.end(),
                                                [&](const ValueInfo& i) { return i.required || inputs.size() == 1; }) -
                                   inputs.begin());
    } else {
      index = static_cast<std::size_t>(input_index(n.name));
    }
    if (present[index]) fail(ErrorCode::invalid_argument, "input '{}' is given twice", shown(inputs[index].name));
    check_input(index, n.value);
    values[index] = n.value;
    present[index] = true;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (present[i]) continue;
    if (i < also.size() && !(also[i].is_tensor() && !also[i].tensor().defined())) {
      values[i] = also[i];
    } else if (defaults[i].tensor().defined()) {
      values[i] = defaults[i];
    } else if (inputs[i].kind == ValueInfo::Kind::optional || inputs[i].kind == ValueInfo::Kind::optional_sequence) {
      values[i] = Optional{};
    } else {
      fail(ErrorCode::invalid_argument, "input '{}' ({}) is missing", shown(inputs[i].name), inputs[i].to_string());
    }
  }
  return values;
}

std::vector<Value> EngineImpl::placeholders(const Shapes& shapes, std::span<const Value> also) const {
  const ops::MemoryScope memory(core->memory().source(Use::values));
  std::vector<NamedValue> given;
  const auto give = [&](const ValueInfo& input, const Shape& shape) {
    const std::string name = fmt::format("input '{}'", shown(input.name));
    if (!input.admits(shape)) {
      fail(ErrorCode::invalid_argument, "{} must be {}, got the shape {}", name, input.to_string(), shape);
    }
    if (shape.elements() < 0) {
      fail(ErrorCode::invalid_argument, "the shape of {}, {}, has more elements than can be counted", name, shape);
    }
    const ops::OnBehalfOf blame(name);
    given.push_back({input.name, zeros(input.dtype == DType::undefined ? DType(DType::f32) : input.dtype, shape)});
  };
  for (const NamedShape& s : shapes) {
    const std::size_t index = s.name.empty() && inputs.size() == 1 ? 0 : static_cast<std::size_t>(input_index(s.name));
    for (std::int64_t d : s.shape) {
      if (d < 0)
        fail(ErrorCode::invalid_argument, "the shape of input '{}' has a negative extent: {}", shown(s.name), s.shape);
    }
    give(inputs[index], s.shape);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool stated =
        std::any_of(given.begin(), given.end(), [&](const NamedValue& n) { return n.name == inputs[i].name; });
    const bool bound = i < also.size() && !(also[i].is_tensor() && !also[i].tensor().defined());
    if (stated || bound || !inputs[i].dims || defaults[i].tensor().defined()) continue;
    Shape fixed;
    bool open = false;
    for (const Dim& d : *inputs[i].dims) {
      fixed.push_back(d.extent);
      open = open || d.extent < 0;
    }
    if (!open && inputs[i].kind == ValueInfo::Kind::tensor) give(inputs[i], fixed);
  }
  return gather(given, also);
}

void EngineImpl::prepare(std::span<const Value> values) {
  const ops::Graph& graph = module->graph();
  for (const Part& part : module->parts()) {
    if (!part.segment) break;
    std::vector<Value> in;
    for (ops::ValueId v : part.inputs) {
      const auto at = std::find(graph.inputs.begin(), graph.inputs.end(), v);
      if (at == graph.inputs.end()) return;
      in.push_back(values[static_cast<std::size_t>(at - graph.inputs.begin())]);
    }
    const std::shared_ptr<const Plan> plan = part.segment->plan(in, *core);
    for (std::size_t o = 0; plan && o < part.outputs.size(); ++o) {
      const auto at = std::find(graph.outputs.begin(), graph.outputs.end(), part.outputs[o]);
      if (at != graph.outputs.end())
        check_output(static_cast<std::size_t>(at - graph.outputs.begin()), plan->outputs[o]);
    }
  }
}

std::unique_ptr<Execution> EngineImpl::lease() {
  const std::lock_guard lock(idle_mutex_);
  if (idle_.empty()) return std::make_unique<Execution>(core);
  auto execution = std::move(idle_.back());
  idle_.pop_back();
  return execution;
}

void EngineImpl::give_back(std::unique_ptr<Execution> execution) {
  const std::lock_guard lock(idle_mutex_);
  idle_.push_back(std::move(execution));
}

void EngineImpl::drop_idle() {
  std::vector<std::unique_ptr<Execution>> gone;  // outlives the lock
  const std::lock_guard lock(idle_mutex_);
  gone.swap(idle_);
}

void EngineImpl::trim() {
  drop_idle();
  core->trim();
}

MemoryUse EngineImpl::memory() const {
  MemoryUse use;
  use.weights = core->memory().used(Use::weights);
  use.packed_weights = core->memory().used(Use::packed_weights);
  use.arenas = core->memory().used(Use::arenas);
  use.values = core->memory().used(Use::values);
  CacheStats stats;
  core->fill(stats);
  use.code = core->cache().code_bytes();
  use.plans = stats.bytes - std::min(stats.bytes, use.code);
  return use;
}

std::vector<std::size_t> wanted_outputs(const EngineImpl& engine, const RunOptions& options) {
  std::vector<std::size_t> wanted;
  for (const std::string& name : options.outputs) wanted.push_back(static_cast<std::size_t>(engine.output_index(name)));
  if (options.outputs.empty()) {
    for (std::size_t i = 0; i < engine.outputs.size(); ++i) wanted.push_back(i);
  }
  return wanted;
}

RunControl control_of(const RunOptions& options) { return {options.stop, options.deadline}; }

}  // namespace runtime

using runtime::guarded;

namespace {

std::shared_ptr<runtime::EngineImpl> imported(std::shared_ptr<runtime::EngineCore> core,
                                              const frontends::ModelSource& source, const LoadOptions& load) {
  const frontends::LoadClock clock(load.limits.time);
  const ops::MemoryScope memory(core->memory().source(runtime::Use::weights));
  ops::Graph graph = frontends::import_model(source, load);
  return std::make_shared<runtime::EngineImpl>(std::move(core), std::move(graph), [&] { clock.check(); });
}

}  // namespace

Result<Engine> Engine::try_load(const std::string& path, const EngineOptions& options,
                                const LoadOptions& load) noexcept {
  return guarded<Engine>([&] {
    auto core = std::make_shared<runtime::EngineCore>(options);
    const auto source = frontends::ModelSource::open(path, load);
    const runtime::SameFile file(path, source, options, core->options().passes, load);
    if (const auto other = file.find()) return Engine(std::make_shared<runtime::EngineImpl>(std::move(core), *other));
    auto engine = imported(std::move(core), source, load);
    file.publish(engine, source);
    return Engine(std::move(engine));
  });
}

Result<Engine> Engine::try_load(std::span<const std::byte> bytes, const EngineOptions& options,
                                const LoadOptions& load) noexcept {
  return guarded<Engine>([&] {
    auto core = std::make_shared<runtime::EngineCore>(options);
    return Engine(imported(std::move(core), frontends::ModelSource::from_bytes(bytes, load), load));
  });
}

Result<Outputs> Engine::try_run(const Inputs& inputs, const RunOptions& options) const noexcept {
  return guarded<Outputs>([&] {
    const std::vector<std::size_t> wanted = runtime::wanted_outputs(*impl_, options);
    const std::vector<Value> values = impl_->gather(inputs.values());
    const runtime::RunControl control = runtime::control_of(options);
    control.check();
    auto execution = impl_->lease();
    std::vector<Value> results = execution->run(*impl_->module, values, control);
    impl_->give_back(std::move(execution));
    std::vector<NamedValue> named;
    for (std::size_t w : wanted) {
      impl_->check_output(w, ops::fact_of(results[w]));
      named.push_back({impl_->outputs[w].name, results[w]});
    }
    return Outputs(std::move(named));
  });
}

Result<void> Engine::try_prepare(const Shapes& shapes) const noexcept {
  return guarded<void>([&] { impl_->prepare(impl_->placeholders(shapes)); });
}

Result<Session> Engine::try_session() const noexcept {
  return guarded<Session>([&] { return Session(std::make_unique<runtime::SessionImpl>(impl_)); });
}

const std::vector<ValueInfo>& Engine::inputs() const noexcept { return impl_->inputs; }
const std::vector<ValueInfo>& Engine::outputs() const noexcept { return impl_->outputs; }
MemoryUse Engine::memory() const noexcept { return impl_->memory(); }

CacheStats Engine::cache_stats() const noexcept {
  CacheStats stats;
  impl_->core->fill(stats);
  return stats;
}

void Engine::trim() const noexcept { impl_->trim(); }

}  // namespace lathe
