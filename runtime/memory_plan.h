// Memory planning: places buffers with known lifetimes into one arena.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lathe::runtime {

/// A buffer that lives from step `first` to step `last`, both included.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< per lifetime, multiples of kArenaAlignment
  std::size_t bytes = 0;
};

inline constexpr std::size_t kArenaAlignment = 64;

/// Greedy by size: the largest buffer first, each at the lowest offset that is free for its whole life
/// (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
MemoryPlan plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace lathe::runtime
