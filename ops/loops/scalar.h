// One instruction on one element: the arithmetic that every target must reproduce.
#pragma once

#include <cstdint>

#include "ops/loops/kernel.h"

namespace lathe::loops {

/// The result of a unary, binary or ternary operator other than cast, select and reduce, on elements of dtype `operand`
/// as raw bits (ops/ir/numeric.h).
[[nodiscard]] std::uint64_t apply(Op op, DType operand, std::uint64_t a, std::uint64_t b, std::uint64_t c);

/// What `sum`, `prod`, `min` and `max` start from.
[[nodiscard]] std::uint64_t initial(Reduction reduction, DType dtype);
/// The accumulator after one more element, for the same four.
[[nodiscard]] std::uint64_t accumulate(Reduction reduction, DType dtype, std::uint64_t so_far, std::uint64_t value);
/// Whether `value`, met after `best`, takes its place as the extremum of an arg reduction.
[[nodiscard]] bool replaces(Reduction reduction, DType dtype, std::uint64_t value, std::uint64_t best);

}  // namespace lathe::loops
