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

/// What a run on inputs of these shapes comes by for certain: the segments that read nothing but the model's inputs.
Visits visits_without_run(const Module& module, std::span<const Value> inputs) {
  Visits visits;
  const std::vector<ops::ValueId>& names = module.graph().inputs;
  for (const Part& part : module.parts()) {
    if (!part.segment) continue;
    std::vector<Value> in;
    for (ops::ValueId v : part.inputs) {
      const auto at = std::find(names.begin(), names.end(), v);
      if (at != names.end()) in.push_back(inputs[static_cast<std::size_t>(at - names.begin())]);
    }
    if (in.size() == part.inputs.size()) visits.inputs.emplace(part.segment.get(), std::move(in));
  }
  return visits;
}

/// What inputs of these shapes come to in every part. Where data decides, a run on zeros tells.
Visits visits_of_shapes(EngineImpl& engine, const Shapes& shapes) {
  const std::vector<Value> zeros = engine.placeholders(shapes);
  Visits visits = visits_without_run(*engine.module, zeros);
  if (visits.inputs.size() == engine.module->parts().size()) return visits;
  Execution execution(engine.core);
  execution.observe(visits);
  try {
    static_cast<void>(execution.run(*engine.module, zeros, {}));
  } catch (const Failure& failure) {
    fail(failure.error.code,
         "data decides some of the model's shapes, and a run on zeros does not tell them (explaining a run on other "
         "inputs may): {}",
         failure.error.message);
  }
  return visits;
}

// ---- the specialized graph ----

/// Puts the parts of a module together again, each segment as the passes made it for what it was given.
class Assembly {
 public:
  Assembly(const Module& module, const Visits& visits, EngineCore& core)
      : module_(module),
        from_(module.graph()),
        visits_(visits),
        core_(core),
        mapped_(from_.value_count(), ops::kNone) {}

  ops::Graph make() {
    to_.name = from_.name;
    for (ops::ValueId v : from_.inputs) {
      const ops::ValueId input = to_.add_input(from_.value(v).name, from_.value(v).declared);
      to_.value(input).default_value = from_.value(v).default_value;
      mapped_[static_cast<std::size_t>(v)] = input;
    }
    for (const Part& part : module_.parts()) {
      if (part.segment) {
        add_segment(part);
      } else {
        add_node(part);
      }
    }
    for (ops::ValueId v : from_.outputs) to_.outputs.push_back(mapped(v));
    return std::move(to_);
  }

 private:
  ops::ValueId mapped(ops::ValueId v) {
    if (v == ops::kNone) return v;
    ops::ValueId& to = mapped_[static_cast<std::size_t>(v)];
    if (to != ops::kNone) return to;
    const ops::ValueDef& def = from_.value(v);
    return to = def.is_constant() ? to_.add_constant(def.constant, def.name) : to_.add_value(def.name);
  }

  void add_segment(const Part& part) {
    const std::vector<Value>& given = visits_.inputs.at(part.segment.get());
    std::vector<ops::ValueId> inputs;
    for (std::size_t i = 0; i < given.size(); ++i) {
      inputs.push_back(mapped(part.inputs[i]));
      std::optional<ops::Fact>& fact = to_.value(inputs[i]).fact;
      if (!fact) fact = ops::fact_of(given[i]);
    }
    const std::vector<ops::ValueId> outputs =
        ops::inline_graph(to_, part.segment->specialized_graph(given, core_), inputs);
    for (std::size_t o = 0; o < outputs.size(); ++o) mapped_[static_cast<std::size_t>(part.outputs[o])] = outputs[o];
  }

  void add_node(const Part& part) {
    const ops::Node& node = from_.node(part.node);
    const std::vector<ops::Fact>& facts = visits_.alone.at(&node).outputs;
    ops::Node copy;
    copy.op = node.op;
    copy.name = node.name;
    copy.attributes = node.attributes;
    copy.captures = node.captures;
    for (ops::ValueId v : node.inputs) copy.inputs.push_back(mapped(v));
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      copy.outputs.push_back(mapped(node.outputs[o]));
      if (copy.outputs[o] != ops::kNone) to_.value(copy.outputs[o]).fact = facts[o];
    }
    for (const auto& body : part.bodies) {
      copy.subgraphs.push_back(std::make_unique<ops::Graph>(entered(*body) ? Assembly(*body, visits_, core_).make()
                                                                           : body->graph().clone()));
    }
    to_.add_node(std::move(copy));
  }

  [[nodiscard]] bool entered(const Module& body) const {
    return std::all_of(body.parts().begin(), body.parts().end(), [&](const Part& part) {
      return part.segment ? visits_.inputs.contains(part.segment.get())
                          : visits_.alone.contains(&body.graph().node(part.node));
    });
  }

  const Module& module_;
  const ops::Graph& from_;
  const Visits& visits_;
  EngineCore& core_;
  ops::Graph to_;
  std::vector<ops::ValueId> mapped_;  // by value of `from_`
};

/// The passes of each segment, in the order of the parts.
void trace(const Module& module, const Visits& visits, EngineCore& core, std::vector<passes::Record>& records) {
  for (const Part& part : module.parts()) {
    const auto visit = part.segment ? visits.inputs.find(part.segment.get()) : visits.inputs.end();
    if (visit != visits.inputs.end()) part.segment->trace(visit->second, core, records);
    for (const auto& body : part.bodies) trace(*body, visits, core, records);
  }
}

