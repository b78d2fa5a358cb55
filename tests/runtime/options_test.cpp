// Passes and backends can be switched off without changing results, and the host's OpenMP settings stay the host's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/pipeline.h"
#include "tests/support/engine_of.h"
#include "tests/support/real_models.h"

// Of the OpenMP runtime that oneDNN brings along.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
int omp_get_dynamic();
void omp_set_dynamic(int on);
int omp_get_max_active_levels();
}

namespace lathe::tests {
namespace {

void expect_right(const std::string& model, const EngineOptions& options) {
  const Sample sample = stored_sample(model);
  const Engine engine = Engine::load(model_path(model), options);
  const Result<Outputs> outputs = engine.try_run(inputs_of(sample));
  ASSERT_TRUE(outputs.ok()) << outputs.error().message;
  EXPECT_EQ(difference(model, *outputs, sample), std::nullopt);
}

class Switches : public testing::TestWithParam<std::string> {};

TEST_P(Switches, EveryPassOffGivesTheSame) { expect_right(GetParam(), {.threads = 2, .passes = "-all"}); }

TEST_P(Switches, EachPassOffGivesTheSame) {
  for (const passes::Pass& pass : passes::all_passes()) {
    SCOPED_TRACE(pass.name);
    if (pass.always) continue;
    expect_right(GetParam(), {.threads = 1, .passes = "-" + std::string(pass.name)});
  }
}

TEST_P(Switches, WithoutOneDnn) { expect_right(GetParam(), {.threads = 2, .backends = {"jit", "plain"}}); }

INSTANTIATE_TEST_SUITE_P(Models, Switches, testing::Values("ppocr-cls", "tashkeel-int8", "name-encoder", "surface-mlp"),
                         [](const auto& test) { return test_name(test.param); });

/// y = relu(ConvTranspose(x) + r), computed as `dtype`; `inside` is the transposed convolution's result, where read
/// too.
onnx::ModelSpec transposed_convolution(DType dtype, bool read_twice) {
  std::vector<float> weights(2 * 3 * 3 * 3);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;
  const auto cast = [](const char* from, const char* to, DType t) {
    return onnx::NodeSpec{"Cast", {from}, {to}, {onnx::attr("to", static_cast<int>(t))}};
  };
  onnx::ModelSpec spec{
      .graph = {.nodes = {cast("x", "xd", dtype),
                          cast("r", "rd", dtype),
                          cast("w", "wd", dtype),
                          {"ConvTranspose", {"xd", "wd"}, {"c"}, {onnx::attr("strides", onnx::Ints{2, 2})}, "up"},
                          {"Add", {"c", "rd"}, {"s"}, {}, "residual"},
                          {"Relu", {"s"}, {"yd"}, {}, "activation"},
                          cast("yd", "y", DType::f32)},
                .inputs = {onnx::value("x", DType::f32, {"n", 2, "h", "w"}),
                           onnx::value("r", DType::f32, {"n", 3, "h2", "w2"})},
                .outputs = {onnx::value("y", DType::f32, {"n", 3, "h2", "w2"})},
                .initializers = {onnx::tensor("w", {2, 3, 3, 3}, weights)}}};
  if (read_twice) {
    spec.graph.nodes.push_back(cast("c", "inside", DType::f32));
    spec.graph.outputs.push_back(onnx::value("inside", DType::f32, {"n", 3, "h2", "w2"}));
  }
  return spec;
}

Tensor whole_numbers(const Shape& shape, int seed) {
  Tensor t(DType::f32, shape);
  for (float& v : t.mutable_view<float>()) v = static_cast<float>((seed = (seed * 29 + 7) % 31) - 15);
  return t;
}

TEST(Backends, WhatIsFusedBehindATransposedConvolutionIsTheSameOnEach) {
  for (const DType dtype : {DType::f32, DType::f16, DType::f64}) {
    for (const bool twice : {false, true}) {
      const onnx::ModelSpec spec = transposed_convolution(dtype, twice);
      const Engine plain = engine_of(spec, {.threads = 1, .passes = "-all", .backends = {"plain"}});
      for (const EngineOptions& options : {EngineOptions{.threads = 2},
                                           {.threads = 1, .backends = {"jit", "plain"}},
                                           {.threads = 1, .passes = "-all"}}) {
        const Engine engine = engine_of(spec, options);
        for (const std::int64_t n : {1, 2, 0}) {
          for (const std::int64_t size : {5, 16}) {
            const Tensor x = whole_numbers({n, 2, size, size + 1}, 3);
            const Tensor r = whole_numbers({n, 3, 2 * size + 1, 2 * size + 3}, 5);
            const Outputs expected = plain.run({{"x", x}, {"r", r}});
            const Outputs actual = engine.run({{"x", x}, {"r", r}});
            for (std::size_t o = 0; o < expected.size(); ++o) {
              const auto want = expected[o].view<float>(), got = actual[o].view<float>();
              EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin(), got.end())) << dtype.name() << ' ' << o;
            }
          }
        }
      }
    }
  }
}

