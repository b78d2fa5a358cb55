// New shapes of a known structure cost neither passes nor compilation, and the cache stays within its bound.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/engine_of.h"
#include "tests/support/real_models.h"

namespace lathe::tests {
namespace {

/// 51 different shapes of one structure: no extent is 0 or 1.
std::vector<Shapes> shapes_of_one_structure(const std::string& model) {
  std::vector<Shapes> list;
  for (std::int64_t i = 0; i <= 50; ++i) {
    const std::int64_t batch = 2 + i % 3;
    const std::int64_t length = 9 + i;
    if (model == "minilm-int8") {
      Shapes shapes;
      for (const char* name : {"input_ids", "attention_mask", "token_type_ids"})
        shapes.push_back({name, {batch, length}});
      list.push_back(shapes);
    } else if (model == "ppocr-cls") {
      list.push_back({{"x", {batch, 3, 40 + i, 50 + 3 * i}}});
    } else if (model == "chars2vec") {
      list.push_back({{"lstm_input", {batch, length, 59}}});
    } else {
      list.push_back({{"input", {batch + 3 * i, 6}}});
    }
  }
  return list;
}

Inputs zeros(const Engine& engine, const Shapes& shapes) {
  Inputs inputs;
  for (const NamedShape& s : shapes) {
    for (const ValueInfo& info : engine.inputs()) {
      if (info.name == s.name) inputs.add(s.name, Tensor(info.dtype, s.shape));
    }
  }
  return inputs;
}

class Structures : public testing::TestWithParam<const char*> {};

TEST_P(Structures, FiftyNewShapesRunNoPassAndCompileNothing) {
  const Engine engine = Engine::load(model_path(GetParam()), {.threads = 2});
  const std::vector<Shapes> shapes = shapes_of_one_structure(GetParam());
  static_cast<void>(engine.run(zeros(engine, shapes[0])));
  const CacheStats before = engine.cache_stats();
  EXPECT_GT(before.passes_run, 0U);
  EXPECT_GT(before.structures, 0U);
  for (std::size_t i = 1; i < shapes.size(); ++i) static_cast<void>(engine.run(zeros(engine, shapes[i])));
  const CacheStats after = engine.cache_stats();
  EXPECT_EQ(after.passes_run, before.passes_run);
  EXPECT_EQ(after.kernels_compiled, before.kernels_compiled);
  EXPECT_EQ(after.structures, before.structures);
  EXPECT_GE(after.structure_hits, before.structure_hits + 50);
  EXPECT_GE(after.plan_misses, before.plan_misses + 50);
}

INSTANTIATE_TEST_SUITE_P(Models, Structures, testing::Values("minilm-int8", "ppocr-cls", "chars2vec", "surface-mlp"),
                         [](const auto& test) { return test_name(test.param); });

TEST(Specialization, ASecondRunFindsItsPlan) {
  const Engine engine = engine_of(scale_and_shift());
  const Tensor x = Tensor::from<float>({1, 2, 3}, {3});
  static_cast<void>(engine.run(x));
  const CacheStats before = engine.cache_stats();
  EXPECT_EQ(before.plans, 1U);
  static_cast<void>(engine.run(x));
  const CacheStats after = engine.cache_stats();
  EXPECT_EQ(after.plans, 1U);
  EXPECT_EQ(after.plan_misses, before.plan_misses);
  EXPECT_EQ(after.structure_hits, before.structure_hits);
}

TEST(Specialization, ExtentsOfZeroAndOneAreStructuresOfTheirOwn) {
  const Engine engine = engine_of(scale_and_shift());
  for (std::int64_t n : {5, 1, 0, 7}) {
    const Outputs out = engine.run(Tensor(DType::f32, {n}));
    EXPECT_EQ(out[0].shape(), (Shape{n}));
    for (float v : out[0].view<float>()) EXPECT_EQ(v, 1.0F);
  }
  EXPECT_EQ(engine.cache_stats().structures, 3U);
  EXPECT_EQ(engine.cache_stats().structure_hits, 1U);
}

/// x -> op -> [the first three rows] -> Neg -> y.
Engine first_rows(const onnx::NodeSpec& node) {
  return engine_of({.graph = {.nodes = {node, {"Slice", {"a", "zero", "three"}, {"s"}}, {"Neg", {"s"}, {"y"}}},
                              .inputs = {onnx::value("x", DType::f32, {"n", 4})},
                              .outputs = {onnx::value("y", DType::f32, {"m", 4})},
                              .initializers = {onnx::tensor("zero", {1}, onnx::Ints{0}),
                                               onnx::tensor("three", {1}, onnx::Ints{3})}}});
}

TEST(Specialization, ExtentsThatHappenToBeEqualDecideNothingForOthers) {
  const Engine halves = first_rows({"Relu", {"x"}, {"a"}});
  const Engine shares = first_rows({"Softmax", {"x"}, {"a"}, {onnx::attr("axis", 0)}});
  for (const std::int64_t rows : {3, 5, 3, 4, 3, 7}) {
    Tensor x(DType::f32, {rows, 4});
    for (std::int64_t i = 0; i < x.size(); ++i) x.mutable_view<float>()[static_cast<std::size_t>(i)] = 1;
    const Outputs half = halves.run(x), share = shares.run(x);
    ASSERT_EQ(half[0].shape(), (Shape{3, 4}));
    ASSERT_EQ(share[0].shape(), (Shape{3, 4}));
    EXPECT_EQ(half[0].view<float>()[11], -1);
    EXPECT_FLOAT_EQ(share[0].view<float>()[11], -1 / static_cast<float>(rows));
  }
}

TEST(Specialization, MergedDimsThatHappenToSplitAlikeDecideNothingForOthers) {
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Reshape", {"x", "merged"}, {"m"}},
                                     {"Transpose", {"m"}, {"t"}, {onnx::attr("perm", onnx::Ints{0, 2, 1})}},
                                     {"Reshape", {"t", "split"}, {"s"}},
                                     {"Neg", {"s"}, {"n"}},
                                     {"Reshape", {"n", "all"}, {"y"}}},
                           .inputs = {onnx::value("x", DType::f32, {"n", 3, 4, 5})},
                           .outputs = {onnx::value("y", DType::f32, {"k"})},
                           .initializers = {onnx::tensor("merged", {3}, onnx::Ints{6, -1, 5}),
                                            onnx::tensor("split", {4}, onnx::Ints{2, 3, 5, -1}),
                                            onnx::tensor("all", {1}, onnx::Ints{-1})}}});
  for (const std::int64_t n : {2, 4, 2, 6, 4}) {  // only two of x make the six that are split again
    Tensor x(DType::f32, {n, 3, 4, 5});
    std::iota(x.mutable_view<float>().begin(), x.mutable_view<float>().end(), 0.F);
    const Tensor y = engine.run(x)[0].tensor();
    const std::int64_t rows = 2 * n;
    ASSERT_EQ(y.shape(), Shape{6 * rows * 5});
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const std::int64_t block = i / (rows * 5), column = i / rows % 5, row = i % rows;
      ASSERT_EQ(y.number(i), -static_cast<double>((block * rows + row) * 5 + column)) << n << " at " << i;
    }
  }
}

