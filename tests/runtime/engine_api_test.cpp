// The public interface on a small model: inputs, outputs and handles, and options that say what an engine may use.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>

#include <lathe/lathe.h>

#include "tests/support/onnx_writer.h"
#include "tests/support/temporary_folder.h"

namespace lathe::tests {
namespace {

using namespace onnx;

Result<Engine> load(const ModelSpec& spec, const EngineOptions& options = {}, const LoadOptions& load = {}) {
  const std::string bytes = model(spec);
  return Engine::try_load(std::as_bytes(std::span(bytes)), options, load);  // the bytes are gone when this returns
}

/// y[n,2] = relu(x[n,3] · w), z[n,2] = y + b, where b has a default.
ModelSpec two_outputs() {
  return {.graph = {.nodes = {{"MatMul", {"x", "w"}, {"m"}}, {"Relu", {"m"}, {"y"}}, {"Add", {"y", "b"}, {"z"}}},
                    .inputs = {value("x", DType::f32, {"n", 3}), value("b", DType::f32, {2})},
                    .outputs = {value("y", DType::f32, {"n", 2}), value("z", DType::f32, {"n", 2})},
                    .initializers = {tensor("w", {3, 2}, std::vector<float>{1, -1, 2, -2, 3, -3}),
                                     tensor("b", {2}, std::vector<float>{10, 20})}}};
}

Tensor rows(int n) {
  Tensor t(DType::f32, {n, 3});
  for (float& x : t.mutable_view<float>()) x = 1;
  return t;
}

Error error_of(const Result<Outputs>& result) {
  return result.ok() ? Error{ErrorCode::internal, "it ran"} : result.error();
}

void expect_works(const Engine& engine) {
  const auto outputs = engine.try_run({{"x", rows(1)}});
  ASSERT_TRUE(outputs.ok()) << outputs.error().message;
  EXPECT_EQ((*outputs)["z"].view<float>()[0], 16);
  EXPECT_EQ((*outputs)["z"].view<float>()[1], 20);
}

class EngineApi : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = load(two_outputs());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    engine_.emplace(*std::move(loaded));
  }
  [[nodiscard]] const Engine& engine() const { return *engine_; }
  std::optional<Engine> engine_;
};

TEST_F(EngineApi, SaysWhatTheModelDeclares) {
  ASSERT_EQ(engine().inputs().size(), 2U);
  EXPECT_EQ(engine().inputs()[0].name, "x");
  EXPECT_EQ(engine().inputs()[0].to_string(), "f32[n,3]");
  EXPECT_TRUE(engine().inputs()[0].required);
  EXPECT_FALSE(engine().inputs()[1].required);
  ASSERT_EQ(engine().outputs().size(), 2U);
  EXPECT_EQ(engine().outputs()[1].name, "z");
}

TEST_F(EngineApi, RunsAnyBatchAndDefaultsCanBeReplaced) {
  for (int n : {1, 2, 7, 0, 33, 2}) {
    const Outputs outputs = engine().run({{"x", rows(n)}});
    ASSERT_EQ(outputs.size(), 2U);
    EXPECT_EQ(outputs["y"].shape(), (Shape{n, 2}));
    for (std::size_t i = 0; i < outputs[1].view<float>().size(); ++i)
      EXPECT_EQ(outputs[1].view<float>()[i], i % 2 ? 20 : 16);
  }
  const Outputs outputs = engine().run({{"b", Tensor::from<float>({1, 2}, {2})}, {"x", rows(1)}});
  EXPECT_EQ(outputs["z"].view<float>()[0], 7);
  EXPECT_EQ(engine().run(rows(1)).at("y").view<float>()[0], 6);  // the one input that is required
}

TEST_F(EngineApi, OutputsWantedComeInTheOrderAsked) {
  const Outputs outputs = engine().run({{"x", rows(1)}}, {.outputs = {"z", "y"}});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs.begin()->name, "z");
  EXPECT_EQ(engine().run({{"x", rows(1)}}, {.outputs = {"y"}}).size(), 1U);
  const Error error = error_of(engine().try_run({{"x", rows(1)}}, {.outputs = {"q"}}));
  EXPECT_EQ(error.code, ErrorCode::not_found);
  EXPECT_NE(error.message.find("'y', 'z'"), std::string::npos) << error.message;
}

TEST_F(EngineApi, OutputsThatAreNotThereAreUndefined) {
  const Outputs outputs = engine().run({{"x", rows(1)}});
  EXPECT_FALSE(outputs["q"].tensor().defined());
  EXPECT_FALSE(outputs[5].tensor().defined());
  EXPECT_EQ(outputs.find("q"), nullptr);
  EXPECT_THROW((void)outputs.at("q"), Exception);
}

