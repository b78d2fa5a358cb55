// fold_scale_axis: scales and shifts move into weights and bias; where that would change a result it declines.
#include <gtest/gtest.h>

#include "tests/passes/pass_run.h"

namespace lathe::passes {
namespace {

/// x -> `op` with weight w -> Mul by s -> Add of t.
std::string scaled(const std::string& x, const std::string& op, const Shape& w, const Shape& s, const Shape& t) {
  return "graph g(%x: " + x + ") {\n  %w = " + constant(w, 1) + "\n  %s = " + constant(s, 2) +
         "\n  %t = " + constant(t, 3) + "\n  %c = " + op +
         " @c\n  %m = Mul(%c, %s) @m\n  %y = Add(%t, %m) @y\n  return %y\n}";
}

TEST(FoldScaleAxis, BehindConvolution) {
  const PassResult r = expect_same_results(
      fold_scale_axis, scaled("f32[1,2,5,5]", "Conv(%x, %w)", {4, 2, 3, 3}, {4, 1, 1}, {1, 4, 1, 1}));
  EXPECT_EQ(r.operators(), "Conv");
  EXPECT_EQ(r.changes, 2U);
}

TEST(FoldScaleAxis, BehindConvolutionWithBias) {
  const std::string text = "graph g(%x: f32[1,2,5,5]) {\n  %w = " + constant({3, 2, 2, 2}, 1) +
                           "\n  %b = " + constant({3}, 4) + "\n  %s = " + constant({3, 1, 1}, 2) +
                           "\n  %c = Conv(%x, %w, %b) @c\n  %y = Mul(%s, %c) @y\n  return %y\n}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Conv");
}

TEST(FoldScaleAxis, BehindGroupedAndDepthwiseConvolution) {
  EXPECT_EQ(expect_same_results(fold_scale_axis,
                                scaled("f32[2,4,5,5]", "Conv(%x, %w) {group = 2}", {6, 2, 3, 3}, {6, 1, 1}, {6, 1, 1}))
                .operators(),
            "Conv");
  EXPECT_EQ(expect_same_results(fold_scale_axis, scaled("f32[1,4,5,5]", "Conv(%x, %w) {group = 4, pads = [1, 1, 1, 1]}",
                                                        {4, 1, 3, 3}, {4, 1, 1}, {4, 1, 1}))
                .operators(),
            "Conv");
}

TEST(FoldScaleAxis, BehindTransposedConvolution) {
  EXPECT_EQ(expect_same_results(fold_scale_axis,
                                scaled("f32[1,3,4,4]", "ConvTranspose(%x, %w)", {3, 2, 2, 2}, {2, 1, 1}, {2, 1, 1}))
                .operators(),
            "ConvTranspose");
  EXPECT_EQ(expect_same_results(fold_scale_axis, scaled("f32[1,4,4,4]", "ConvTranspose(%x, %w) {group = 2}",
                                                        {4, 3, 2, 2}, {6, 1, 1}, {6, 1, 1}))
                .operators(),
            "ConvTranspose");
}

TEST(FoldScaleAxis, BehindMatMulOnlyTheScale) {
  const PassResult r = expect_same_results(fold_scale_axis, scaled("f32[2,3,4]", "MatMul(%x, %w)", {4, 5}, {5}, {5}));
  EXPECT_EQ(r.operators(), "MatMul Add");
}

TEST(FoldScaleAxis, AScalarScalesEveryChannel) {
  EXPECT_EQ(
      expect_same_results(fold_scale_axis, scaled("f32[1,2,5,5]", "Conv(%x, %w)", {4, 2, 3, 3}, {}, {1})).operators(),
      "Conv");
  EXPECT_EQ(expect_same_results(fold_scale_axis, scaled("f32[3,4]", "MatMul(%x, %w)", {4, 5}, {}, {5})).operators(),
            "MatMul Add");
}

std::string in_front(const std::string& op, const Shape& w) {
  return "graph g(%x: f32[1,4,5,5]) {\n  %w = " + constant(w, 1) + "\n  %s = " + constant({1, 4, 1, 1}, 2) +
         "\n  %m = Mul(%x, %s) @m\n  %y = " + op + " @y\n  return %y\n}";
}

TEST(FoldScaleAxis, InFrontOfConvolution) {
  const std::string pads = " {pads = [1, 1, 1, 1]}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, in_front("Conv(%m, %w)" + pads, {3, 4, 3, 3})).operators(), "Conv");
  EXPECT_EQ(expect_same_results(fold_scale_axis, in_front("Conv(%m, %w) {group = 2}", {6, 2, 3, 3})).operators(),
            "Conv");
  EXPECT_EQ(expect_same_results(fold_scale_axis, in_front("Conv(%m, %w) {group = 4}", {4, 1, 2, 2})).operators(),
            "Conv");
}

TEST(FoldScaleAxis, InFrontStaysWhatMakesTheChannels) {
  for (const char* x : {"f32[1,1,5,5]", "f32[4,5,5]"}) {
    const std::string text = "graph g(%x: " + std::string(x) + ") {\n  %w = " + constant({3, 4, 3, 3}, 1) +
                             "\n  %s = " + constant({1, 4, 1, 1}, 2) +
                             "\n  %m = Mul(%x, %s) @m\n  %y = Conv(%m, %w) @y\n  return %y\n}";
    EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Mul Conv") << x;
  }
}

TEST(FoldScaleAxis, AShiftInFrontStaysBecauseOfThePadding) {
  const std::string text = "graph g(%x: f32[1,2,3,3]) {\n  %w = " + constant({2, 2, 3, 3}, 1) +
                           "\n  %t = " + constant({2, 1, 1}, 2) +
                           "\n  %a = Add(%x, %t) @a\n  %y = Conv(%a, %w) {pads = [1, 1, 1, 1]} @y\n  return %y\n}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Add Conv");
}

