// One declaration per pass; each is defined in the file of its name and listed once, in pipeline.cpp.
#pragma once

#include "passes/pipeline.h"

namespace lathe::passes {

std::size_t alter_op_layout(ops::Graph& graph, Context& context);
std::size_t eliminate_common(ops::Graph& graph, Context& context);
std::size_t eliminate_dead(ops::Graph& graph, Context& context);
std::size_t fold_constant(ops::Graph& graph, Context& context);
std::size_t fold_scale_axis(ops::Graph& graph, Context& context);
std::size_t lower(ops::Graph& graph, Context& context);
std::size_t reshape_to_view(ops::Graph& graph, Context& context);
std::size_t simplify_inference(ops::Graph& graph, Context& context);
std::size_t widen_matmul_integer(ops::Graph& graph, Context& context);

}  // namespace lathe::passes
