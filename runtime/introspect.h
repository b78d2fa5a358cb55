// What the tools see of an engine: its graphs, passes and plans. Every function may throw Failure.
#pragma once

#include <string>
#include <vector>

#include <lathe/tools.h>

#include "ops/ir/graph.h"

namespace lathe::runtime {

class EngineImpl;

/// The graph that the engine keeps, after the passes that need no shapes.
const ops::Graph& frozen_graph(const EngineImpl& engine);
/// A copy of it with facts for these shapes, after all passes.
ops::Graph specialized_graph(EngineImpl& engine, const Shapes& shapes);
/// The passes of the load; with `shapes` given, followed by those of specializing to them.
std::vector<tools::PassRecord> pass_records(EngineImpl& engine, const Shapes& shapes);
/// The plan for these shapes, made where it is not there yet.
tools::PlanRecord plan_record(EngineImpl& engine, const Shapes& shapes, bool real_time);
/// The plans that a run on these inputs takes.
tools::PlanRecord plan_record_of_run(EngineImpl& engine, const Inputs& inputs, bool real_time);

}  // namespace lathe::runtime
