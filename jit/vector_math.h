// Transcendental functions in f32 as inlined polynomials, on scalars or vectors of any length.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "ops/loops/kernel.h"

namespace lathe::jit::math {

/// The function applied to x; null where it has no inline form. At most 2 ULP off for exp, exp2, log, tanh, erf,
/// sigmoid, sin and cos; the same bits for a scalar and for a lane.
llvm::Value* function(llvm::IRBuilder<>& b, loops::Op op, llvm::Value* x);

}  // namespace lathe::jit::math
