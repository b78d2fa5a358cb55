// Segment: from the shapes that arrive to a program (per structure) and a plan (per set of shapes).
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "ops/ir/evaluate.h"
#include "ops/ir/loop_builder.h"
#include "passes/pipeline.h"
#include "runtime/core.h"
#include "runtime/module.h"

namespace lathe::runtime {
namespace {

void append(std::string& key, const void* data, std::size_t bytes) {
  key.append(static_cast<const char*>(data), bytes);
}

bool needs_handles(const ops::Graph& graph) {
  for (std::size_t v = 0; v < graph.value_count(); ++v) {
    const auto& fact = graph.value(static_cast<ops::ValueId>(v)).fact;
    if (fact &&
        (!fact->is_tensor() || fact->dtype == DType::string || fact->dtype.is_complex() || fact->dtype.is_packed()))
      return true;
  }
  return false;
}

/// What passes may rely on: ranks, dtypes, which extents are 0 or 1, which values follow from shapes (no group computes
/// those), and which Reshapes only move dims of extent 1. Where passes relied on more, because extents happened to be
/// equal, the program does not fit other shapes: a closer likeness tells those apart.
enum class Likeness : std::uint8_t { kinds_of_extents, equal_extents, extents };

std::string signature(const ops::Graph& graph, int segment, Likeness likeness) {
  std::string s = "structure";
  append(s, &segment, sizeof(segment));
  append(s, &likeness, sizeof(likeness));
  std::unordered_map<std::int64_t, std::int64_t> places;  // of extents, in the order in which they first appear
  for (std::size_t v = 0; v < graph.value_count(); ++v) {
    const auto& fact = graph.value(static_cast<ops::ValueId>(v)).fact;
    if (!fact) continue;
    s.push_back(static_cast<char>(fact->dtype));
    for (std::int64_t d : fact->shape) {
      s.push_back(d == 0 ? '0' : d == 1 ? '1' : 'n');
      if (likeness == Likeness::kinds_of_extents || d <= 1) continue;
      const auto place = places.try_emplace(d, static_cast<std::int64_t>(places.size())).first->second;
      append(s, likeness == Likeness::extents ? &d : &place, sizeof(d));
    }
    s.push_back(graph.value(static_cast<ops::ValueId>(v)).known ? 'k' : '.');
  }
  for (std::size_t n = 0; n < graph.node_count(); ++n) {
    const ops::Node& node = graph.node(static_cast<ops::NodeId>(n));
    if (node.removed || node.op->name != "Reshape") continue;
    s.push_back(
        passes::same_but_for_ones(graph.value(node.inputs[0]).fact->shape, graph.value(node.outputs[0]).fact->shape)
            ? '='
            : '~');
  }
  return s;
}

}  // namespace

std::string Segment::key(std::span<const Value> inputs) const {
  std::string key = "plan";
  append(key, &id_, sizeof(id_));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ops::Fact fact = ops::fact_of(inputs[i]);
    key.push_back(static_cast<char>(fact.kind));
    key.push_back(static_cast<char>(fact.dtype));
    key.push_back(static_cast<char>(fact.rank()));
    append(key, fact.shape.begin(), static_cast<std::size_t>(fact.rank()) * sizeof(std::int64_t));
    if (by_value_[i] && inputs[i].is_tensor() && inputs[i].tensor().size() <= ops::kKnownElements &&
        fact.dtype != DType::string) {
      append(key, inputs[i].tensor().data(), inputs[i].tensor().bytes());
    }
  }
  return key;
}

bool Segment::same_key(std::span<const Value> inputs, const std::vector<MadeFor>& made_for) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_tensor()) return false;
    const Tensor& a = inputs[i].tensor();
    const MadeFor& b = made_for[i];
    if (a.dtype() != b.dtype || !(a.shape() == b.shape)) return false;
    if (by_value_[i] && (a.size() > ops::kKnownElements || std::memcmp(a.data(), b.value.data(), a.bytes()) != 0))
      return false;
  }
  return true;
}

