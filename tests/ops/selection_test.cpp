// Operators that pick and place elements: TopK, NonZero, Unique, NonMaxSuppression and the scatters.
#include <limits>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(TopK, KeepsTheOrderOfEqualElements) {
  const auto top = run_op("TopK", {floats({3, 1, 3, 2}), longs({3})}, {}, 2);
  expect_tensor(top[0], DType::f32, {3}, {3, 3, 2});
  expect_tensor(top[1], DType::i64, {3}, {0, 2, 3});
  const auto least = run_op("TopK", {floats({3, 1, 1, 2}), longs({2})}, {{"largest", std::int64_t{0}}}, 2);
  expect_tensor(least[1], DType::i64, {2}, {1, 2});
}

TEST(TopK, WorksAlongEveryAxisAndDtype) {
  const Tensor x = longs({5, 2, 8, 1, 9, 4}, {2, 3});
  for (DType t : {DType::f16, DType::bf16, DType::f64, DType::u8, DType::i32, DType::u64}) {
    const auto top = run_op("TopK", {x.cast(t), longs({1})}, {{"axis", std::int64_t{0}}}, 2);
    expect_tensor(top[0], t, {1, 3}, {5, 9, 8});
    expect_tensor(top[1], DType::i64, {1, 3}, {0, 1, 0});
  }
  expect_tensor(run_op("TopK", {x, longs({0})}, {}, 2)[0], DType::i64, {2, 0}, {});
  expect_tensor(run_op("TopK", {floats({1, static_cast<float>(kNan), 2}), longs({2})}, {}, 2)[0], DType::f32, {2},
                {kNan, 2});
}

TEST(TopK, RefusesTooLargeK) {
  EXPECT_NE(refusal("TopK", {floats({1, 2}), longs({3})}, {}, 2).find("k is 3, but axis 0 has 2 elements"),
            std::string::npos);
  EXPECT_NE(refusal("TopK", {floats({1, 2}), longs({-1})}, {}, 2).find("k is -1"), std::string::npos);
}

TEST(NonZero, ListsPositionsByRow) {
  expect_tensor(run("NonZero", {floats({0, 2, 3, 0}, {2, 2})}), DType::i64, {2, 2}, {0, 1, 1, 0});
  expect_tensor(run("NonZero", {bools({false, false})}), DType::i64, {1, 0}, {});
  expect_tensor(run("NonZero", {Tensor::scalar(5.0F)}), DType::i64, {0, 1}, {});
  expect_tensor(run("NonZero", {texts({"", "a"}, {2})}), DType::i64, {1, 1}, {1});
}

TEST(Unique, SortsOrKeepsTheFirstOrder) {
  const Tensor x = floats({2, 1, 1, 3, 4, 3});
  const auto sorted = run_op("Unique", {x}, {}, 4);
  expect_tensor(sorted[0], DType::f32, {4}, {1, 2, 3, 4});
  expect_tensor(sorted[1], DType::i64, {4}, {1, 0, 3, 4});
  expect_tensor(sorted[2], DType::i64, {6}, {1, 0, 0, 2, 3, 2});
  expect_tensor(sorted[3], DType::i64, {4}, {2, 1, 2, 1});
  const auto first = run_op("Unique", {x}, {{"sorted", std::int64_t{0}}}, 4);
  expect_tensor(first[0], DType::f32, {4}, {2, 1, 3, 4});
  expect_tensor(first[2], DType::i64, {6}, {0, 1, 1, 2, 3, 2});
  const auto slices = run_op("Unique", {longs({1, 0, 1, 0, 2, 2}, {3, 2})}, {{"axis", std::int64_t{0}}}, 1);
  expect_tensor(slices[0], DType::i64, {2, 2}, {1, 0, 2, 2});
  EXPECT_EQ(run("Unique", {texts({"b", "a", "b"}, {3})}).view<std::string>()[0], "a");
}

TEST(NonMaxSuppression, DropsWhatOverlaps) {
  const Tensor boxes = floats({0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, 10, 1, 11}, {1, 3, 4});
  const Tensor scores = floats({0.9F, 0.75F, 0.6F}, {1, 1, 3});
  const Tensor half = Tensor::scalar(0.5F);
  expect_tensor(run("NonMaxSuppression", {boxes, scores, longs({3}), half}), DType::i64, {2, 3}, {0, 0, 0, 0, 0, 2});
  expect_tensor(run("NonMaxSuppression", {boxes, scores, longs({3}), half, Tensor::scalar(0.7F)}), DType::i64, {1, 3},
                {0, 0, 0});
  expect_tensor(run("NonMaxSuppression", {boxes, scores}), DType::i64, {0, 3}, {});
  EXPECT_NE(refusal("NonMaxSuppression", {boxes, floats({1, 2}, {1, 1, 2})}).find("boxes must have shape"),
            std::string::npos);
}

