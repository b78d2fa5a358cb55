// Canonical kernels compute the same bits in fewer dims.
#include <gtest/gtest.h>

#include "ops/loops/kernel.h"
#include "tests/support/random_kernel.h"

namespace lathe::test {
namespace {

using loops::canonicalize;
using loops::evaluate;
using loops::Kernel;
using loops::Op;

TEST(LoopsCanonicalize, RandomKernelsComputeTheSameBits) {
  int smaller = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const RandomKernel original = random_kernel(seed, {.exact = seed % 3 != 0, .max_points = 2000});
    ASSERT_EQ(verify(original.kernel), "") << "seed " << seed << '\n' << to_string(original.kernel);
    RandomKernel canonical = original;
    canonicalize(canonical.kernel);
    ASSERT_EQ(verify(canonical.kernel), "") << "seed " << seed << '\n' << to_string(canonical.kernel);
    smaller += canonical.kernel.rank() < original.kernel.rank() ? 1 : 0;
    canonical.exact = true;
    const KernelMemory expected(original, seed);
    const KernelMemory actual(canonical, seed);
    ASSERT_EQ(evaluate(original.kernel, whole_range(original.kernel, expected)), loops::kOk);
    ASSERT_EQ(evaluate(canonical.kernel, whole_range(canonical.kernel, actual)), loops::kOk);
    ASSERT_EQ(difference(canonical, expected, actual), "") << "seed " << seed << '\n' << to_string(original.kernel);
  }
  EXPECT_GT(smaller, 300);
}

}  // namespace
}  // namespace lathe::test
