// Random valid models of views, arithmetic, contractions, reductions and shape arithmetic, and shapes to run them on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lathe/lathe.h>

namespace lathe::tests {

struct RandomGraph {
  std::string model;               ///< ONNX; values stay moderate for inputs in [-1, 1]
  std::vector<Shapes> shapes;      ///< each valid; extents are small, so some are equal or 1 by chance
  std::vector<std::string> flags;  ///< the inputs that are single booleans
};

/// The graph of a seed, of at most so many steps: with fewer of them it is a part of the same graph.
RandomGraph random_graph(std::uint64_t seed, int steps = 14);

}  // namespace lathe::tests
