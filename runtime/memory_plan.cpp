// Greedy-by-size placement.
#include "runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace lathe::runtime {

MemoryPlan plan_memory(std::span<const Lifetime> lifetimes) {
  MemoryPlan plan;
  plan.offsets.resize(lifetimes.size(), 0);
  std::vector<std::size_t> by_size(lifetimes.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<std::size_t> placed;  // in order of offset
  for (std::size_t index : by_size) {
    const Lifetime& life = lifetimes[index];
    const std::size_t bytes = (life.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    std::size_t offset = 0;
    for (std::size_t other : placed) {
      const Lifetime& o = lifetimes[other];
      if (o.last < life.first || life.last < o.first) continue;
      const std::size_t taken = (o.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
      if (plan.offsets[other] >= offset + bytes) break;
      offset = std::max(offset, plan.offsets[other] + taken);
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](std::size_t value, std::size_t p) { return value < plan.offsets[p]; }),
                  index);
  }
  return plan;
}

}  // namespace lathe::runtime
