// The 16 real models give what ONNX Runtime gives: on stored inputs, and at further shapes in random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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
      for (std::int64_t step = 0; step < 20; ++step) {
        const auto chunk =
            samples.view<float>().subspan(static_cast<std::size_t>(step * length), static_cast<std::size_t>(length));
        const Outputs out =
            engine.run({{"input", Tensor::from(chunk, {1, length})}, {"state", state}, {"sr", Tensor::scalar(rate)}});
        state = out["stateN"];
        EXPECT_NEAR(out["output"].view<float>().front(), expected.number(step), 1e-3) << "step " << step;
      }
      EXPECT_EQ(difference("silero-vad", "state", state, find(steps, key + ".state")), std::nullopt);
    }
  }
}

}  // namespace
}  // namespace lathe::tests
