// The other passes that need no shapes: each on a graph that it changes and on one that it must leave alone.
#include <gtest/gtest.h>

#include "tests/passes/pass_run.h"

namespace lathe::passes {
namespace {

TEST(SimplifyInference, IdentityAndDropoutGo) {
  expect_becomes(simplify_inference, R"(graph g(%x: f32[n]) {
  %a = Identity(%x) @a
  %b = Relu(%a) @b
  %c, _ = Dropout(%b) @c
  %d = Neg(%c) @d
  return %d
})",
                 R"(graph g(%x: f32[n]) {
  %b = Relu(%x) @b
  %d = Neg(%b) @d
  return %d
})");
}

TEST(SimplifyInference, AnOutputKeepsAValueOfItsOwn) {
  expect_unchanged(simplify_inference, "graph g(%x: f32[n]) {\n  %a = Identity(%x) @a\n  return %a, %x\n}");
}

TEST(SimplifyInference, DropoutWhoseMaskIsReadStays) {
  expect_unchanged(simplify_inference,
                   "graph g(%x: f32[n]) {\n  %a, %m = Dropout(%x) @a\n  %b = Neg(%a) @b\n  return %b, %m\n}");
}

TEST(SimplifyInference, DropoutThatTrainsStays) {
  expect_unchanged(simplify_inference, R"(graph g(%x: f32[n], %r: f32[], %t: bool[]) {
  %a = Dropout(%x, %r, %t) @a
  %b = Neg(%a) @b
  return %b
})");
}

TEST(SimplifyInference, BatchNormalizationBehindConvolutionIsScaleAndShift) {
  const std::string text = "graph g(%x: f32[1,2,4,4]) {\n  %w = " + constant({3, 2, 3, 3}, 1) +
                           "\n  %s = " + constant({3}, 2) + "\n  %b = " + constant({3}, 3) +
                           "\n  %m = " + constant({3}, 4) + "\n  %v = constant f32[3] [0.5, 2.0, 0.0]" +
                           "\n  %c = Conv(%x, %w) @c\n  %y = BatchNormalization(%c, %s, %b, %m, %v) @y\n  return %y\n}";
  EXPECT_EQ(expect_same_results(simplify_inference, text).operators(), "Conv Mul Add");
}

TEST(SimplifyInference, WeightsThatAreNoNumbersStayForTheirError) {
  expect_unchanged(
      simplify_inference,
      "graph g(%x: f32[1,2]) {\n  %w = constant string[2,2] [\"a text beyond what a string keeps inside\", \"b\", "
      "\"c\", \"d\"]\n  %y = Gemm(%x, %w) {transB = 1} @y\n  return %y\n}");
}

TEST(FoldConstant, ComputesWhatDependsOnConstantsAlone) {
  expect_becomes(fold_constant, R"(graph g(%x: f32[n]) {
  %a = constant f32[2] [1.0, 2.0]
  %b = constant f32[2] [10.0, 20.0]
  %c = Add(%a, %b) @c
  %d = Neg(%c) @d
  %y = Mul(%x, %d) @y
  return %y
})",
                 R"(graph g(%x: f32[n]) {
  %d = constant f32[2] [-11.0, -22.0]
  %y = Mul(%x, %d) @y
  return %y
})");
}

TEST(FoldConstant, LeavesWhatGrowsAndWhatIsRandom) {
  expect_unchanged(fold_constant, R"(graph g() {
  %x = constant f32[1] [1.0]
  %shape = constant i64[1] [1000000]
  %y = Expand(%x, %shape) @y
  return %y
})");
  expect_unchanged(fold_constant, R"(graph g() {
  %x = constant f32[1] [1.0]
  %y = RandomNormalLike(%x) @y
  return %y
})");
}

TEST(FoldConstant, StopsAtItsLimits) {
  const std::string text = R"(graph g() {
  %a = constant f32[2] [1.0, 2.0]
  %b = Neg(%a) @negate
  return %b
})";
  const auto failure = [&](Context context) {
    ops::Graph graph = ops::parse_text(text);
    try {
      fold_constant(graph, context);
    } catch (const Failure& f) {
      EXPECT_EQ(f.error.code, ErrorCode::limit_exceeded);
      return f.error.message;
    }
    return std::string("none");
  };
  Context small = test_context();
  small.fold_bytes = 4;
  EXPECT_NE(failure(small).find("negate"), std::string::npos);
  Context late = test_context();
  late.check = [] { fail(ErrorCode::limit_exceeded, "too late"); };
  EXPECT_EQ(failure(late), "Neg 'negate': too late");
}

TEST(EliminateCommon, OneNodeAndOneConstantForEqualOnes) {
  expect_becomes(eliminate_common, R"(graph g(%x: f32[n]) {
  %one = constant f32[] [1.0]
  %uno = constant f32[] [1.0]
  %a = Add(%x, %one) @a
  %b = Add(%x, %uno) @b
  %y = Mul(%a, %b) @y
  return %y
})",
                 R"(graph g(%x: f32[n]) {
  %one = constant f32[] [1.0]
  %a = Add(%x, %one) @a
  %y = Mul(%a, %a) @y
  return %y
})");
}

TEST(EliminateCommon, OtherAttributesDtypesOrSignsOfZeroAreNotEqual) {
  expect_unchanged(eliminate_common, R"(graph g(%x: f32[n]) {
  %a = LeakyRelu(%x) {alpha = 0.5} @a
  %b = LeakyRelu(%x) {alpha = 0.25} @b
  %y = Mul(%a, %b) @y
  return %y
})");
  expect_unchanged(eliminate_common, R"(graph g(%x: f32[n]) {
  %p = constant f32[] [0.0]
  %n = constant f32[] [-0.0]
  %a = Div(%x, %p) @a
  %b = Div(%x, %n) @b
  %y = Mul(%a, %b) @y
  return %y
})");
}

TEST(EliminateCommon, RandomNodesStayApart) {
  expect_unchanged(eliminate_common, R"(graph g(%x: f32[4]) {
  %a = RandomNormalLike(%x) @a
  %b = RandomNormalLike(%x) @b
  %y = Sub(%a, %b) @y
  return %y
})");
}

TEST(EliminateDead, DropsWhatNobodyReads) {
  expect_becomes(eliminate_dead, R"(graph g(%x: f32[n]) {
  %a = Neg(%x) @a
  %b = Abs(%a) @b
  %c = Exp(%b) @c
  %y = Relu(%x) @y
  return %y
})",
                 "graph g(%x: f32[n]) {\n  %y = Relu(%x) @y\n  return %y\n}");
}

TEST(EliminateDead, KeepsANodeOfWhichOneOutputIsRead) {
  expect_unchanged(eliminate_dead, R"(graph g(%x: f32[4]) {
  %a, %b = Split(%x) {num_outputs = 2} @a
  return %b
})");
}

}  // namespace
}  // namespace lathe::passes
