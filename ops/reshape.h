// Transposes between two Reshapes, the first of which merges dims that the second splits again.
#pragma once

#include <span>
#include <vector>

#include "lathe/shape.h"

namespace lathe::ops {

/// The permutation of the dims of `x` that Reshape to `merged`, Transpose by `perm` and Reshape to `split` come to,
/// where the first only merges neighbours and the second undoes just that; empty where they come to anything else.
///
///   [b,h,n,d] → [b·h,n,d] → (0,2,1) → [b·h,d,n] → [b,h,d,n]   is   (0,1,3,2)
std::vector<int> block_permutation(const Shape& x, const Shape& merged, std::span<const std::int64_t> perm,
                                   const Shape& split);

}  // namespace lathe::ops
