// What the tools see of an engine.
#include "runtime/introspect.h"

#include <algorithm>
#include <set>

#include "runtime/engine_impl.h"

namespace lathe::runtime {
namespace {

tools::PassRecord to_record(const passes::Record& r) {
  tools::PassRecord record;
  record.name = std::string(r.pass);
  record.stage = r.at_load ? "load" : "specialize";
  record.seconds = r.seconds;
  record.nodes_before = r.nodes_before;
  record.nodes_after = r.nodes_after;
  record.changes = r.changes;
  record.switched_off = r.switched_off;
  return record;
}

/// The inputs of a segment that reads only the module's own inputs; nothing where it reads other parts.
std::optional<std::vector<Value>> segment_inputs(const Module& module, const Part& part,
                                                 std::span<const Value> values) {
  std::vector<Value> in;
  for (ops::ValueId v : part.inputs) {
    const auto& inputs = module.graph().inputs;
    const auto at = std::find(inputs.begin(), inputs.end(), v);
    if (at == inputs.end()) return std::nullopt;
    in.push_back(values[static_cast<std::size_t>(at - inputs.begin())]);
  }
  return in;
}

/// A node that is evaluated by itself.
tools::StepRecord alone(const ops::Node& node, std::string_view why) {
  tools::StepRecord record;
  record.name = ops::describe(node);
  record.nodes = {node.name};
  record.operators = {std::string(node.op->name)};
  const bool region = node.op->region != ops::Region::none;
  record.backend = region ? "region" : node.op->kernel ? "plain" : "jit";
  record.kernel = std::string(node.op->name);
  record.allocates = true;
  record.why_not_real_time = why;
  return record;
}

class Explainer {
 public:
  /// `ran`: an execution that has run the module, or null. `eager`: the segments that ran node by node. `why_unknown`:
  /// why neither has others.
  Explainer(EngineCore& core, bool real_time, const Execution* ran, std::set<int> eager, std::string why_unknown)
      : core_(core), real_time_(real_time), ran_(ran), eager_(std::move(eager)), why_unknown_(std::move(why_unknown)) {}

  /// `values`: the module's inputs where they are known; else empty.
  void add(const Module& module, std::span<const Value> values, const std::string& inside) {
    for (const Part& part : module.parts()) {
      if (part.segment) {
        add_segment(module, part, values, inside);
        continue;
      }
      const ops::Node& node = module.graph().node(part.node);
      push(alone(node, "its shapes follow from data, so it runs on its own"), inside);
      for (std::size_t b = 0; b < part.bodies.size(); ++b) {
        const char* which = part.bodies.size() != 2 ? "body" : b == 0 ? "then_branch" : "else_branch";
        add(*part.bodies[b], {},
            fmt::format("{} of {}{}{}", which, ops::describe(node), inside.empty() ? "" : ", ", inside));
      }
    }
  }

  tools::PlanRecord plan;

 private:
  void push(tools::StepRecord record, const std::string& inside) {
    record.inside = inside;
    plan.steps.push_back(std::move(record));
  }

  void add_segment(const Module& module, const Part& part, std::span<const Value> values, const std::string& inside) {
    std::shared_ptr<const Plan> made = ran_ ? ran_->last_plan(*part.segment) : nullptr;
    const bool eager = eager_.count(part.segment->id()) > 0;
    if (!made && !eager) {
      const bool known = !values.empty() || (part.inputs.empty() && inside.empty());
      const auto in = known ? segment_inputs(module, part, values) : std::nullopt;
      if (in) made = part.segment->plan(*in, core_, {}, real_time_);
    }
    if (!made) {
      for (ops::NodeId id : part.segment->graph().order()) {
        tools::StepRecord record =
            alone(part.segment->graph().node(id), eager ? "it handles strings or sequences, so it runs on its own"
                                                        : "its shapes are known only once a part before it has run");
        if (!eager) {
          record.backend = "unknown";
          record.kernel = "";
          record.allocates = false;
          record.why_not_real_time = "";
          plan.why_unknown = why_unknown_;
        }
        push(std::move(record), inside);
      }
      return;
    }
    for (const tools::StepRecord& view : made->views) push(view, inside);
    for (const auto& step : made->steps) push(step->record, inside);
    plan.arena_bytes = std::max(plan.arena_bytes, made->arena_bytes);
    plan.kernels += made->kernels;
  }

  EngineCore& core_;
  bool real_time_;
  const Execution* ran_;
  std::set<int> eager_;
  std::string why_unknown_;
};

/// The node by which a module is cut where it is more than one segment; null where it is not.
const ops::Node* cut_by(const Module& module) {
  for (const Part& part : module.parts()) {
    if (!part.segment) return &module.graph().node(part.node);
  }
  return nullptr;
}

}  // namespace

const ops::Graph& frozen_graph(const EngineImpl& engine) { return engine.module->graph(); }

ops::Graph specialized_graph(EngineImpl& engine, const Shapes& shapes) {
  if (const ops::Node* node = cut_by(*engine.module)) {
    fail(ErrorCode::unsupported, "the model has no one graph for these shapes: {} gives shapes that follow from data",
         ops::describe(*node));
  }
  const std::vector<Value> values = engine.placeholders(shapes);
  for (const Part& part : engine.module->parts()) {
    const auto in = segment_inputs(*engine.module, part, values);
    std::optional<ops::Graph> graph = in ? part.segment->specialized_graph(*in, *engine.core) : std::nullopt;
    if (graph) return *std::move(graph);
  }
  fail(ErrorCode::unsupported, "the model handles strings or sequences and runs node by node, as Stage::frozen has it");
}

std::vector<tools::PassRecord> pass_records(EngineImpl& engine, const Shapes& shapes) {
  std::vector<tools::PassRecord> records;
  for (const passes::Record& r : engine.load_records) records.push_back(to_record(r));
  if (shapes.empty()) return records;
  std::vector<passes::Record> specialized;
  const std::vector<Value> values = engine.placeholders(shapes);
  for (const Part& part : engine.module->parts()) {
    if (!part.segment) continue;
    const auto in = segment_inputs(*engine.module, part, values);
    if (in) part.segment->trace(*in, *engine.core, specialized);
  }
  for (const passes::Record& r : specialized) records.push_back(to_record(r));
  return records;
}

tools::PlanRecord plan_record(EngineImpl& engine, const Shapes& shapes, bool real_time) {
  Explainer explainer(*engine.core, real_time, nullptr, {}, "decided during a run");
  explainer.add(*engine.module, engine.placeholders(shapes), "");
  return std::move(explainer.plan);
}

tools::PlanRecord plan_record_of_run(EngineImpl& engine, const Inputs& inputs, bool real_time) {
  const std::vector<Value> values = engine.gather(inputs.values());
  Execution execution(engine.core);
  std::set<int> eager;
  execution.set_real_time(real_time);
  execution.note_eager(&eager);
  std::string why_unknown = "this run did not reach it";
  try {
    static_cast<void>(execution.run(*engine.module, values, {}));
  } catch (const Failure& failure) {
    why_unknown = "the run ended before it: " + failure.error.message;
  }
  Explainer explainer(*engine.core, real_time, &execution, std::move(eager), std::move(why_unknown));
  explainer.add(*engine.module, values, "");
  return std::move(explainer.plan);
}

}  // namespace lathe::runtime
