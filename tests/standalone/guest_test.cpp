// A guest in the application's process: with the application's pool no thread is created, and code still goes.
#include <gtest/gtest.h>

#include <filesystem>

#include "jit/jit.h"
#include "tests/support/engine_of.h"

namespace lathe::tests {
namespace {

std::ptrdiff_t threads_of_the_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// Says that it has three threads, and works on the caller's alone.
class CallersThread final : public ThreadPool {
 public:
  [[nodiscard]] int threads() const noexcept override { return 3; }
  void parallel(int parts, Task task, void* context) noexcept override {
    ++calls;
    for (int part = 0; part < parts; ++part) task(context, part, 0);
  }
  int calls = 0;
};

/// As many structures as `depth` says: Softmax rows with different epilogues.
onnx::ModelSpec chain(int depth) {
  onnx::ModelSpec spec{.graph = {.nodes = {},
                                 .inputs = {onnx::value("x", DType::f32, {"n", "m"})},
                                 .outputs = {onnx::value("y", DType::f32, {"n", "m"})}}};
  std::string last = "x";
  constexpr const char* kOps[] = {"Exp", "Neg", "Abs", "Sigmoid", "Tanh"};
  for (int i = 0; i < depth; ++i) {
    const std::string next = "t" + std::to_string(i);
    spec.graph.nodes.push_back({"Softmax", {last}, {next}, {onnx::attr("axis", i % 2)}});
    last = next + "e";
    spec.graph.nodes.push_back({kOps[i % 5], {next}, {last}});
  }
  spec.graph.nodes.push_back({"Identity", {last}, {"y"}});
  return spec;
}

TEST(Guest, WithTheApplicationsPoolNoThreadIsCreatedAndUnusedCodeGoes) {
  const std::ptrdiff_t before = threads_of_the_process();
  const auto pool = std::make_shared<CallersThread>();
  std::int64_t most = 0;
  for (int round = 0; round < 3; ++round) {
    EngineOptions options{.cache_bytes = 1 << 10, .pool = pool};
    options.code_level = static_cast<CodeLevel>(1 + round);  // code of its own
    const Engine engine = engine_of(chain(20), options);
    for (std::int64_t n = 1; n < 12; ++n) {
      const Tensor x = Tensor::from(std::vector<float>(static_cast<std::size_t>(n * 3), 0.5F), {n, 3});
      EXPECT_EQ(engine.run({{"x", x}})[0].shape(), Shape({n, 3}));
      EXPECT_EQ(threads_of_the_process(), before);
    }
    most = std::max(most, jit::Compiler::get()->stats().live_modules);
    engine.trim();
    EXPECT_EQ(threads_of_the_process(), before);
  }
  EXPECT_GT(pool->calls, 0);
  EXPECT_GT(most, 0);
  // The compiler, and the last kernels it keeps, went with the last engine.
  EXPECT_EQ(jit::Compiler::get()->stats().live_modules, 0);
  EXPECT_EQ(threads_of_the_process(), before);
}

/// The other way: an engine with a pool of its own has workers and may start a thread; all end with it.
TEST(Guest, ThreadsOfAnEngineEndWithIt) {
  const std::ptrdiff_t before = threads_of_the_process();
  {
    const Engine engine = engine_of(chain(3), {.threads = 3});
    static_cast<void>(engine.run({{"x", Tensor::from(std::vector<float>(6, 0.5F), {2, 3})}}));
    EXPECT_GE(threads_of_the_process(), before + 2);
  }
  EXPECT_EQ(threads_of_the_process(), before);
}

}  // namespace
}  // namespace lathe::tests