TEST(Specialization, AConstantIsReadInTheOrderThatAConvolutionWants) {
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Conv", {"x", "w", "b"}, {"y"}}},
                           .inputs = {onnx::value("b", DType::f32, {2})},
                           .outputs = {onnx::value("y", DType::f32, {1, 2, 3})},
                           .initializers = {onnx::tensor("x", {1, 2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}),
                                            onnx::tensor("w", {2, 2, 1}, std::vector<float>{1, 0, 0, 1})}}});
  const Tensor y = engine.run(Tensor::from<float>({10, 20}, {2}))[0].tensor();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(y.number(i), i + 1 + (i < 3 ? 10 : 20)) << i;
}

TEST(Specialization, LayersThatDifferInScaleShareTheirKernel) {
  constexpr int kLayers = 20;
  onnx::GraphSpec graph{.nodes = {}, .inputs = {onnx::value("x", DType::f32, {"n", 3})}};
  std::string x = "x";
  for (int i = 0; i < kLayers; ++i) {
    const std::string n = std::to_string(i);
    graph.initializers.push_back(
        onnx::tensor("scale" + n, {}, std::vector<float>{1.3F + 0.1F * static_cast<float>(i)}));
    graph.nodes.push_back({"Mul", {x, "scale" + n}, {"m" + n}, {}, "scale " + n});
    graph.nodes.push_back({"Softmax", {"m" + n}, {"s" + n}, {}, "softmax " + n});
    x = "s" + n;
  }
  graph.outputs = {onnx::value(x, DType::f32, {"n", 3})};
  const Engine engine = engine_of({.graph = graph});
  const Tensor input = Tensor::from<float>({3, 1, 2, -1, 0, 4}, {2, 3});
  const Tensor y = engine.run(input)[0].tensor();
  EXPECT_LE(engine.cache_stats().kernels_compiled, 2U);
  std::vector<double> expected = {3, 1, 2, -1, 0, 4};
  for (int i = 0; i < kLayers; ++i) {
    for (std::size_t row = 0; row < 6; row += 3) {
      double sum = 0;
      for (std::size_t c = row; c < row + 3; ++c) sum += expected[c] = std::exp(expected[c] * (1.3 + 0.1 * i));
      for (std::size_t c = row; c < row + 3; ++c) expected[c] /= sum;
    }
  }
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(y.view<float>()[i], expected[i], 1e-5) << i;
}