TEST(Backends, OneDnnRunsATransposedConvolutionWithItsResidualAndActivation) {
  const Engine engine = engine_of(transposed_convolution(DType::f32, false), {.threads = 1});
  std::vector<std::string> operators;
  for (const tools::StepRecord& step : tools::explain(engine, {{"x", {1, 2, 16, 16}}, {"r", {1, 3, 33, 33}}}).steps) {
    if (step.backend == "onednn") operators.insert(operators.end(), step.operators.begin(), step.operators.end());
  }
  EXPECT_EQ(operators, (std::vector<std::string>{"ConvTranspose", "Add", "Relu"}));
}

onnx::ModelSpec pooled(const char* pool, std::vector<onnx::Bytes> attributes) {
  attributes.push_back(onnx::attr("kernel_shape", onnx::Ints{3, 3}));
  attributes.push_back(onnx::attr("strides", onnx::Ints{2, 2}));
  return {.graph = {.nodes = {{"Conv", {"x", "filters"}, {"filtered"}},
                              {pool, {"filtered"}, {"means"}, std::move(attributes)},
                              {"Mul", {"means", "per_channel"}, {"scaled"}},
                              {"LeakyRelu", {"scaled"}, {"y"}}},
                    .inputs = {onnx::value("x", DType::f32, {"n", 16, "h", "w"})},
                    .outputs = {onnx::value("y", DType::f32, {"n", 16, "h2", "w2"})},
                    .initializers = {onnx::tensor("filters", {16, 16, 1, 1}, std::vector<float>(256, 0.25F)),
                                     onnx::tensor("per_channel", {16, 1, 1}, std::vector<float>(16, -3))}}};
}

TEST(Backends, AveragesAreTheSameOnEach) {
  for (const int counts_padding : {0, 1}) {
    for (const int ceil : {0, 1}) {
      const onnx::ModelSpec spec =
          pooled("AveragePool", {onnx::attr("pads", onnx::Ints{1, 0, 1, 1}),
                                 onnx::attr("count_include_pad", counts_padding), onnx::attr("ceil_mode", ceil)});
      const Engine plain = engine_of(spec, {.threads = 1, .passes = "-all", .backends = {"plain"}});
      for (const int threads : {1, 2}) {
        const Engine engine = engine_of(spec, {.threads = threads});
        for (const Shape& shape :
             {Shape{1, 16, 40, 41}, Shape{3, 16, 33, 30}, Shape{1, 16, 5, 5}, Shape{0, 16, 9, 9}}) {
          const Tensor x = whole_numbers(shape, 3);
          const Outputs expected = plain.run(x), actual = engine.run(x);
          const auto want = expected[0].view<float>(), got = actual[0].view<float>();
          ASSERT_EQ(want.size(), got.size());
          for (std::size_t i = 0; i < want.size(); ++i)
            ASSERT_NEAR(got[i], want[i], 1e-5 * (1 + std::abs(want[i]))) << shape.to_string() << " element " << i;
        }
      }
    }
  }
}

TEST(Backends, OneDnnRunsAveragesWithWhatFollowsThem) {
  const Engine engine = engine_of(pooled("AveragePool", {}), {.threads = 1});
  std::vector<std::string> operators;
  for (const tools::StepRecord& step : tools::explain(engine, {{"x", {1, 16, 40, 40}}}).steps) {
    if (step.backend == "onednn") operators.insert(operators.end(), step.operators.begin(), step.operators.end());
  }
  EXPECT_EQ(operators, (std::vector<std::string>{"Conv", "AveragePool", "Mul", "LeakyRelu"}));
}

TEST(Backends, MaximaKeepNanAndMinusInfinity) {
  onnx::ModelSpec spec = pooled("MaxPool", {});
  spec.graph.nodes = {spec.graph.nodes[1]};
  spec.graph.nodes[0].inputs = {"x"};
  spec.graph.nodes[0].outputs = {"y"};
  const Engine engine = engine_of(spec);
  Tensor x(DType::f32, {1, 16, 41, 41});
  const auto values = x.mutable_view<float>();
  std::fill(values.begin(), values.end(), -std::numeric_limits<float>::infinity());
  values[41 + 1] = std::numeric_limits<float>::quiet_NaN();
  const Outputs y = engine.run(x);
  EXPECT_TRUE(std::isnan(y[0].view<float>()[0]));
  EXPECT_EQ(y[0].view<float>()[1], -std::numeric_limits<float>::infinity());
}

TEST(Backends, OneThatIsNeededButSwitchedOffIsNamed) {
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .backends = {"onednn"}});
  const Result<Outputs> outputs = engine.try_run(Tensor(DType::f32, {3}));
  ASSERT_FALSE(outputs.ok());
  EXPECT_NE(outputs.error().message.find("'jit'"), std::string::npos) << outputs.error().message;
  EXPECT_EQ(to_string(outputs.error().code), "unsupported") << outputs.error().message;
}

TEST(OpenMp, TheHostsSettingsStay) {
  const int levels = omp_get_max_active_levels();
  omp_set_dynamic(1);
  omp_set_num_threads(3);
  expect_right("ppocr-cls", {.threads = 2});
  expect_right("surface-mlp", {.threads = 1});
  EXPECT_EQ(omp_get_max_threads(), 3);
  EXPECT_EQ(omp_get_dynamic(), 1);
  EXPECT_EQ(omp_get_max_active_levels(), levels);
  omp_set_dynamic(0);
}

}  // namespace
}  // namespace lathe::tests
