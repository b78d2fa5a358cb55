// Seeded inputs for whatever a model declares.
#pragma once

#include <cstdint>

#include <lathe/lathe.h>

#include "tests/fuzz/random.h"

namespace lathe::fuzz {

/// A tensor of random elements: mostly small numbers, now and then extreme ones where `extremes`.
Tensor random_tensor(DType dtype, const Shape& shape, Random& random, bool extremes);

/// A value for each declared input; open dims are drawn from 1 to 3, one extent per symbol. Tensors past a few
/// megabytes shrink to one element, which the engine then has to refuse.
Inputs random_inputs(const Engine& engine, Random& random);

}  // namespace lathe::fuzz