TEST(Specialization, AViewOfAFusedValueIsReadInsideAndOutside) {
  const Engine engine = engine_of(
      {.graph = {.nodes = {{"Softmax", {"x"}, {"a"}},
                           {"Slice", {"a", "zero", "one", "axis"}, {"first"}},
                           {"Neg", {"first"}, {"y"}}},
                 .inputs = {onnx::value("x", DType::f32, {"n", "m"})},
                 .outputs = {onnx::value("first", DType::f32, {"n", 1}), onnx::value("y", DType::f32, {"n", 1})},
                 .initializers = {onnx::tensor("zero", {1}, onnx::Ints{0}), onnx::tensor("one", {1}, onnx::Ints{1}),
                                  onnx::tensor("axis", {1}, onnx::Ints{1})}}});
  for (const float x0 : {0.F, 10.F, -10.F}) {
    Tensor x(DType::f32, {2, 4});
    x.mutable_view<float>()[0] = x0;
    const Outputs out = engine.run(x);
    const float expected = std::exp(x0) / (std::exp(x0) + 3);
    EXPECT_NEAR(out[0].view<float>()[0], expected, 1e-6);
    EXPECT_NEAR(out[1].view<float>()[0], -expected, 1e-6);
    EXPECT_NEAR(out[0].view<float>()[1], 0.25, 1e-6);
  }
}

TEST(Specialization, PreparedShapesRunWithoutAMiss) {
  const Engine engine = engine_of(scale_and_shift());
  engine.prepare({{"x", {12}}});
  const CacheStats before = engine.cache_stats();
  EXPECT_EQ(before.plans, 1U);
  static_cast<void>(engine.run(Tensor(DType::f32, {12})));
  EXPECT_EQ(engine.cache_stats().plan_misses, before.plan_misses);
  EXPECT_EQ(engine.cache_stats().kernels_compiled, before.kernels_compiled);
}

TEST(Specialization, CacheBytesBoundTheCache) {
  constexpr std::size_t kLimit = 64 << 10;
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .cache_bytes = kLimit});
  for (std::int64_t n = 2; n < 402; ++n) {
    const Outputs out = engine.run(Tensor(DType::f32, {n}));
    ASSERT_EQ(out[0].view<float>().back(), 1.0F);
    ASSERT_LE(engine.cache_stats().bytes, kLimit);
  }
  EXPECT_GT(engine.cache_stats().evictions, 0U);
  EXPECT_LT(engine.cache_stats().plans, 400U);
}