TEST(FoldScaleAxis, DeclinesWhereTheIntermediateHasAnotherReader) {
  const std::string text = "graph g(%x: f32[1,2,3,3]) {\n  %w = " + constant({2, 2, 3, 3}, 1) +
                           "\n  %s = " + constant({2, 1, 1}, 2) +
                           "\n  %c = Conv(%x, %w) @c\n  %y = Mul(%c, %s) @y\n  return %y, %c\n}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Conv Mul");
}

TEST(FoldScaleAxis, DeclinesWhereTheWeightHasAnotherReader) {
  const std::string text =
      "graph g(%x: f32[1,2,3,3]) {\n  %w = " + constant({2, 2, 3, 3}, 1) + "\n  %s = " + constant({2, 1, 1}, 2) +
      "\n  %c = Conv(%x, %w) @c\n  %y = Mul(%c, %s) @y\n  %z = Conv(%x, %w) @z\n  return %y, %z\n}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Conv Mul Conv");
}

TEST(FoldScaleAxis, InFrontDeclinesWhereTheWeightHasAnotherReader) {
  const std::string text =
      "graph g(%x: f32[1,4,3,3]) {\n  %w = " + constant({2, 4, 2, 2}, 1) + "\n  %s = " + constant({1, 4, 1, 1}, 2) +
      "\n  %m = Mul(%x, %s) @m\n  %y = Conv(%m, %w) @y\n  %z = Conv(%x, %w) @z\n  return %y, %z\n}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Mul Conv Conv");
}

/// A layer's projection to heads, as attention scales it; `between` makes %v of %b.
std::string heads(const std::string& between, const std::string& scale = "constant f32[] [0.25]",
                  const std::string& result = "%y") {
  return "graph g(%x: f32[2,3,4]) {\n  %w = " + constant({4, 6}, 1) + "\n  %bias = " + constant({6}, 2) +
         "\n  %to = constant i64[4] [2, 3, 2, 3]\n  %merged = constant i64[3] [4, 3, 3]\n  %s = " + scale +
         "\n  %m = MatMul(%x, %w) @m\n  %b = Add(%bias, %m) @b\n" + between + "  %y = Mul(%s, %v) @y\n  return " +
         result + "\n}";
}

TEST(FoldScaleAxis, OneValueGoesThroughViewsAndShifts) {
  const std::string views =
      "  %r = Reshape(%b, %to) @r\n  %t = Transpose(%r) {perm = [0, 2, 1, 3]} @t\n  %v = Reshape(%t, %merged) @v\n";
  EXPECT_EQ(expect_same_results(fold_scale_axis, heads(views)).operators(), "MatMul Add Reshape Transpose Reshape");
}

