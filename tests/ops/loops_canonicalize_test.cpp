// Canonical kernels compute the same bits in fewer dims.
#include <gtest/gtest.h>

#include <vector>

#include "ops/loops/kernel.h"
#include "tests/support/random_kernel.h"
#include "tests/support/rounds.h"

namespace lathe::test {
namespace {

using loops::canonicalize;
using loops::evaluate;
using loops::Kernel;
using loops::Op;

/// y = -x over these extents, outer dims only.
Kernel map_kernel(std::vector<std::int64_t> extents, std::vector<std::int64_t> from, std::vector<std::int64_t> to) {
  Kernel k;
  k.outer = static_cast<int>(extents.size());
  k.buffers = {{DType::f32, false}, {DType::f32, true}};
  loops::Access load{.buffer = 0, .offset = 0, .strides = {}};
  loops::Access store{.buffer = 1, .offset = 0, .strides = {}};
  for (std::size_t d = 0; d < extents.size(); ++d) {
    k.extents[d] = extents[d];
    load.strides[d] = from[d];
    store.strides[d] = to[d];
  }
  k.loads = {load};
  k.insts = {{.op = Op::load, .dtype = DType::f32, .index = 0}, {.op = Op::neg, .dtype = DType::f32, .a = 0}};
  k.stores = {{1, store}};
  return k;
}

std::vector<std::int64_t> extents(const Kernel& k) { return {k.extents.begin(), k.extents.begin() + k.rank()}; }
using List = std::vector<std::int64_t>;

TEST(LoopsCanonicalize, DenseDimsBecomeOne) {
  Kernel k = map_kernel({2, 3, 1, 4}, {12, 4, 4, 1}, {12, 4, 4, 1});
  canonicalize(k);
  EXPECT_EQ(extents(k), (List{24}));
  EXPECT_EQ(k.loads[0].strides[0], 1);
}

TEST(LoopsCanonicalize, ATransposeKeepsTwoDimsAndWalksItsStoreForward) {
  Kernel k = map_kernel({2, 3, 4}, {12, 4, 1}, {1, 8, 2});  // x[a, bc] to y[bc, a]
  canonicalize(k);
  EXPECT_EQ(extents(k), (List{12, 2}));
  EXPECT_EQ(k.stores[0].access.strides[0], 2);
  EXPECT_EQ(k.loads[0].strides[1], 12);
}

TEST(LoopsCanonicalize, BroadcastsMergeWhereBothSidesAgree) {
  Kernel bias = map_kernel({2, 3, 4, 5}, {0, 1, 0, 0}, {60, 20, 5, 1});
  canonicalize(bias);
  EXPECT_EQ(extents(bias), (List{2, 3, 20}));
}

TEST(LoopsCanonicalize, LoopIndicesKeepTheirDim) {
  Kernel k = map_kernel({1, 2, 3, 4}, {24, 12, 4, 1}, {24, 12, 4, 1});
  k.insts.push_back({.op = Op::loop_index, .dtype = DType::i64, .index = 3});
  k.insts.push_back({.op = Op::loop_index, .dtype = DType::i64, .index = 0});
  canonicalize(k);
  EXPECT_EQ(extents(k), (List{6, 4}));
  EXPECT_EQ(k.insts[2].index, 1);
  EXPECT_EQ(k.insts[3].op, Op::constant);
  EXPECT_EQ(k.insts[3].imm_int, 0);
}

TEST(LoopsCanonicalize, GuardsHoldDimsApart) {
  Kernel k = map_kernel({3, 4}, {4, 1}, {4, 1});
  k.insts.insert(k.insts.begin(), {.op = Op::constant, .dtype = DType::f32});
  k.insts[2].a = 1;
  k.stores[0].inst = 2;
  k.loads[0].guards = {{.base = 0, .extent = 2, .coef = {1, 0}}};
  k.loads[0].fallback = 0;
  Kernel along_both = k;
  canonicalize(k);
  EXPECT_EQ(extents(k), (List{3, 4}));
  along_both.loads[0].guards[0].coef = {4, 1};
  canonicalize(along_both);
  EXPECT_EQ(extents(along_both), (List{12}));
}

TEST(LoopsCanonicalize, InnerDimsMergeButKeepTheirOrder) {
  Kernel k = map_kernel({2, 3, 4, 5}, {60, 20, 5, 1}, {1, 0, 0, 0});
  k.outer = 1;
  k.inner = 3;
  k.insts[1] = {.op = Op::reduce, .dtype = DType::f32, .a = 0, .reduction = loops::Reduction::sum};
  Kernel across = k;
  canonicalize(k);
  EXPECT_EQ(extents(k), (List{2, 60}));
  EXPECT_EQ(k.inner, 1);
  across.loads[0].strides = {60, 1, 3, 12};
  canonicalize(across);
  EXPECT_EQ(extents(across), (List{2, 3, 4, 5}));
}

TEST(LoopsCanonicalize, OneInnerDimStaysForReductions) {
  Kernel k = map_kernel({2, 1, 1}, {1, 1, 1}, {1, 0, 0});
  k.outer = 1;
  k.inner = 2;
  k.insts[1] = {.op = Op::reduce, .dtype = DType::f32, .a = 0, .reduction = loops::Reduction::max};
  canonicalize(k);
  EXPECT_EQ(extents(k), (List{2, 1}));
  EXPECT_EQ(k.inner, 1);
}

TEST(LoopsCanonicalize, RandomKernelsComputeTheSameBits) {
  constexpr std::uint64_t kKernels = rounds(1000);
  int smaller = 0;
  for (std::uint64_t seed = 0; seed < kKernels; ++seed) {
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
  EXPECT_GT(smaller, rounds(200));
}

}  // namespace
}  // namespace lathe::test
