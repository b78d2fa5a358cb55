// The text form of a graph: prints, and parses back to the same graph.
#pragma once

#include <string>
#include <string_view>

#include "ops/ir/graph.h"

namespace lathe::ops {

/// One line per node:
///
///   graph main(%x: f32[1,3,8,8], %n: f32[batch,4]) {
///     %w = constant f32[2] [1, 2]
///     %c = constant f32[64,3,3,3] #5f3a…            (large ones: a hash; they do not parse back)
///     %y, %z = Op(%x, _, %w) {axis = -1, mode = "x", perm = [0, 1]} @node_name : f32[1,3], f32[2]
///     %o = If(%cond, %captured) captures 1 @n { graph then(%captured') { … return %a } graph else(…) { … return %b } }
///     return %y
///   }
///
/// Facts stand behind the colon where they are known, layouts in braces behind the shape: f32[1,64,8,8]{0,2,3,1}.
std::string to_text(const Graph& graph);

/// Parses the text form. Failure (invalid_model) naming line and column.
Graph parse_text(std::string_view text);

}  // namespace lathe::ops
