// Forms of operators that newer opsets say otherwise, by what they compute.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/engine_of.h"

namespace lathe::tests {
namespace {

using namespace onnx;
using Floats = std::vector<float>;

Floats elements(const Tensor& t) {
  const auto view = t.view<float>();
  return {view.begin(), view.end()};
}

TEST(OlderForms, TileOfOneAxis) {
  for (const float axis : {1.0F, -1.0F}) {
    const Engine engine =
        engine_of({.graph = {.nodes = {{"Tile", {"x", "tiles", "axis"}, {"y"}}},
                             .inputs = {value("x", DType::f32, {2, "n"})},
                             .outputs = {value("y", DType::f32, {2, "m"})},
                             .initializers = {tensor("tiles", {1}, Floats{2}), tensor("axis", {1}, Floats{axis})}},
                   .opset = 5});
    const Outputs out = engine.run({{"x", Tensor::from<float>({1, 2, 3, 4}, {2, 2})}});
    EXPECT_EQ(out[0].shape(), (Shape{2, 4}));
    EXPECT_EQ(elements(out[0].tensor()), (Floats{1, 2, 1, 2, 3, 4, 3, 4}));
  }
}

TEST(OlderForms, SplitSizesOfTheDatasDtype) {
  const Engine engine = engine_of({.graph = {.nodes = {{"Split", {"x", "sizes"}, {"a", "b"}}},
                                             .inputs = {value("x", DType::f32, {3})},
                                             .outputs = {value("a", DType::f32, {1}), value("b", DType::f32, {2})},
                                             .initializers = {tensor("sizes", {2}, Floats{1, 2})}},
                                   .opset = 1});
  const Outputs out = engine.run({{"x", Tensor::from<float>({1, 2, 3}, {3})}});
  EXPECT_EQ(elements(out[0].tensor()), Floats{1});
  EXPECT_EQ(elements(out[1].tensor()), (Floats{2, 3}));
}

TEST(OlderForms, LabelEncoderOfAListOfClasses) {
  const auto model = [](DType from, DType to) {
    return ModelSpec{.graph = {.nodes = {{"LabelEncoder",
                                          {"x"},
                                          {"y"},
                                          {attr("classes_strings", Names{"cat", "dog"}), attr("default_int64", 7)},
                                          "",
                                          "ai.onnx.ml"}},
                               .inputs = {value("x", from, {3})},
                               .outputs = {value("y", to, {3})}},
                     .opsets = {opset("ai.onnx.ml", 1)}};
  };
  const Outputs positions =
      engine_of(model(DType::string, DType::i64)).run({{"x", Tensor::from<std::string>({"dog", "cow", "cat"}, {3})}});
  const auto found = positions[0].view<std::int64_t>();
  EXPECT_EQ((Ints{found.begin(), found.end()}), (Ints{1, 7, 0}));
  const Outputs names =
      engine_of(model(DType::i64, DType::string)).run({{"x", Tensor::from<std::int64_t>({0, 5, 1}, {3})}});
  const auto said = names[0].view<std::string>();
  EXPECT_EQ((Names{said.begin(), said.end()}), (Names{"cat", "_Unused", "dog"}));
}

ModelSpec batch_normalization(const Names& outputs, const std::vector<Bytes>& declared) {
  return {.graph = {.nodes = {{"BatchNormalization", {"x", "s", "b", "m", "v"}, outputs, {attr("momentum", 0.75F)}}},
                    .inputs = {value("x", DType::f32, {4, 1})},
                    .outputs = declared,
                    .initializers = {tensor("s", {1}, Floats{1}), tensor("b", {1}, Floats{0}),
                                     tensor("m", {1}, Floats{4}), tensor("v", {1}, Floats{9})}},
          .opset = 9};
}

TEST(OlderForms, BatchNormalizationTrainsWhereItsStatisticsAreRead) {
  const Bytes y = value("y", DType::f32, {4, 1});
  const Tensor x = Tensor::from<float>({0, 2, 2, 4}, {4, 1});  // of mean 2 and variance 2
  const Names all = {"y", "mean", "var", "saved_mean", "saved_var"};
  const Outputs inferred = engine_of(batch_normalization(all, {y})).run({{"x", x}});
  EXPECT_NEAR(inferred[0].view<float>()[0], -4.0F / 3, 1e-4);
  std::vector<Bytes> declared = {y};
  for (std::size_t i = 1; i < all.size(); ++i) declared.push_back(value(all[i], DType::f32, {1}));
  const Outputs trained = engine_of(batch_normalization(all, declared)).run({{"x", x}});
  EXPECT_NEAR(trained[0].view<float>()[0], -std::sqrt(2.0F), 1e-4);
  const float expected[] = {3.5F, 7.25F, 2, 2};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(trained[i + 1].view<float>()[0], expected[i], 1e-4) << all[i + 1];
}

/// Sums of what came so far, of every sequence of a batch. The body reads `bias` of the graph around it.
ModelSpec scan_8(const std::string& lengths, int direction) {
  const Bytes body = graph({.nodes = {{"Add", {"sum", "x"}, {"added"}},
                                      {"Add", {"added", "bias"}, {"next"}},
                                      {"Identity", {"next"}, {"out"}}},
                            .inputs = {value("sum", DType::f32, {1}), value("x", DType::f32, {1})},
                            .outputs = {value("next", DType::f32, {1}), value("out", DType::f32, {1})},
                            .name = "body"});
  return {.graph = {.nodes = {{"Scan",
                               {lengths, "start", "xs"},
                               {"last", "all"},
                               {attr_graph("body", body), attr("num_scan_inputs", 1),
                                attr("directions", Ints{direction})}}},
                    .inputs = {value("lengths", DType::i64, {2}), value("start", DType::f32, {2, 1}),
                               value("xs", DType::f32, {2, 3, 1}), value("bias", DType::f32, {1})},
                    .outputs = {value("last", DType::f32, {2, 1}), value("all", DType::f32, {2, 3, 1})}},
          .opset = 8};
}

Outputs scanned(const ModelSpec& spec, std::initializer_list<std::int64_t> lengths) {
  return engine_of(spec).run({{"lengths", Tensor::from(lengths, {2})},
                              {"start", Tensor::from<float>({0, 100}, {2, 1})},
                              {"xs", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3, 1})},
                              {"bias", Tensor::from<float>({0}, {1})}});
}

TEST(OlderForms, ScanOverSequencesOfStatedLengths) {
  const Outputs whole = scanned(scan_8("", 0), {3, 3});
  EXPECT_EQ(elements(whole[0].tensor()), (Floats{6, 115}));
  EXPECT_EQ(elements(whole[1].tensor()), (Floats{1, 3, 6, 104, 109, 115}));
  const Outputs cut = scanned(scan_8("lengths", 0), {2, 3});
  EXPECT_EQ(elements(cut[0].tensor()), (Floats{3, 115}));
  EXPECT_EQ(elements(cut[1].tensor()), (Floats{1, 3, 0, 104, 109, 115}));
  const Outputs backwards = scanned(scan_8("lengths", 1), {2, 0});
  EXPECT_EQ(elements(backwards[0].tensor()), (Floats{3, 100}));
  EXPECT_EQ(elements(backwards[1].tensor()), (Floats{2, 3, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace lathe::tests