/// y = (x · 2 + 1) summed over its last dim, for x of rank 6: each pattern of extents of 1 is a structure.
onnx::ModelSpec many_structures() {
  const std::vector<onnx::DimSpec> dims = {"a", "b", "c", "d", "e", "f"};
  onnx::ModelSpec spec = scale_and_shift();
  spec.graph.nodes.push_back({"ReduceSum", {"y", "last"}, {"z"}, {onnx::attr("keepdims", 0)}, "sum"});
  spec.graph.inputs = {onnx::value("x", DType::f32, dims)};
  spec.graph.outputs = {onnx::value("z", DType::f32, {"a", "b", "c", "d", "e"})};
  spec.graph.initializers.push_back(onnx::tensor("last", {1}, onnx::Ints{5}));
  return spec;
}

TEST(Specialization, CacheBytesBoundStructuresAndTheirCode) {
  constexpr std::size_t kLimit = 256 << 10;
  const Engine engine = engine_of(many_structures(), {.threads = 1, .cache_bytes = kLimit});
  constexpr int kStructures = 64;
  constexpr int kRuns = 1024;
  std::size_t most = 0;
  for (int run = 0; run < kRuns; ++run) {
    Shape shape;
    for (int d = 0; d < 6; ++d) shape.push_back((run >> d) & 1 ? 2 + run / kStructures % 3 : 1);
    Tensor x(DType::f32, shape);
    for (float& v : x.mutable_view<float>()) v = 1;
    const Outputs out = engine.run(x);
    for (float v : out[0].view<float>()) ASSERT_EQ(v, 3.0F * static_cast<float>(shape.back())) << shape.to_string();
    const CacheStats stats = engine.cache_stats();
    ASSERT_LE(stats.bytes, kLimit);
    EXPECT_EQ(engine.memory().plans + engine.memory().code, stats.bytes);
    most = std::max(most, stats.structures);
  }
  EXPECT_LT(most, static_cast<std::size_t>(kStructures)) << "the limit was never met";
  EXPECT_GT(engine.memory().code, 0U);
  const CacheStats full = engine.cache_stats();
  EXPECT_GT(full.structures, 1U);
  engine.trim();
  const CacheStats empty = engine.cache_stats();
  EXPECT_EQ(empty.structures, 0U);
  EXPECT_EQ(empty.plans, 0U);
  EXPECT_EQ(empty.bytes, 0U);
  EXPECT_EQ(empty.evictions, full.evictions + full.structures + full.plans);
}

TEST(Specialization, CodeOfNodesThatRunOnTheirOwnIsInTheCache) {
  // The sequence makes the segment run node by node.
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Exp", {"x"}, {"e"}, {}, "exp"},
                                     {"SequenceConstruct", {"e", "x"}, {"s"}, {}, "pair"},
                                     {"ConcatFromSequence", {"s"}, {"y"}, {onnx::attr("axis", 0)}, "join"}},
                           .inputs = {onnx::value("x", DType::f32, {"n"})},
                           .outputs = {onnx::value("y", DType::f32, {"m"})}}});
  static_cast<void>(engine.run(Tensor(DType::f32, {1000})));
  const std::size_t code = engine.memory().code;
  EXPECT_GT(code, 0U);
  const std::uint64_t compiled = engine.cache_stats().kernels_compiled;
  for (std::int64_t n = 1001; n < 1020; ++n) static_cast<void>(engine.run(Tensor(DType::f32, {n})));
  EXPECT_EQ(engine.memory().code, code);
  EXPECT_EQ(engine.cache_stats().kernels_compiled, compiled);
  engine.trim();
  EXPECT_EQ(engine.cache_stats().bytes, 0U);
}

