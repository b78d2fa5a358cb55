// What the tools see of an engine.
#include "runtime/introspect.h"

#include <algorithm>

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

void explain_module(const Module& module, std::span<const Value> values, EngineCore& core, bool real_time,
                    tools::PlanRecord& plan) {
  for (const Part& part : module.parts()) {
    if (!part.segment) {
      plan.steps.push_back(alone(module.graph().node(part.node), "its shapes follow from data, so it runs on its own"));
      continue;
    }
    const auto in = values.empty() && !part.inputs.empty() ? std::nullopt : segment_inputs(module, part, values);
    const std::shared_ptr<const Plan> made = in ? part.segment->plan(*in, core, {}, real_time) : nullptr;
    if (!made) {
      for (ops::NodeId id : part.segment->graph().order()) {
        plan.steps.push_back(
            alone(part.segment->graph().node(id), "its shapes are known only once a part before it has run"));
      }
      continue;
    }
    for (const auto& step : made->steps) plan.steps.push_back(step->record);
    plan.arena_bytes = std::max(plan.arena_bytes, made->arena_bytes);
    plan.kernels += made->kernels;
  }
}

}  // namespace

const ops::Graph& frozen_graph(const EngineImpl& engine) { return engine.module->graph(); }

ops::Graph specialized_graph(EngineImpl& engine, const Shapes& shapes) {
  const std::vector<Value> values = engine.placeholders(shapes);
  if (engine.module->parts().size() == 1 && engine.module->parts().front().segment) {
    const auto in = segment_inputs(*engine.module, engine.module->parts().front(), values);
    if (in) {
      if (const auto program = engine.module->parts().front().segment->program(*in, *engine.core))
        return program->graph.clone();
    }
  }
  return engine.module->graph().clone();
}

std::vector<tools::PassRecord> pass_records(EngineImpl& engine, const Shapes& shapes) {
  std::vector<tools::PassRecord> records;
  for (const passes::Record& r : engine.load_records) records.push_back(to_record(r));
  if (shapes.empty()) return records;
  std::vector<passes::Record> specialized;
  const std::vector<Value> values = engine.placeholders(shapes);
  for (const Part& part : engine.module->parts()) {
    if (!part.segment) break;
    const auto in = segment_inputs(*engine.module, part, values);
    if (in) part.segment->trace(*in, *engine.core, specialized);
  }
  for (const passes::Record& r : specialized) records.push_back(to_record(r));
  return records;
}

tools::PlanRecord plan_record(EngineImpl& engine, const Shapes& shapes, bool real_time) {
  tools::PlanRecord plan;
  explain_module(*engine.module, engine.placeholders(shapes), *engine.core, real_time, plan);
  return plan;
}

}  // namespace lathe::runtime