TEST(FoldScaleAxis, NothingGoesThroughWhatOthersReadOrBends) {
  EXPECT_EQ(
      expect_same_results(fold_scale_axis, heads("  %v = Reshape(%b, %to) @v\n", "constant f32[] [0.25]", "%y, %b"))
          .operators(),
      "MatMul Add Reshape Mul");
  EXPECT_EQ(expect_same_results(fold_scale_axis, heads("  %v = Relu(%b) @v\n")).operators(), "MatMul Add Relu Mul");
  EXPECT_EQ(
      expect_same_results(fold_scale_axis, heads("  %v = Reshape(%b, %to) @v\n", "constant f32[3] [1.0, 2.0, 3.0]"))
          .operators(),
      "MatMul Add Reshape Mul");
}

TEST(FoldScaleAxis, DeclinesWhereAScaleIsNotPerChannel) {
  EXPECT_EQ(expect_same_results(fold_scale_axis, scaled("f32[1,2,5,5]", "Conv(%x, %w)", {4, 2, 3, 3}, {3}, {4, 1, 1}))
                .operators(),
            "Conv Mul Add");
  EXPECT_EQ(expect_same_results(fold_scale_axis,
                                scaled("f32[1,2,5,5]", "Conv(%x, %w)", {4, 2, 3, 3}, {1, 4, 3, 3}, {4, 1, 1}))
                .operators(),
            "Conv Mul Add");
  EXPECT_EQ(expect_same_results(fold_scale_axis, scaled("f32[3,4]", "MatMul(%x, %w)", {4, 3}, {3, 1}, {3})).operators(),
            "MatMul Mul Add");
}

/// MatMul by the constant `w`, and Mul of one value behind it.
std::string scaled_by(const std::string& factor, const std::string& x, const std::string& w) {
  return "graph g(%x: " + x + ") {\n  %w = constant " + w + "\n  %s = constant f32[] [" + factor +
         "]\n  %m = MatMul(%x, %w) @m\n  %y = Mul(%m, %s) @y\n  return %y\n}";
}

TEST(FoldScaleAxis, DeclinesWhereAWeightWouldBecomeInfinite) {
  const std::string text =
      "graph g(%x: f32[1,1,2,2]) {\n  %w = constant f32[1,1,1,1] [1e30]\n  %s = constant f32[] [1e30]\n"
      "  %c = Conv(%x, %w) @c\n  %y = Mul(%c, %s) @y\n  return %y\n}";
  EXPECT_EQ(run_pass(fold_scale_axis, text).operators(), "Conv Mul");
}

TEST(FoldScaleAxis, DeclinesWhereWeightsWouldVanish) {
  // x can be as large as w is small.
  const auto text = [](const std::string& body) {
    return "graph g(%x: f32[1,1,2,2]) {\n  %w = constant f32[1,1,1,2] [1e-30, 0.0]\n  %s = constant f32[] [1e-20]\n" +
           body + "  return %y\n}";
  };
  EXPECT_EQ(run_pass(fold_scale_axis, text("  %c = Conv(%x, %w) @c\n  %y = Mul(%c, %s) @y\n")).operators(), "Conv Mul");
  EXPECT_EQ(run_pass(fold_scale_axis, text("  %c = Mul(%x, %s) @c\n  %y = Conv(%c, %w) @y\n")).operators(), "Mul Conv");
}

TEST(FoldScaleAxis, AFactorOfZeroIsFolded) {
  EXPECT_EQ(
      expect_same_results(fold_scale_axis, scaled_by("0.0", "f32[2,2]", "f32[2,3] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]"))
          .operators(),
      "MatMul");
}

TEST(FoldScaleAxis, DeclinesWhereAFactorIsNotFinite) {
  // A sum over nothing is 0, and 0 · inf is no number.
  const PassResult r = run_pass(fold_scale_axis, scaled_by("inf", "f32[2,0]", "f32[0,3] []"));
  EXPECT_EQ(r.operators(), "MatMul Mul");
}

TEST(FoldScaleAxis, DeclinesWhereTheWeightIsNoConstant) {
  const std::string text =
      "graph g(%x: f32[1,1,3,3], %w: f32[1,1,2,2]) {\n  %s = constant f32[] [2.0]\n"
      "  %c = Conv(%x, %w) @c\n  %y = Mul(%c, %s) @y\n  return %y\n}";
  EXPECT_EQ(expect_same_results(fold_scale_axis, text).operators(), "Conv Mul");
}

}  // namespace
}  // namespace lathe::passes
