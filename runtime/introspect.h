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
/// A copy of it for these shapes, each segment as the passes made it. Where data decides shapes, a run on zeros tells
/// what the segments are given; bodies that it does not enter, and what runs node by node, stay as they are frozen.
ops::Graph specialized_graph(EngineImpl& engine, const Shapes& shapes);
/// The passes of the load; with `shapes` given, followed by those of specializing to them, as for the graph.
std::vector<tools::PassRecord> pass_records(EngineImpl& engine, const Shapes& shapes);
/// The plan for these shapes, made where it is not there yet; nothing is run.
tools::PlanRecord plan_record(EngineImpl& engine, const Shapes& shapes, bool real_time);
/// The plans that a run on these inputs takes.
tools::PlanRecord plan_record_of_run(EngineImpl& engine, const Inputs& inputs, bool real_time);

}  // namespace lathe::runtime