TEST(Specialization, TrimEmptiesTheCacheAndTheEngineGoesOn) {
  const Engine engine = engine_of(scale_and_shift());
  static_cast<void>(engine.run(Tensor(DType::f32, {4})));
  EXPECT_GT(engine.memory().plans, 0U);
  engine.trim();
  EXPECT_EQ(engine.cache_stats().plans, 0U);
  EXPECT_EQ(engine.cache_stats().structures, 0U);
  EXPECT_EQ(engine.cache_stats().bytes, 0U);
  EXPECT_EQ(engine.memory().arenas, 0U);
  EXPECT_EQ(engine.run(Tensor(DType::f32, {4}))[0].view<float>()[3], 1.0F);
}

TEST(Specialization, AValueThatGrowsTooLargeToBeKnownIsComputed) {
  const Engine engine = engine_of({.graph = {.nodes = {{"Shape", {"x"}, {"shape"}},
                                                       {"ConstantOfShape", {"shape"}, {"zeros"}},
                                                       {"Add", {"x", "zeros"}, {"y"}}},
                                             .inputs = {onnx::value("x", DType::f32, {"n"})},
                                             .outputs = {onnx::value("y", DType::f32, {"n"})}}});
  for (std::int64_t n : {10, 5000, 10, 20000, 4096, 4097}) {
    Tensor x(DType::f32, {n});
    for (float& v : x.mutable_view<float>()) v = 3;
    const Outputs out = engine.run(x);
    for (float v : out[0].view<float>()) ASSERT_EQ(v, 3.0F) << n;
  }
}

/// The carried value gets x[i : i + 1] added, so that every iteration slices elsewhere.
onnx::ModelSpec sum_by_slices() {
  return loop_model({{"Reshape", {"i", "minus_one"}, {"from"}},
                     {"Add", {"from", "one"}, {"to"}},
                     {"Slice", {"x", "from", "to"}, {"piece"}, {}, "piece"},
                     {"Add", {"a", "piece"}, {"b"}},
                     go_on()},
                    {1}, {"n"});
}

TEST(Specialization, ALoopThatSlicesByItsCounterBuildsAtMostTwo) {
  onnx::ModelSpec spec = sum_by_slices();
  spec.graph.initializers = {onnx::tensor("minus_one", {1}, onnx::Ints{-1}), onnx::tensor("one", {1}, onnx::Ints{1})};
  const Engine engine = engine_of(spec);
  constexpr std::int64_t kTrips = 10'000;
  std::vector<float> x(kTrips);
  std::iota(x.begin(), x.end(), 0.0F);
  for (float& v : x) v = static_cast<float>(static_cast<int>(v) % 7);
  const Outputs out = engine.run(
      {{"trips", Tensor::scalar(kTrips)}, {"start", Tensor(DType::f32, {1})}, {"x", Tensor::from(x, {kTrips})}});
  EXPECT_EQ(out[0].view<float>()[0], std::accumulate(x.begin(), x.end(), 0.0F));
  EXPECT_LE(engine.cache_stats().plans, 2U);
  EXPECT_LE(engine.cache_stats().plan_misses, 2U);
  EXPECT_LE(engine.cache_stats().structures, 2U);
}

TEST(Specialization, ALoopThatAppendsStaysWithinItsCache) {
  constexpr std::size_t kLimit = 128 << 10;
  const Engine engine =
      engine_of(loop_model({{"Concat", {"a", "x"}, {"b"}, {onnx::attr("axis", 0)}, "append"}, go_on()}, {"n"}, {2}),
                {.threads = 1, .cache_bytes = kLimit});
  const Outputs out = engine.run({{"trips", Tensor::scalar(std::int64_t{1000})},
                                  {"start", Tensor(DType::f32, {0})},
                                  {"x", Tensor::from<float>({1, 2}, {2})}});
  EXPECT_EQ(out[0].shape(), (Shape{2000}));
  EXPECT_EQ(out[0].view<float>()[1998], 1.0F);
  EXPECT_EQ(out[0].view<float>()[1999], 2.0F);
  EXPECT_LE(engine.cache_stats().bytes, kLimit);
  EXPECT_GT(engine.cache_stats().evictions, 0U);
  EXPECT_LE(engine.cache_stats().structures, 3U) << "a length of 0, of 1, and of more";
}

}  // namespace
}  // namespace lathe::tests
