// Models as quantizers and other tools write them (tests/data/samples), along every way of running.
#include <gtest/gtest.h>

#include <optional>

#include <lathe/tools.h>

#include "tests/support/engine_of.h"
#include "tests/support/paths.h"
#include "tests/support/real_models.h"

namespace lathe::tests {
namespace {

struct SampleModel {
  const char* name;
  double tolerance;
  std::size_t output = 0;  ///< the one that is stored
};
std::ostream& operator<<(std::ostream& out, const SampleModel& model) { return out << model.name; }

class SampleModels : public testing::TestWithParam<SampleModel> {};

TEST_P(SampleModels, GiveTheStoredResultWhicheverWay) {
  const std::string path = data_dir() + "/samples/" + GetParam().name;
  const Tensor x = tools::read_npy(path + "_in.npy");
  const Tensor expected = tools::read_npy(path + "_out.npy");
  std::optional<Tensor> first;
  for (const EngineOptions& options :
       {EngineOptions{.threads = 1}, EngineOptions{.threads = 2, .passes = "-all"},
        EngineOptions{.backends = {"jit", "plain"}}, EngineOptions{.backends = {"plain"}},
        EngineOptions{.code_level = CodeLevel::none}, EngineOptions{.code_level = CodeLevel::standard}}) {
    const Engine engine = Engine::load(path + ".onnx", options);
    const Tensor y = engine.run(x)[GetParam().output].tensor();
    ASSERT_EQ(y.size(), expected.size());
    for (std::int64_t i = 0; i < y.size(); ++i) {
      EXPECT_NEAR(y.number(i), expected.number(i), GetParam().tolerance) << "element " << i;
      if (first) {
        EXPECT_NEAR(y.number(i), first->number(i), 1e-6) << "element " << i << " depends on the way";
      }
    }
    if (!first) first = y;
  }
}

std::string name_of(const testing::TestParamInfo<SampleModel>& info) { return test_name(info.param.name); }

// Quantized: one step of the output's scale, which a rounding in between may cost.
INSTANTIATE_TEST_SUITE_P(Quantized, SampleModels,
                         testing::Values(SampleModel{"rl-ppo-g1-qdq", 0.1}, SampleModel{"rl-ppo-g1-qoperator", 0.1}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(SlowQuantized, SampleModels,
                         testing::Values(SampleModel{"ppocr-cls-qdq", 1.001 / 255},
                                         SampleModel{"ppocr-cls-qoperator", 1.001 / 255}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Classical, SampleModels,
                         testing::Values(SampleModel{"forest", 1e-6, 1}, SampleModel{"gbr", 1e-6},
                                         SampleModel{"knn", 1e-6}, SampleModel{"logreg", 1e-6, 1},
                                         SampleModel{"svc", 0}),
                         name_of);

}  // namespace
}  // namespace lathe::tests
