// The text form of a graph: prints, and parses back to the same graph.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ops/ir/graph.h"

namespace lathe::ops {

/// One line per node:
///
///   graph main(%x: f32[1,3,8,8], %n: f32[batch,4], %k: i64[1] = i64[1] [3]) {
///     %w = constant f32[2] [1, 2]
///     %c = constant f32[64,3,3,3] #5f3a…            (large ones: a hash of their content)
///     %y, _ = Op(%x, _, %w) {axis = -1, mode = "x", perm = [0, 1]} @node_name : f32[1,3], _
///     %o = If(%cond, %captured) captures 1 @n { graph then(%captured) { … return %a } graph else(…) { … return %b } }
///     return %y, %o: f32[batch,3]
///   }
///
/// Types: `f32[2,batch,?]`, `f32[...]` for an unknown rank, `?` for an unknown dtype, `seq(f32)`, `optional(f32)`,
/// `map(f32)`, `optional(seq(f32))`. Facts stand behind the colon of a node where they are known, layouts in braces
/// behind the shape: f32[1,64,8,8]{0,2,3,1}. An input's type is what the file declares; where a fact says more, it
/// follows as `fact f32[1,4]`; the value behind `=` is an input's default. An output's declared type stands behind it
/// in `return`. Names that are not made of letters, digits and `_ . / -` are quoted. Attributes: integers, floats (with
/// a point or an exponent), strings, tensors, lists of these
/// (`ints []`, `floats []`, `strings []` where empty; `tensors [...]`), `type f32[...]`. `//` begins a comment.
std::string to_text(const Graph& graph);

/// Gives the content of a constant printed as a hash; an undefined tensor where it does not know it.
using LargeConstants = std::function<Tensor(std::string_view hash)>;

/// Parses the text form; an input whose dims are all fixed gets a fact. Failure (invalid_model) naming line and column.
Graph parse_text(std::string_view text, const LargeConstants& large = {});

/// The hash that stands for a large constant.
std::string content_hash(const Tensor& tensor);

}  // namespace lathe::ops
