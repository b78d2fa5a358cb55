// The arena: buffers that live at the same time never share a byte, and others do.
#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lathe::runtime {
namespace {

TEST(MemoryPlan, NothingTakesNothing) {
  EXPECT_EQ(plan_memory({}).bytes, 0U);
  const Lifetime empty[] = {{0, 0, 3}};
  EXPECT_EQ(plan_memory(empty).bytes, 0U);
}

TEST(MemoryPlan, AChainNeedsTheTwoLargestNeighbours) {
  const Lifetime chain[] = {{640, 0, 1}, {640, 1, 2}, {640, 2, 3}, {640, 3, 4}};
  const MemoryPlan plan = plan_memory(chain);
  EXPECT_EQ(plan.bytes, 1280U);
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_EQ(plan.offsets[1], plan.offsets[3]);
}

TEST(MemoryPlan, ASmallOneFitsIntoAGap) {
  const Lifetime buffers[] = {{1024, 0, 9}, {512, 0, 4}, {512, 5, 9}, {256, 4, 5}};
  const MemoryPlan plan = plan_memory(buffers);
  EXPECT_EQ(plan.offsets[1], plan.offsets[2]);
  EXPECT_EQ(plan.bytes, 1024U + 512 + 256);
}

/// The most bytes that live at one step: no plan can need less.
std::size_t least(const std::vector<Lifetime>& buffers) {
  std::size_t most = 0;
  for (int step = 0; step < 40; ++step) {
    std::size_t bytes = 0;
    for (const Lifetime& b : buffers) bytes += b.first <= step && step <= b.last ? b.bytes : 0;
    most = std::max(most, bytes);
  }
  return most;
}

TEST(MemoryPlan, RandomLifetimesNeverOverlap) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> buffers(static_cast<std::size_t>(1 + below(40)));
    for (Lifetime& b : buffers) {
      b.first = below(30);
      b.last = b.first + below(10);
      b.bytes = static_cast<std::size_t>(below(5000));
    }
    const MemoryPlan plan = plan_memory(buffers);
    ASSERT_EQ(plan.offsets.size(), buffers.size());
    EXPECT_GE(plan.bytes, least(buffers));
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % kArenaAlignment, 0U);
      EXPECT_LE(plan.offsets[i] + buffers[i].bytes, plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together = buffers[i].first <= buffers[j].last && buffers[j].first <= buffers[i].last;
        const bool apart = plan.offsets[i] + buffers[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + buffers[j].bytes <= plan.offsets[i];
        if (!together || buffers[i].bytes == 0 || buffers[j].bytes == 0) continue;
        ASSERT_TRUE(apart) << "round " << round << ": " << i << " and " << j;
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
