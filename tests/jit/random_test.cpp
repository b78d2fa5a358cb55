// Compiled code against the plain evaluator on random kernels: exact ones bit for bit, the others within a tolerance.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "jit/jit.h"
#include "tests/support/random_kernel.h"
#include "tests/support/rounds.h"

namespace lathe::jit::testing {
namespace {

using test::KernelMemory;
using test::RandomKernel;

constexpr std::uint64_t kSeeds = test::rounds(120);

std::int32_t run(const CompiledKernel& code, const RandomKernel& random, const KernelMemory& memory,
                 const std::vector<std::int64_t>& bounds) {
  const auto params = loops::pack_params(random.kernel);
  std::vector<std::uint64_t> scratch(static_cast<std::size_t>(code.scratch_bytes(random.kernel)) / 8 + 1);
  loops::ErrorSlot error;
  loops::KernelArgs args = test::whole_range(random.kernel, memory);
  args.params = params.data();
  args.scratch = scratch.data();
  args.error = &error;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    args.begin = bounds[i];
    args.end = bounds[i + 1];
    if (const std::int32_t rc = code.fn(&args); rc != loops::kOk) return rc;
  }
  return loops::kOk;
}

void check(const RandomKernel& random, std::uint64_t seed, const Options& options) {
  static const std::shared_ptr<Compiler> compiler = Compiler::get();
  const KernelMemory expected(random, seed);
  const loops::KernelArgs reference = test::whole_range(random.kernel, expected);
  ASSERT_EQ(loops::evaluate(random.kernel, reference), loops::kOk);

  const loops::Kernel* one[] = {&random.kernel};
  const auto code = compiler->compile(one, options)[0];
  const KernelMemory whole(random, seed);
  ASSERT_EQ(run(*code, random, whole, {reference.begin, reference.end}), loops::kOk);
  ASSERT_EQ(test::difference(random, expected, whole), "") << "seed " << seed << " level " << options.code_level;

  // Split among workers, every bit is the same.
  const std::int64_t n = reference.end;
  const KernelMemory pieces(random, seed);
  ASSERT_EQ(run(*code, random, pieces, {0, n / 3, n / 3, n / 2, n}), loops::kOk);
  RandomKernel exact = random;
  exact.exact = true;
  ASSERT_EQ(test::difference(exact, whole, pieces), "") << "seed " << seed << " in pieces";
}

void check_all(const test::RandomKernelOptions& kinds, const Options& options, std::uint64_t first) {
  for (std::uint64_t seed = first; seed < first + kSeeds; ++seed) {
    check(test::random_kernel(seed, kinds), seed, options);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(RandomKernels, Exact) { check_all({}, {}, 1); }
TEST(RandomKernels, ExactAtLevelNone) { check_all({}, {.code_level = 0}, 1001); }
TEST(RandomKernels, ExactAtLevelDefault) { check_all({}, {.code_level = 2}, 2001); }
TEST(RandomKernels, Approximate) { check_all({.exact = false}, {}, 3001); }
TEST(RandomKernels, ApproximateInF32) { check_all({.exact = false, .narrow = false, .integers = false}, {}, 4001); }
TEST(RandomKernels, ShortVectors) { check_all({}, {.max_vector_bits = 128}, 5001); }

}  // namespace
}  // namespace lathe::jit::testing
