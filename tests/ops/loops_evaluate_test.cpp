// The evaluator on kernels small enough to check by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <lathe/tensor.h>

#include "ops/ir/numeric.h"
#include "ops/loops/kernel.h"
#include "ops/loops/scalar.h"
#include "tests/support/random_kernel.h"

namespace lathe::loops {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Access dense(int buffer, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
  Access access;
  access.buffer = buffer;
  access.offset = offset;
  for (std::size_t d = 0; d < strides.size(); ++d) access.strides[d] = strides[d];
  return access;
}

/// [rows] x [columns reduced]: buffer 0 in, dense, loaded as instruction 0.
Kernel rows_kernel(DType dtype, std::int64_t rows, std::int64_t columns) {
  Kernel k;
  k.outer = 1;
  k.inner = 1;
  k.extents = {rows, columns};
  k.buffers = {{dtype, false}};
  k.loads = {dense(0, {columns, 1})};
  k.insts = {{.op = Op::load, .dtype = dtype, .index = 0}};
  return k;
}

void store_row(Kernel& k, int inst) {
  k.buffers.push_back({k.insts[static_cast<std::size_t>(inst)].dtype, true});
  k.stores.push_back({inst, dense(static_cast<int>(k.buffers.size()) - 1, {1, 0})});
}

std::int32_t run(const Kernel& k, std::vector<void*> buffers, ErrorSlot* error = nullptr) {
  EXPECT_EQ(verify(k), "");
  return evaluate(k, {.buffers = buffers.data(),
                      .params = nullptr,
                      .begin = 0,
                      .end = k.outer > 0 ? k.extents[0] : 1,
                      .scratch = nullptr,
                      .error = error});
}

template <class R, class T>
std::vector<R> reduced(Reduction reduction, std::vector<T> values, std::int64_t columns) {
  const auto rows = columns == 0 ? 1 : static_cast<std::int64_t>(values.size()) / columns;
  Kernel k = rows_kernel(dtype_of<T>, rows, columns);
  k.insts.push_back({.op = Op::reduce, .dtype = dtype_of<R>, .a = 0, .reduction = reduction});
  store_row(k, 1);
  std::vector<R> out(static_cast<std::size_t>(rows));
  EXPECT_EQ(run(k, {values.data(), out.data()}), kOk);
  return out;
}

TEST(LoopsEvaluate, SoftmaxIsThreeSweeps) {
  Kernel k = rows_kernel(DType::f32, 2, 3);
  k.insts.push_back({.op = Op::reduce, .dtype = DType::f32, .a = 0, .reduction = Reduction::max});
  k.insts.push_back({.op = Op::sub, .dtype = DType::f32, .a = 0, .b = 1});
  k.insts.push_back({.op = Op::exp, .dtype = DType::f32, .a = 2});
  k.insts.push_back({.op = Op::reduce, .dtype = DType::f32, .a = 3, .reduction = Reduction::sum});
  k.insts.push_back({.op = Op::div, .dtype = DType::f32, .a = 3, .b = 4});
  k.buffers.push_back({DType::f32, true});
  k.stores.push_back({5, dense(1, {3, 1})});
  store_row(k, 1);
  EXPECT_EQ(full_instructions(k), (std::vector<bool>{true, false, true, true, false, true}));

  std::vector<float> x = {1, 2, 3, 1000, 1000, 1000};
  std::vector<float> y(6);
  std::vector<float> largest(2);
  ASSERT_EQ(run(k, {x.data(), y.data(), largest.data()}), kOk);
  const double sum = std::exp(-2.0) + std::exp(-1.0) + 1;
  EXPECT_NEAR(y[0], std::exp(-2.0) / sum, 1e-7);
  EXPECT_NEAR(y[2], 1 / sum, 1e-7);
  EXPECT_NEAR(y[4], 1.0 / 3, 1e-7);
  EXPECT_EQ(largest, (std::vector<float>{3, 1000}));
}

TEST(LoopsEvaluate, ReducesInPlainOrder) {
  EXPECT_EQ((reduced<float, float>(Reduction::sum, {1e8F, 1, -1e8F, 1, 2, 3}, 3)), (std::vector<float>{0, 6}));
  EXPECT_EQ((reduced<std::int32_t, std::int32_t>(Reduction::prod, {1 << 30, 4, 3}, 3)), (std::vector<std::int32_t>{0}));
  EXPECT_EQ((reduced<std::int8_t, std::int8_t>(Reduction::sum, {100, 100}, 2)), (std::vector<std::int8_t>{-56}));
  EXPECT_EQ((reduced<std::uint8_t, std::uint8_t>(Reduction::min, {7, 200, 3}, 3)), (std::vector<std::uint8_t>{3}));
  EXPECT_TRUE(std::isnan(reduced<float, float>(Reduction::max, {1, kNaN, 3}, 3)[0]));
  EXPECT_TRUE(std::isnan(reduced<float, float>(Reduction::min, {kNaN, 1, 3}, 3)[0]));
}

TEST(LoopsEvaluate, EmptyReductionsGiveTheirStart) {
  EXPECT_EQ((reduced<float, float>(Reduction::sum, {}, 0)[0]), 0);
  EXPECT_EQ((reduced<float, float>(Reduction::prod, {}, 0)[0]), 1);
  EXPECT_EQ((reduced<float, float>(Reduction::min, {}, 0)[0]), kInf);
  EXPECT_EQ((reduced<float, float>(Reduction::max, {}, 0)[0]), -kInf);
  EXPECT_EQ((reduced<std::int8_t, std::int8_t>(Reduction::max, {}, 0)[0]), -128);
  EXPECT_EQ((reduced<std::int64_t, float>(Reduction::argmax_last, {}, 0)[0]), 0);
}

TEST(LoopsEvaluate, PositionsOfExtremaCountTiesAndNaN) {
  const std::vector<float> ties = {2, 5, 5, 2};
  const auto position = [](Reduction r, const std::vector<float>& v) {
    return reduced<std::int64_t, float>(r, v, static_cast<std::int64_t>(v.size()))[0];
  };
  EXPECT_EQ(position(Reduction::argmax_first, ties), 1);
  EXPECT_EQ(position(Reduction::argmax_last, ties), 2);
  EXPECT_EQ(position(Reduction::argmin_first, ties), 0);
  EXPECT_EQ(position(Reduction::argmin_last, ties), 3);
  const std::vector<float> nans = {2, kNaN, 9, kNaN, 1};
  EXPECT_EQ(position(Reduction::argmax_first, nans), 1);
  EXPECT_EQ(position(Reduction::argmin_first, nans), 1);
  EXPECT_EQ(position(Reduction::argmax_last, nans), 3);
  EXPECT_EQ(position(Reduction::argmin_last, nans), 3);
  EXPECT_EQ(position(Reduction::argmax_first, {-kInf, -kInf}), 0);
}

TEST(LoopsEvaluate, ARowOperandCountsOncePerInnerIndex) {
  Kernel k = rows_kernel(DType::f32, 2, 5);
  k.loads = {dense(0, {1})};
  k.insts.push_back({.op = Op::reduce, .dtype = DType::f32, .a = 0, .reduction = Reduction::sum});
  store_row(k, 1);
  std::vector<float> x = {3, 4};
  std::vector<float> y(2);
  ASSERT_EQ(run(k, {x.data(), y.data()}), kOk);
  EXPECT_EQ(y, (std::vector<float>{15, 20}));
}

/// y[i] = x[indices[i]] over 4 elements, with x of 3.
Kernel gather_kernel() {
  Kernel k;
  k.outer = 1;
  k.extents = {4};
  k.buffers = {{DType::i64, false}, {DType::f32, false}, {DType::f32, true}};
  k.loads = {dense(0, {1}), dense(1, {0})};
  k.loads[1].indirect = {{.inst = 0, .extent = 3, .stride = 1}};
  k.insts = {{.op = Op::load, .dtype = DType::i64, .index = 0}, {.op = Op::load, .dtype = DType::f32, .index = 1}};
  k.stores = {{1, dense(2, {1})}};
  return k;
}

TEST(LoopsEvaluate, IndicesCountFromTheEndAndAreChecked) {
  const Kernel k = gather_kernel();
  std::vector<std::int64_t> indices = {2, -1, 0, -3};
  std::vector<float> x = {10, 20, 30};
  std::vector<float> y(4);
  ASSERT_EQ(run(k, {indices.data(), x.data(), y.data()}), kOk);
  EXPECT_EQ(y, (std::vector<float>{30, 30, 10, 10}));

  for (const std::int64_t bad : {std::int64_t{3}, std::int64_t{-4}, std::numeric_limits<std::int64_t>::min()}) {
    indices[2] = bad;
    ErrorSlot error;
    EXPECT_EQ(run(k, {indices.data(), x.data(), y.data()}, &error), kIndexError);
    EXPECT_EQ(error.node, 0);
    EXPECT_EQ(error.position, 2);
    EXPECT_EQ(error.value, bad);
    EXPECT_EQ(error.extent, 3);
  }
}

TEST(LoopsEvaluate, GuardsKeepLoadsInside) {
  Kernel k;
  k.outer = 1;
  k.extents = {5};
  k.buffers = {{DType::f32, false}, {DType::f32, true}};
  k.numbers = {{.value = -1}};
  k.loads = {dense(0, {1}, -1)};
  k.loads[0].guards = {{.base = -1, .extent = 3, .coef = {1}}};
  k.loads[0].fallback = 0;
  k.insts = {{.op = Op::number, .dtype = DType::f32, .index = 0}, {.op = Op::load, .dtype = DType::f32, .index = 0}};
  k.stores = {{1, dense(1, {1})}};
  std::vector<float> x = {1, 2, 3};
  std::vector<float> y(5);
  ASSERT_EQ(run(k, {x.data(), y.data()}), kOk);
  EXPECT_EQ(y, (std::vector<float>{-1, 1, 2, 3, -1}));
}

TEST(LoopsEvaluate, AKernelWithoutDimsRunsOnce) {
  Kernel k;
  k.buffers = {{DType::i4, true}};
  k.insts = {{.op = Op::constant, .dtype = DType::i32, .imm_int = 13}, {.op = Op::cast, .dtype = DType::i4, .a = 0}};
  k.stores = {{1, dense(0, {})}};
  std::int8_t y = 0;
  ASSERT_EQ(run(k, {&y}), kOk);
  EXPECT_EQ(y, -3);
}

TEST(LoopsEvaluate, PartsOfTheRangeMakeTheWhole) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const test::RandomKernel random = test::random_kernel(seed, {.max_points = 1000});
    if (random.kernel.outer == 0) continue;
    const test::KernelMemory whole(random, seed);
    const test::KernelMemory parts(random, seed);
    KernelArgs args = test::whole_range(random.kernel, whole);
    ASSERT_EQ(evaluate(random.kernel, args), kOk);
    const std::int64_t end = args.end;
    args.buffers = parts.buffers();
    for (args.begin = 0; args.begin < end; args.begin = args.end) {
      args.end = std::min(end, args.begin + 3);
      ASSERT_EQ(evaluate(random.kernel, args), kOk);
    }
    ASSERT_EQ(test::difference(random, whole, parts), "");
  }
}

