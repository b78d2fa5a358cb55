// Pictures of a graph.
#pragma once

#include <string>

#include "ops/ir/graph.h"

namespace lathe::runtime {

/// For Graphviz: a box per node, an edge per value; subgraphs as clusters.
std::string to_dot(const ops::Graph& graph);

/// One page that needs nothing beside it: the nodes in order, with links between producers and consumers, and a search
/// box.
std::string to_html(const ops::Graph& graph);

/// "f32[1,3,8,8]" of a value: its fact, else what the file declares, else "?".
std::string type_text(const ops::ValueDef& value);

}  // namespace lathe::runtime