TEST_F(EngineApi, ThrowingFormsCarryTheError) {
  try {
    (void)engine().run({{"q", rows(1)}});
    FAIL() << "it ran";
  } catch (const Exception& exception) {
    EXPECT_EQ(exception.code(), ErrorCode::not_found);
    EXPECT_NE(std::string(exception.what()).find("'q'"), std::string::npos);
  }
}

TEST_F(EngineApi, OutputsOutliveTheEngine) {
  const Outputs outputs = engine().run({{"x", rows(2)}});
  engine_.reset();
  EXPECT_EQ(outputs["y"].view<float>()[2], 6);
}

TEST_F(EngineApi, MovedFromIsAHandleStill) {
  const Engine moved = std::move(*engine_);  // NOLINT(performance-move-const-arg): what this is about
  EXPECT_EQ(engine().run({{"x", rows(1)}}).size(), 2U);
  EXPECT_EQ(moved.inputs().size(), 2U);
}

TEST_F(EngineApi, CopiesAreHandlesToOneEngine) {
  const Engine copy = engine();
  (void)copy.run({{"x", rows(9)}});
  EXPECT_EQ(engine().cache_stats().plan_misses, copy.cache_stats().plan_misses);
  EXPECT_EQ(&engine().inputs(), &copy.inputs());
}

TEST(EngineLoad, FilesAndFormats) {
  std::optional<tests::TemporaryFolder> folder(std::in_place);
  const std::string path = folder->path() / "model.bin";
  std::ofstream(path, std::ios::binary) << model(two_outputs());
  const auto engine = Engine::try_load(path);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  folder.reset();
  expect_works(*engine);
  EXPECT_EQ(Engine::try_load(path).error().code, ErrorCode::not_found);
  EXPECT_EQ(load(two_outputs(), {}, {.formats = {"keras"}}).error().code, ErrorCode::unsupported);
  EXPECT_TRUE(load(two_outputs(), {}, {.formats = {"onnx"}}).ok());
}

TEST(EngineLoad, PassesThatDoNotExistAreRefused) {
  EXPECT_EQ(load(two_outputs(), {.passes = "-no_such_pass"}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(load(two_outputs(), {.passes = "-lower"}).error().code, ErrorCode::invalid_argument);  // always runs
  EXPECT_EQ(load(two_outputs(), {.passes = "graph_fuse"}).error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(load(two_outputs(), {.passes = "-graph_fuse,-fold_constant,-all"}).ok());
}

TEST(EngineLoad, EveryBackendAndLevelGivesTheAnswer) {
  for (const std::vector<std::string>& backends :
       std::vector<std::vector<std::string>>{{}, {"jit"}, {"plain"}, {"jit", "onednn"}, {"onednn", "plain"}}) {
    for (CodeLevel level : {CodeLevel::automatic, CodeLevel::none, CodeLevel::less, CodeLevel::standard}) {
      const auto engine =
          load(two_outputs(), {.threads = 1, .passes = "-graph_fuse", .backends = backends, .code_level = level});
      ASSERT_TRUE(engine.ok()) << engine.error().message;
      expect_works(*engine);
    }
  }
}

/// Counts what is out, and refuses past a number of bytes.
class CountingAllocator : public Allocator {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    if (refuse) return nullptr;
    out += bytes;
    ++calls;
    return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
  }
  void release(void* memory, std::size_t bytes, std::size_t alignment) noexcept override {
    out -= bytes;
    ::operator delete(memory, std::align_val_t(alignment));
  }
  std::atomic<std::size_t> out = 0, calls = 0;
  std::atomic<bool> refuse = false;
};

TEST(EngineLoad, AllocatorServesAndMayRefuse) {
  const auto allocator = std::make_shared<CountingAllocator>();
  {
    const auto engine = load(two_outputs(), {.allocator = allocator});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    expect_works(*engine);
    EXPECT_GT(allocator->calls, 0U);
    allocator->refuse = true;
    EXPECT_EQ(error_of(engine->try_run({{"x", rows(50'000)}})).code, ErrorCode::out_of_memory);
    allocator->refuse = false;
    expect_works(*engine);
  }
  EXPECT_EQ(allocator->out, 0U);
}

/// Runs every part on the calling thread and counts.
class InlinePool : public ThreadPool {
 public:
  [[nodiscard]] int threads() const noexcept override { return 2; }
  void parallel(int parts, Task task, void* context) noexcept override {
    calls += 1;
    for (int i = 0; i < parts; ++i) task(context, i, 0);
  }
  std::atomic<int> calls = 0;
};

TEST(EngineLoad, TheApplicationsPoolIsUsed) {
  const auto pool = std::make_shared<InlinePool>();
  const auto engine = load(two_outputs(), {.pool = pool});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  (void)engine->run({{"x", rows(200'000)}});
  EXPECT_GT(pool->calls, 0);
  expect_works(*engine);
}

}  // namespace
}  // namespace lathe::tests
