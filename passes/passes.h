// One declaration per pass; each is defined in the file of its name and listed once, in pipeline.cpp.
#pragma once

#include "passes/pipeline.h"

namespace lathe::passes {

std::size_t eliminate_dead(ops::Graph& graph, Context& context);
std::size_t lower(ops::Graph& graph, Context& context);

}  // namespace lathe::passes