template <class T>
T on(Op op, T a, T b = T{}) {
  std::uint64_t x = 0;
  std::uint64_t y = 0;
  std::memcpy(&x, &a, sizeof a);
  std::memcpy(&y, &b, sizeof b);
  const std::uint64_t bits = apply(op, dtype_of<T>, x, y, 0);
  T result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

TEST(LoopsScalar, IntegersWrap) {
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(on(Op::add, kMin, -1), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(on(Op::neg, kMin), kMin);
  EXPECT_EQ(on(Op::abs, kMin64), kMin64);
  EXPECT_EQ(on(Op::div, kMin, -1), kMin);
  EXPECT_EQ(on(Op::div, kMin64, std::int64_t{-1}), kMin64);
  EXPECT_EQ(on(Op::mul, std::uint16_t{65535}, std::uint16_t{65535}), 1);
  EXPECT_EQ(on(Op::sub, std::uint8_t{3}, std::uint8_t{5}), 254);
}

TEST(LoopsScalar, IntegerDivisionIsDefinedEverywhere) {
  EXPECT_EQ(on(Op::div, -7, 2), -3);
  EXPECT_EQ(on(Op::mod, -7, 2), 1);
  EXPECT_EQ(on(Op::mod, 7, -2), -1);
  EXPECT_EQ(on(Op::fmod, -7, 2), -1);
  EXPECT_EQ(on(Op::fmod, 7, -2), 1);
  for (const Op op : {Op::div, Op::mod, Op::fmod}) {
    EXPECT_EQ(on(op, 5, 0), 0) << name(op);
    EXPECT_EQ(on(op, std::uint64_t{5}, std::uint64_t{0}), 0U);
  }
  EXPECT_EQ(on(Op::mod, std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}), 0);
}

TEST(LoopsScalar, IntegerPowersAndShifts) {
  EXPECT_EQ(on(Op::pow, 3, 4), 81);
  EXPECT_EQ(on(Op::pow, -2, 3), -8);
  EXPECT_EQ(on(Op::pow, 2, 32), 0);
  EXPECT_EQ(on(Op::pow, 0, 0), 1);
  EXPECT_EQ(on(Op::pow, 5, -1), 0);
  EXPECT_EQ(on(Op::pow, 1, -9), 1);
  EXPECT_EQ(on(Op::pow, -1, -9), -1);
  EXPECT_EQ(on(Op::pow, -1, -8), 1);
  EXPECT_EQ(on(Op::pow, std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}), 0);
  EXPECT_EQ(on(Op::shift_left, std::uint8_t{255}, std::uint8_t{7}), 128);
  EXPECT_EQ(on(Op::shift_left, std::uint8_t{255}, std::uint8_t{8}), 0);
  EXPECT_EQ(on(Op::shift_right, -8, 1), -4);
  EXPECT_EQ(on(Op::shift_right, -8, 32), 0);
  EXPECT_EQ(on(Op::shift_left, 1, -1), 0);
}

TEST(LoopsScalar, FloatsFollowIeee) {
  EXPECT_EQ(on(Op::round, 2.5F), 2);
  EXPECT_EQ(on(Op::round, -3.5F), -4);
  EXPECT_EQ(on(Op::mod, -7.5F, 2.0F), 0.5F);
  EXPECT_EQ(on(Op::fmod, -7.5F, 2.0F), -1.5F);
  EXPECT_TRUE(std::isnan(on(Op::sign, kNaN)));
  EXPECT_EQ(on(Op::sign, -kInf), -1);
  EXPECT_TRUE(std::isnan(on(Op::min, kNaN, 1.0F)));
  EXPECT_TRUE(std::isnan(on(Op::max, 1.0F, kNaN)));
  EXPECT_EQ(on(Op::sigmoid, -1000.0F), 0);
  EXPECT_EQ(on(Op::exp, 1.0F), static_cast<float>(std::exp(1.0)));
}

}  // namespace
}  // namespace lathe::loops
