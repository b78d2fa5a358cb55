// One declaration per pass; each is defined in the file of its name and listed once, in pipeline.cpp.
#pragma once

#include <algorithm>
#include <string_view>

#include "passes/pipeline.h"

namespace lathe::passes {

/// Whether a node is that operator of ONNX's default domain.
inline bool is(const ops::Node& node, std::string_view name) {
  return node.op->domain.empty() && node.op->name == name;
}

/// Whether all that a node makes is known from shapes alone: nothing runs for it.
inline bool outputs_known(const ops::Graph& graph, const ops::Node& node) {
  return std::all_of(node.outputs.begin(), node.outputs.end(),
                     [&](ops::ValueId v) { return v == ops::kNone || graph.value(v).known.has_value(); });
}

std::size_t alter_op_layout(ops::Graph& graph, Context& context);
std::size_t eliminate_common(ops::Graph& graph, Context& context);
std::size_t eliminate_dead(ops::Graph& graph, Context& context);
std::size_t fold_constant(ops::Graph& graph, Context& context);
std::size_t fold_scale_axis(ops::Graph& graph, Context& context);
std::size_t graph_fuse(ops::Graph& graph, Context& context);
std::size_t lower(ops::Graph& graph, Context& context);
std::size_t pack_matmul_integer(ops::Graph& graph, Context& context);
std::size_t reshape_to_view(ops::Graph& graph, Context& context);
std::size_t simplify_inference(ops::Graph& graph, Context& context);

}  // namespace lathe::passes
