// The 16 real models give what ONNX Runtime gives: on stored inputs, and at further shapes in random order.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/support/real_models.h"

namespace lathe::tests {
namespace {

class Models : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] Engine load(int threads) const { return Engine::load(model_path(GetParam()), {.threads = threads}); }
  void expect_right(const Engine& engine, const Sample& sample) const {
    const Result<Outputs> outputs = engine.try_run(inputs_of(sample));
    ASSERT_TRUE(outputs.ok()) << sample.what << ": " << outputs.error().message;
    if (const auto wrong = difference(GetParam(), *outputs, sample)) FAIL() << sample.what << ": " << *wrong;
  }
};

TEST_P(Models, StoredOutputs) {
  const Sample sample = stored_sample(GetParam());
  for (int threads : {1, 2}) {
    SCOPED_TRACE(threads);
    expect_right(load(threads), sample);
  }
}

TEST_P(Models, FurtherShapesInRandomOrder) {
  std::vector<Sample> samples = further_samples(GetParam());
  const bool fixed = GetParam() == "rl-ppo-g1";
  EXPECT_EQ(samples.size(), fixed ? 0U : 3U) << "batch 2, an odd shape and the smallest";
  samples.push_back(stored_sample(GetParam()));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < samples.size(); ++i) order.insert(order.end(), 2, i);
  std::mt19937 random(7);
  for (int threads : {1, 2}) {
    SCOPED_TRACE(threads);
    const Engine engine = load(threads);
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t i : order) expect_right(engine, samples[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(model_names()),
                         [](const auto& test) { return test_name(test.param); });

/// Compiled loops are no match for oneDNN at convolutions: a residual that it cannot read must not cost them.
TEST(ModelKernels, ConvolutionsOfYoloRunOnOneDnn) {
  const Engine engine = Engine::load(model_path("yolo-isbn"), {.threads = 2});
  int convolutions = 0;
  for (const tools::StepRecord& step : tools::explain(engine, {{"images", {1, 3, 320, 320}}}).steps) {
    if (std::count(step.operators.begin(), step.operators.end(), "Conv") == 0) continue;
    ++convolutions;
    EXPECT_EQ(step.backend, "onednn") << step.name;
  }
  EXPECT_GT(convolutions, 90);
}

std::vector<tools::StepRecord> steps_of_a_run(const std::string& model, const Sample& sample) {
  const Engine engine = Engine::load(model_path(model), {.threads = 2});
  return tools::explain_run(engine, inputs_of(sample)).steps;
}
std::vector<tools::StepRecord> steps_of_a_run(const std::string& model) {
  return steps_of_a_run(model, stored_sample(model));
}

/// Pointwise, reducing and normalizing operators, by their names.
bool is_loop_shaped(const std::string& op) {
  static const std::set<std::string> kPointwise = {"Abs",
                                                   "Add",
                                                   "And",
                                                   "Cast",
                                                   "Ceil",
                                                   "Clip",
                                                   "Cos",
                                                   "Div",
                                                   "Equal",
                                                   "Erf",
                                                   "Exp",
                                                   "Floor",
                                                   "Gelu",
                                                   "Greater",
                                                   "HardSigmoid",
                                                   "HardSwish",
                                                   "LeakyRelu",
                                                   "Less",
                                                   "Log",
                                                   "Max",
                                                   "Min",
                                                   "Mod",
                                                   "Mul",
                                                   "Neg",
                                                   "Not",
                                                   "Or",
                                                   "Pow",
                                                   "Reciprocal",
                                                   "Relu",
                                                   "Round",
                                                   "Sigmoid",
                                                   "Sign",
                                                   "Sin",
                                                   "Softplus",
                                                   "Sqrt",
                                                   "Sub",
                                                   "Tanh",
                                                   "Where",
                                                   "Xor",
                                                   "ArgMax",
                                                   "ArgMin",
                                                   "CumSum",
                                                   "Softmax",
                                                   "LogSoftmax",
                                                   "DequantizeLinear",
                                                   "DynamicQuantizeLinear",
                                                   "QuantizeLinear",
                                                   "GlobalAveragePool",
                                                   "GlobalMaxPool"};
  return kPointwise.count(op) > 0 || op.starts_with("Reduce") || op.ends_with("Normalization");
}

TEST_P(Models, LoopShapedNodesRunInCompiledLoops) {
  std::vector<Sample> samples = further_samples(GetParam());  // of silero-vad at both rates, a branch each
  samples.push_back(stored_sample(GetParam()));
  for (const Sample& sample : samples) {
    const std::vector<tools::StepRecord> steps = steps_of_a_run(GetParam(), sample);
    EXPECT_FALSE(steps.empty());
    for (const tools::StepRecord& step : steps) {
      EXPECT_TRUE(step.backend != "not run" || step.inside.find(" of If ") != std::string::npos) << step.name;
      if (step.backend != "plain" && step.backend != "region") continue;
      for (const std::string& op : step.operators) EXPECT_FALSE(is_loop_shaped(op)) << op << ' ' << step.name;
    }
  }
}

TEST(ModelKernels, ALayerOfMiniLmTakesAtMostEightKernelsBesideItsProducts) {
  std::vector<int> kernels(1);  // the embedding's, then each layer's
  for (const tools::StepRecord& step : steps_of_a_run("minilm-int8")) {
    const bool product = std::any_of(step.operators.begin(), step.operators.end(),
                                     [](const std::string& op) { return op.find("MatMul") != std::string::npos; });
    if (step.backend == "view") continue;
    kernels.back() += product ? 0 : 1;
    // The embedding ends with a normalization, a layer with the second of its two: 2, 4, …
    const std::size_t layer = kernels.size() - 1;
    const std::string last = layer == 0 ? "'node_layer_norm/" : fmt::format("'node_layer_norm_{}/", 2 * layer);
    if (step.name.find(last) != std::string::npos) kernels.push_back(0);
  }
  ASSERT_EQ(kernels.size(), 8U);
  EXPECT_EQ(kernels[7], 0) << "behind the last layer";
  for (std::size_t layer = 1; layer <= 6; ++layer) EXPECT_LE(kernels[layer], 8) << "layer " << layer;
}

TEST(Explain, EntersTheBodiesThatARunTook) {
  const std::vector<tools::StepRecord> steps = steps_of_a_run("silero-vad");
  const auto count = [&](const char* graph, const char* backend) {
    return std::count_if(steps.begin(), steps.end(), [&](const tools::StepRecord& s) {
      return s.inside.find(graph) != std::string::npos && (s.backend == backend);
    });
  };
  EXPECT_GT(count("then_branch of If 'If_0'", "onednn"), 3);  // 16 kHz
  EXPECT_GT(count("then_branch of If 'If_0'", "plain"), 0);
  EXPECT_EQ(count("else_branch of If 'If_0'", "onednn"), 0);
  EXPECT_GT(count("else_branch of If 'If_0'", "not run"), 20);
  for (const char* backend : {"jit", "plain", "region", "view"})
    EXPECT_EQ(count("else_branch of If 'If_0'", backend), 0);
  const Engine engine = Engine::load(model_path("silero-vad"), {.threads = 1});
  for (const tools::StepRecord& s : tools::explain(engine, shapes_of(stored_sample("silero-vad"))).steps) {
    EXPECT_TRUE(s.inside.empty() || s.backend == "not run") << s.name;
  }
}

TEST(Explain, ARunThatFailsIsTheReasonForWhatItDidNotReach) {
  const Engine engine = Engine::load(model_path("silero-vad"), {.threads = 1});
  const Inputs tiny({{"input", Tensor(DType::f32, {1, 1})},
                     {"state", Tensor(DType::f32, {2, 1, 128})},
                     {"sr", Tensor::scalar(std::int64_t{8000})}});
  const std::string reason = tools::explain_run(engine, tiny).run_ended_by;
  EXPECT_NE(reason.find("stft/Conv': the kernel covers"), std::string::npos) << reason;
}

TEST(GraphOf, SpecializedGraphsOfModelsThatBranch) {
  const Engine engine = Engine::load(model_path("silero-vad"), {.threads = 1});
  const std::string text = tools::graph(engine, tools::Stage::specialized, tools::GraphFormat::text,
                                        {{"input", {1, 288}}, {"state", {2, 1, 128}}});
  EXPECT_NE(text.find("LstmSequence("), std::string::npos) << "the branch of 8 kHz, lowered:\n" << text;
  EXPECT_NE(text.find("LSTM("), std::string::npos) << "that of 16 kHz, as it is frozen:\n" << text;
}

TEST(GraphOf, SpecializedGraphsAreLowered) {
  const Engine policy = Engine::load(model_path("rl-ppo-g1"), {.threads = 1});
  const std::string text =
      tools::graph(policy, tools::Stage::specialized, tools::GraphFormat::text, shapes_of(stored_sample("rl-ppo-g1")));
  EXPECT_NE(text.find("MatMul"), std::string::npos) << text;
  EXPECT_EQ(text.find("= Gemm("), std::string::npos) << text;
}

const Tensor& find(const std::vector<tools::NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  if (found == tensors.end()) throw Exception({ErrorCode::not_found, name});
  return found->tensor;
}

TEST(ModelState, SileroOverTwentyStepsAtBothRates) {
  further_samples("silero-vad");
  const std::vector<tools::NamedTensor> steps = oracle_file("silero-vad.steps.npz");
  for (int threads : {1, 2}) {
    const Engine engine = Engine::load(model_path("silero-vad"), {.threads = threads});
    for (std::int64_t rate : {16000, 8000}) {
      SCOPED_TRACE(testing::Message() << rate << " Hz, " << threads << " threads");
      const std::string key = std::to_string(rate);
      const Tensor& samples = find(steps, key + ".samples");
      const Tensor& expected = find(steps, key + ".outputs");
      const std::int64_t length = samples.shape().back();
      Value state = Tensor(DType::f32, {2, 1, 128});
      Tensor outputs(expected.dtype(), expected.shape());
      for (std::int64_t step = 0; step < 20; ++step) {
        const auto chunk =
            samples.view<float>().subspan(static_cast<std::size_t>(step * length), static_cast<std::size_t>(length));
        const Outputs out =
            engine.run({{"input", Tensor::from(chunk, {1, length})}, {"state", state}, {"sr", Tensor::scalar(rate)}});
        state = out["stateN"];
        outputs.mutable_view<float>()[static_cast<std::size_t>(step)] = out["output"].view<float>().front();
      }
      EXPECT_EQ(difference("silero-vad", "output", outputs, expected), std::nullopt);
      EXPECT_EQ(difference("silero-vad", "state", state, find(steps, key + ".state")), std::nullopt);
    }
  }
}

}  // namespace
}  // namespace lathe::tests