bool Segment::infer(std::span<const Value> inputs, ops::Graph& graph) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ops::ValueDef& v = graph.value(graph.inputs[i]);
    ops::Fact fact = ops::fact_of(inputs[i]);
    v.fact = fact;
    v.known.reset();
    if (!fact.is_tensor() || fact.dtype == DType::string) return false;
    if (by_value_[i] && inputs[i].tensor().size() <= ops::kKnownElements) v.known = inputs[i].tensor().clone();
  }
  ops::infer_graph(graph);
  return !needs_handles(graph);
}

bool Segment::fits(std::span<const Value> inputs, Program& program, EngineCore& core) const {
  const ops::MemoryScope memory(core.memory().source(Use::weights));
  try {
    infer(inputs, program.graph);
  } catch (const Failure&) {  // the graph it was made from has just been inferred
    return false;
  }
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    if (!(graph_.value(graph_.outputs[i]).fact->shape == program.graph.value(program.graph.outputs[i]).fact->shape))
      return false;
  }
  return true;
}

std::shared_ptr<Program> Segment::specialize(std::span<const Value> inputs, EngineCore& core, const RunControl& control,
                                             const std::function<bool(Program&)>& accept) {
  {
    const ops::MemoryScope memory(core.memory().source(Use::weights));
    if (!infer(inputs, graph_)) return nullptr;
  }
  std::string wanted;
  for (const Likeness likeness : {Likeness::kinds_of_extents, Likeness::equal_extents, Likeness::extents}) {
    wanted = signature(graph_, id_, likeness);
    const auto found = core.cache().find(wanted, false);
    if (!found) break;
    auto program = std::get<std::shared_ptr<Program>>(*found);
    if (!fits(inputs, *program, core) || !accept(*program)) continue;
    core.count_structure_hit();
    return program;
  }
  const ops::MemoryScope memory(core.memory().source(Use::weights));
  auto made = std::make_shared<Program>();
  made->graph = graph_.clone();
  made->key = wanted;
  core.specialize(*made, control);
  core.cache().add(wanted, made, 0, made->charge);
  return made;
}

std::shared_ptr<const Plan> Segment::plan(std::span<const Value> inputs, EngineCore& core, const RunControl& control,
                                          bool real_time) {
  using Found = std::shared_ptr<const Plan>;
  const auto plan_of = [](const Specialized& entry) {
    const Found* plan = std::get_if<Found>(&entry);
    return plan ? *plan : nullptr;
  };
  std::string wanted = key(inputs);
  if (real_time) wanted += "real time";
  if (const auto found = core.cache().find(wanted, true)) return plan_of(*found);
  const Turn::Hold turn(turn_, control);
  if (const auto found = core.cache().find(wanted, false)) return plan_of(*found);
  core.log(LogLevel::debug, [&] {
    std::string text = fmt::format("segment {}: making a plan for", id_);
    for (const Value& v : inputs) text += " " + ops::fact_of(v).to_string();
    return text;
  });
  Found plan;
  const auto make_plan = [&](Program& from) {
    try {
      plan = core.make_plan(from, control, real_time);
      return true;
    } catch (const ops::NotFusable&) {
      return false;
    }
  };
  const std::shared_ptr<Program> program = specialize(inputs, core, control, make_plan);
  control.check();
  if (!program) {
    core.cache().add(wanted, Eager(), 0, 0);
    return nullptr;
  }
  if (!plan && !make_plan(*program)) fail(ErrorCode::internal, "a group of nodes does not make one kernel");
  core.cache().add(program->key, program, program->code_bytes, program->charge);
  core.cache().add(wanted, plan, 0, plan->charge);
  return plan;
}

ops::Graph Segment::specialized_graph(std::span<const Value> inputs, EngineCore& core) {
  const Turn::Hold turn(turn_, {});
  const std::shared_ptr<Program> program = specialize(inputs, core, {}, [](Program&) { return true; });
  return (program ? program->graph : graph_).clone();
}

void Segment::trace(std::span<const Value> inputs, EngineCore& core, std::vector<passes::Record>& records) {
  const Turn::Hold turn(turn_, {});
  if (!infer(inputs, graph_)) return;
  Program program;
  program.graph = graph_.clone();
  core.specialize(program, {}, &records);
}

}  // namespace lathe::runtime
