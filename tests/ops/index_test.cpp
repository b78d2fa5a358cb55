// Operators that index or generate: which element is taken, what an index out of range says, what is made from
// coordinates.
#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

bool mentions(const std::string& message, std::string_view text) { return message.find(text) != std::string::npos; }

TEST(Gather, TakesSlices) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  expect_tensor(run("Gather", {x, longs({1, -2})}), DType::f32, {2, 3}, {4, 5, 6, 1, 2, 3});
  expect_tensor(run("Gather", {x, longs({2, 0, 1, -1}, {2, 2})}, {{"axis", std::int64_t{1}}}), DType::f32, {2, 2, 2},
                {3, 1, 2, 3, 6, 4, 5, 6});
  expect_tensor(run("Gather", {x, longs({-1}, {})}), DType::f32, {3}, {4, 5, 6});
  EXPECT_EQ(run("Gather", {texts({"a", "b"}, {2}), longs({1})}).view<std::string>()[0], "b");
  expect_tensor(run("Gather", {Tensor(DType::f32, {0, 2}), Tensor(DType::i64, {0})}), DType::f32, {0, 2}, {});
}

TEST(Gather, ReportsTheIndex) {
  EXPECT_TRUE(mentions(refusal("Gather", {floats({1, 2}), longs({0, 2})}), "index 2"));
  EXPECT_TRUE(mentions(refusal("Gather", {floats({1, 2}), longs({-3})}), "index -3"));
  EXPECT_TRUE(mentions(refusal("Gather", {floats({1, 2}), floats({0})}), "i32 or i64"));
  EXPECT_TRUE(mentions(refusal("GatherElements", {floats({1, 2}), longs({5, 0})}), "index 5"));
}

TEST(GatherElements, OneIndexPerElement) {
  const Tensor x = floats({1, 2, 3, 4}, {2, 2});
  expect_tensor(run("GatherElements", {x, longs({0, 0, 1, -2}, {2, 2})}, {{"axis", std::int64_t{1}}}), DType::f32,
                {2, 2}, {1, 1, 4, 3});
  expect_tensor(run("GatherElements", {x, longs({1, 0}, {1, 2})}), DType::f32, {1, 2}, {3, 2});
  EXPECT_TRUE(mentions(refusal("GatherElements", {x, longs({0})}), "rank"));
}

TEST(GatherND, IndexTuples) {
  const Tensor x = longs({0, 1, 2, 3, 4, 5, 6, 7}, {2, 2, 2});
  expect_tensor(run("GatherND", {x, longs({0, 1, 1, 0}, {2, 2})}), DType::i64, {2, 2}, {2, 3, 4, 5});
  expect_tensor(run("GatherND", {x, longs({1, 0}, {2, 1})}, {{"batch_dims", std::int64_t{1}}}), DType::i64, {2, 2},
                {2, 3, 4, 5});
  expect_tensor(run("GatherND", {x, longs({-1, -1, -1}, {3})}), DType::i64, {}, {7});
  EXPECT_TRUE(mentions(refusal("GatherND", {x, longs({0, 2}, {1, 2})}), "index 2"));
  EXPECT_TRUE(mentions(refusal("GatherND", {x, longs({0, 0, 0, 0}, {1, 4})}), "expected 1 to 3"));
}

TEST(ReverseSequence, ReversesEachLength) {
  const Tensor x = floats({0, 1, 2, 3, 4, 5}, {3, 2});
  expect_tensor(run("ReverseSequence", {x, longs({3, 2})}), DType::f32, {3, 2}, {4, 3, 2, 1, 0, 5});
  EXPECT_TRUE(mentions(refusal("ReverseSequence", {x, longs({4, 1})}), "index 3"));
  EXPECT_TRUE(mentions(refusal("ReverseSequence", {x, longs({1})}), "sequence_lens"));
}

TEST(Compress, KeepsWhatTheConditionSelects) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, {3, 2});
  expect_tensor(run("Compress", {x, bools({false, true, true})}, {{"axis", std::int64_t{0}}}), DType::f32, {2, 2},
                {3, 4, 5, 6});
  expect_tensor(run("Compress", {x, bools({true})}, {{"axis", std::int64_t{-1}}}), DType::f32, {3, 1}, {1, 3, 5});
  expect_tensor(run("Compress", {x, bools({false, true, false, true})}), DType::f32, {2}, {2, 4});
  EXPECT_TRUE(mentions(refusal("Compress", {floats({1}), bools({false, true})}), "extent 1"));
}

