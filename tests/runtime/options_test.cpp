// Passes and backends can be switched off without changing results, and the host's OpenMP settings stay the host's.
#include <gtest/gtest.h>

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