// ---- plans ----

class Explainer {
 public:
  Explainer(const Visits& visits, EngineCore& core, bool real_time)
      : visits_(visits), core_(core), real_time_(real_time) {}

  void add(const Module& module, const std::string& inside) {
    for (const Part& part : module.parts()) {
      if (part.segment) {
        add_segment(*part.segment, inside);
        continue;
      }
      const ops::Node& node = module.graph().node(part.node);
      add_alone(node, inside,
                node.op->region != ops::Region::none ? "what its bodies do follows from data"
                                                     : "its shapes follow from data, so it runs on its own");
      for (std::size_t b = 0; b < part.bodies.size(); ++b) {
        add(*part.bodies[b], fmt::format("{} of {}{}{}", node.op->subgraphs[b], ops::describe(node),
                                         inside.empty() ? "" : ", ", inside));
      }
    }
  }

  tools::PlanRecord plan;

 private:
  void push(tools::StepRecord record, const std::string& inside) {
    record.inside = inside;
    plan.steps.push_back(std::move(record));
  }

  void add_segment(Segment& segment, const std::string& inside) {
    const auto visit = visits_.inputs.find(&segment);
    const std::shared_ptr<const Plan> made =
        visit == visits_.inputs.end() ? nullptr : segment.plan(visit->second, core_, {}, real_time_);
    if (!made) {
      for (ops::NodeId id : segment.graph().order()) {
        add_alone(segment.graph().node(id), inside,
                  "it is among strings, sequences, complex or packed numbers, and such parts run node by node");
      }
      return;
    }
    auto view = made->views.begin();
    for (std::size_t s = 0; s <= made->steps.size(); ++s) {
      for (; view != made->views.end() && view->first == s; ++view) push(view->second, inside);
      if (s < made->steps.size()) push(made->steps[s]->record, inside);
    }
    plan.arena_bytes = std::max(plan.arena_bytes, made->arena_bytes);
    plan.kernels += made->kernels;
  }

  /// A node that no plan runs.
  void add_alone(const ops::Node& node, const std::string& inside, std::string_view why) {
    tools::StepRecord record;
    record.name = ops::describe(node);
    record.nodes = {node.name};
    record.operators = {std::string(node.op->name)};
    record.backend = "not run";
    if (const auto visit = visits_.alone.find(&node); visit != visits_.alone.end()) {
      describe(record, node, visit->second);
      record.why_not_real_time = why;
      plan.kernels += visit->second.compiled;
    }
    push(std::move(record), inside);
  }

  static void describe(tools::StepRecord& record, const ops::Node& node, const Visits::Alone& visit) {
    record.backend = node.op->region != ops::Region::none ? "region" : visit.compiled > 0 ? "jit" : "plain";
    record.kernel = std::string(node.op->name);
    if (visit.compiled + visit.interpreted > 0) {
      record.kernel = !visit.reduces ? "pointwise" : node.op->contraction ? "contraction" : "row";
      if (visit.compiled == 0) record.kernel += ", evaluated element by element";
    }
    record.allocates = true;
    for (std::size_t o = 0; o < visit.outputs.size() && o < node.outputs.size(); ++o) {
      if (node.outputs[o] != ops::kNone) record.outputs.push_back(visit.outputs[o].to_string());
    }
  }

  const Visits& visits_;
  EngineCore& core_;
  bool real_time_;
};

tools::PlanRecord explain(EngineImpl& engine, const Visits& visits, bool real_time) {
  Explainer explainer(visits, *engine.core, real_time);
  explainer.add(*engine.module, "");
  return std::move(explainer.plan);
}

}  // namespace

const ops::Graph& frozen_graph(const EngineImpl& engine) { return engine.module->graph(); }

ops::Graph specialized_graph(EngineImpl& engine, const Shapes& shapes) {
  const Visits visits = visits_of_shapes(engine, shapes);
  return Assembly(*engine.module, visits, *engine.core).make();
}

std::vector<tools::PassRecord> pass_records(EngineImpl& engine, const Shapes& shapes) {
  std::vector<tools::PassRecord> records;
  for (const passes::Record& r : engine.load_records) records.push_back(to_record(r));
  if (shapes.empty()) return records;
  std::vector<passes::Record> specialized;
  trace(*engine.module, visits_of_shapes(engine, shapes), *engine.core, specialized);
  for (const passes::Record& r : specialized) records.push_back(to_record(r));
  return records;
}

tools::PlanRecord plan_record(EngineImpl& engine, const Shapes& shapes, bool real_time) {
  return explain(engine, visits_without_run(*engine.module, engine.placeholders(shapes)), real_time);
}

tools::PlanRecord plan_record_of_run(EngineImpl& engine, const Inputs& inputs, bool real_time) {
  const std::vector<Value> values = engine.gather(inputs.values());
  Visits visits;
  Execution execution(engine.core);
  execution.set_real_time(real_time);
  execution.observe(visits);
  std::string ended_by;
  try {
    static_cast<void>(execution.run(*engine.module, values, {}));
  } catch (const Failure& failure) {
    ended_by = failure.error.message;
  }
  tools::PlanRecord plan = explain(engine, visits, real_time);
  plan.run_ended_by = std::move(ended_by);
  return plan;
}

}  // namespace lathe::runtime