TEST(ScatterElements, WritesAlongAnAxis) {
  const Tensor data = floats({1, 2, 3, 4, 5}, {1, 5});
  const Tensor updates = floats({10, 20}, {1, 2});
  const auto scatter = [&](const Tensor& indices, std::string reduction) {
    return run("ScatterElements", {data, indices, updates},
               {{"axis", std::int64_t{1}}, {"reduction", std::move(reduction)}});
  };
  expect_tensor(scatter(longs({1, -1}, {1, 2}), "none"), DType::f32, {1, 5}, {1, 10, 3, 4, 20});
  expect_tensor(scatter(longs({1, 1}, {1, 2}), "add"), DType::f32, {1, 5}, {1, 32, 3, 4, 5});
  expect_tensor(scatter(longs({1, 1}, {1, 2}), "mul"), DType::f32, {1, 5}, {1, 400, 3, 4, 5});
  expect_tensor(scatter(longs({1, 3}, {1, 2}), "max"), DType::f32, {1, 5}, {1, 10, 3, 20, 5});
  expect_tensor(scatter(longs({1, 3}, {1, 2}), "min"), DType::f32, {1, 5}, {1, 2, 3, 4, 5});
  const Tensor rows = run("ScatterElements",
                          {Tensor(DType::i32, {2, 2}), longs({1, 0}, {1, 2}), floats({7, 8}, {1, 2}).cast(DType::i32)});
  expect_tensor(rows, DType::i32, {2, 2}, {0, 8, 7, 0});
  const Tensor half = run("ScatterElements", {data.cast(DType::f16), longs({1, 1}, {1, 2}), updates.cast(DType::f16)},
                          {{"axis", std::int64_t{1}}, {"reduction", "add"}});
  expect_tensor(half, DType::f16, {1, 5}, {1, 32, 3, 4, 5});
  EXPECT_EQ(run("ScatterElements", {texts({"a", "b"}, {2}), longs({1}), texts({"c"}, {1})}).view<std::string>()[1],
            "c");
}

TEST(ScatterElements, RefusesBadIndices) {
  const Tensor data = floats({1, 2, 3});
  EXPECT_NE(refusal("ScatterElements", {data, longs({3}), floats({0})}).find("index 3 is outside [-3, 3)"),
            std::string::npos);
  EXPECT_NE(
      refusal("ScatterElements", {data, longs({0, 1}), floats({0})}).find("indices and updates must have one shape"),
      std::string::npos);
  EXPECT_NE(
      refusal("ScatterElements", {data, longs({0}), floats({0})}, {{"reduction", "sub"}}).find("reduction must be"),
      std::string::npos);
}

TEST(ScatterNd, WritesBlocks) {
  const Tensor data = floats({1, 2, 3, 4}, {2, 2});
  expect_tensor(run("ScatterND", {data, longs({1}, {1, 1}), floats({8, 9}, {1, 2})}), DType::f32, {2, 2}, {1, 2, 8, 9});
  expect_tensor(run("ScatterND", {data, longs({0, 1, 0, 1}, {2, 2}), floats({8, 9})}, {{"reduction", "add"}}),
                DType::f32, {2, 2}, {1, 19, 3, 4});
  EXPECT_NE(refusal("ScatterND", {data, longs({2}, {1, 1}), floats({8, 9}, {1, 2})}).find("index 2 is outside [-2, 2)"),
            std::string::npos);
  EXPECT_NE(refusal("ScatterND", {data, longs({1}, {1, 1}), floats({8})}).find("updates must have shape 1x2"),
            std::string::npos);
}

TEST(TensorScatter, WrapsInACircularCache) {
  const Tensor cache = floats({1, 2, 3, 4}, {1, 4, 1});
  const Tensor update = floats({8, 9}, {1, 2, 1});
  expect_tensor(run("TensorScatter", {cache, update, longs({1})}), DType::f32, {1, 4, 1}, {1, 8, 9, 4});
  expect_tensor(run("TensorScatter", {cache, update, longs({3})}, {{"mode", "circular"}}), DType::f32, {1, 4, 1},
                {9, 2, 3, 8});
  EXPECT_NE(refusal("TensorScatter", {cache, update, longs({3})}).find("write index 3"), std::string::npos);
}

}  // namespace
}  // namespace lathe::ops