TEST(Range, CountsUpAndDown) {
  expect_tensor(run("Range", {Tensor::scalar<std::int64_t>(10), Tensor::scalar<std::int64_t>(4),
                              Tensor::scalar<std::int64_t>(-2)}),
                DType::i64, {3}, {10, 8, 6});
  expect_tensor(run("Range", {Tensor::scalar(1.0F), Tensor::scalar(2.0F), Tensor::scalar(0.25F)}), DType::f32, {4},
                {1, 1.25, 1.5, 1.75});
  expect_tensor(run("Range", {Tensor::scalar(3.0F), Tensor::scalar(1.0F), Tensor::scalar(1.0F)}), DType::f32, {0}, {});
  EXPECT_TRUE(
      mentions(refusal("Range", {Tensor::scalar(0.0F), Tensor::scalar(1.0F), Tensor::scalar(0.0F)}), "no finite"));
  EXPECT_TRUE(mentions(refusal("Range", {longs({0}), longs({1}), longs({0})}), "delta is 0"));
}

TEST(ConstantOfShape, FillsAnyDtype) {
  expect_tensor(run("ConstantOfShape", {longs({2, 2})}), DType::f32, {2, 2}, {0, 0, 0, 0});
  expect_tensor(run("ConstantOfShape", {longs({2})}, {{"value", longs({7}).cast(DType::bf16)}}), DType::bf16, {2},
                {7, 7});
  expect_tensor(run("ConstantOfShape", {longs({1})}, {{"value", bools({true})}}), DType::boolean, {1}, {1});
  expect_tensor(run("ConstantOfShape", {Tensor(DType::i64, {0})}), DType::f32, {}, {0});
  expect_tensor(run("ConstantOfShape", {longs({2}).cast(DType::i32)}), DType::f32, {2}, {0, 0});  // of ConstantFill
  EXPECT_TRUE(mentions(refusal("ConstantOfShape", {longs({-1})}), "negative"));
}

TEST(EyeLike, OnesOnADiagonal) {
  const Tensor x(DType::i32, {2, 3});
  expect_tensor(run("EyeLike", {x}, {{"k", std::int64_t{1}}}), DType::i32, {2, 3}, {0, 1, 0, 0, 0, 1});
  expect_tensor(run("EyeLike", {x}, {{"dtype", static_cast<std::int64_t>(DType::f16)}, {"k", std::int64_t{-1}}}),
                DType::f16, {2, 3}, {0, 0, 0, 1, 0, 0});
  EXPECT_TRUE(mentions(refusal("EyeLike", {longs({1})}), "rank 2"));
}

TEST(OneHot, WrapsNegativesAndIgnoresWhatIsOutside) {
  expect_tensor(run("OneHot", {longs({0, -1, 5}), Tensor::scalar<std::int64_t>(3), floats({2, 9})}), DType::f32, {3, 3},
                {9, 2, 2, 2, 2, 9, 2, 2, 2});
  expect_tensor(run("OneHot", {longs({1, 0}), Tensor::scalar(2.0F), longs({0, 1})}, {{"axis", std::int64_t{0}}}),
                DType::i64, {2, 2}, {0, 1, 1, 0});
  EXPECT_TRUE(mentions(refusal("OneHot", {longs({0}), longs({3}), floats({1})}), "shape 2"));
}

TEST(Trilu, KeepsATriangle) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3});
  expect_tensor(run("Trilu", {x}), DType::f32, {3, 3}, {1, 2, 3, 0, 5, 6, 0, 0, 9});
  expect_tensor(run("Trilu", {x, Tensor::scalar<std::int64_t>(-1)}, {{"upper", std::int64_t{0}}}), DType::f32, {3, 3},
                {0, 0, 0, 4, 0, 0, 7, 8, 0});
  EXPECT_TRUE(mentions(refusal("Trilu", {floats({1})}), "rank 2"));
}

TEST(Cumulative, DirectionsAndExclusion) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor axis = Tensor::scalar<std::int64_t>(1);
  expect_tensor(run("CumSum", {x, axis}), DType::f32, {2, 3}, {1, 3, 6, 4, 9, 15});
  expect_tensor(run("CumSum", {x, axis}, {{"exclusive", std::int64_t{1}}}), DType::f32, {2, 3}, {0, 1, 3, 0, 4, 9});
  expect_tensor(run("CumSum", {x, axis}, {{"exclusive", std::int64_t{1}}, {"reverse", std::int64_t{1}}}), DType::f32,
                {2, 3}, {5, 3, 0, 11, 6, 0});
  expect_tensor(run("CumProd", {x, Tensor::scalar(-2)}), DType::f32, {2, 3}, {1, 2, 3, 4, 10, 18});
  EXPECT_TRUE(mentions(refusal("CumSum", {x, Tensor::scalar<std::int64_t>(2)}), "axis is 2"));
}

TEST(Shape, IsAValue) {
  const Tensor x(DType::f32, {2, 3, 4});
  expect_tensor(run("Shape", {x}), DType::i64, {3}, {2, 3, 4});
  expect_tensor(run("Shape", {x}, {{"start", std::int64_t{-2}}, {"end", std::int64_t{-1}}}), DType::i64, {1}, {3});
  expect_tensor(run("Shape", {x}, {{"start", std::int64_t{2}}, {"end", std::int64_t{1}}}), DType::i64, {0}, {});
  expect_tensor(run("Size", {x}), DType::i64, {}, {24});
}

}  // namespace
}  // namespace lathe::ops
