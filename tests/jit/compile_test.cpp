// Compiled kernels against the plain evaluator: hand-made kernels over awkward sizes, at every level of code
// generation.
#include <gtest/gtest.h>

#include "tests/jit/kernel_run.h"
#include "tests/jit/kernels.h"

namespace lathe::jit::testing {
namespace {

constexpr std::int64_t kSizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257};

TEST(Compile, PointwiseOverEverySize) {
  for (const auto n : kSizes) check(gelu_tanh(3, n));
  for (const auto n : kSizes) check(unary(Op::sqrt, n));
}

TEST(Compile, EmptyRangesTouchNothing) {
  const Kernel k = unary(Op::exp, 0);
  const Data data(k);
  EXPECT_EQ(run(*compiled(k), k, data, {{0, 0}}), loops::kOk);
}

TEST(Compile, SoftmaxRows) {
  for (const auto n : kSizes) check(softmax(5, n));
}

TEST(Compile, LayerNormRows) {
  for (const auto n : kSizes) check(layer_norm(5, n), 2e-5);
}

TEST(Compile, MatMul) {
  for (const auto m : {1, 2, 4, 5, 9}) {
    for (const auto n : {1, 5, 8, 12, 31, 70, 256}) check(matmul(m, 37, n, DType::f32, true), 2e-5);
  }
  check(matmul(6, 33, 21, DType::f64), 1e-12);
}

TEST(Compile, TransposedCopies) {
  for (const auto r : {3, 17, 40}) {
    for (const auto c : {4, 23}) {
      check(transpose(r, c));
      check(transpose(r, c, DType::u8));
      check(transpose(r, c, DType::f16));
      check(transpose(r, c, DType::i64));
    }
  }
}

/// Kernels take other dims to vectors where the contiguous one is short.
TEST(Compile, ShortContiguousDims) {
  for (const auto c : {1, 2, 3, 5, 8, 9}) {
    for (const auto r : {2, 7, 8, 33, 100}) {
      check(transpose(c, r));
      check(transpose(c, r, DType::u8));
      check(row_sums(r, c), 1e-6);
      check(scaled_rows(r, c));
    }
  }
}

TEST(Compile, ASumDoesNotDependOnHowManyThereAre) {
  for (const auto n : kSizes) {
    const Kernel one = row_sums(300, n);
    const auto code = compiled(one);
    const Data all(one);
    ASSERT_EQ(run(*code, one, all), loops::kOk);
    for (const auto rows : {2, 3, 8, 100}) {
      const Kernel some = row_sums(rows, n);
      EXPECT_EQ(compiled(some)->fn, code->fn);
      const Data data(some);
      std::memcpy(data.buffers[0]->data(), all.buffers[0]->data(), data.buffers[0]->size());
      ASSERT_EQ(run(*code, some, data), loops::kOk);
      EXPECT_EQ(std::memcmp(data.buffers[1]->data(), all.buffers[1]->data(), data.buffers[1]->size()), 0) << n;
    }
  }
}

TEST(Compile, PoolingWithGuards) {
  for (const auto c : {1, 3, 8, 20}) check(max_pool(9, 12, c), 0, 1, {9 * 12 * c, 5 * 6 * c});
}

}  // namespace
}  // namespace lathe::jit::testing
