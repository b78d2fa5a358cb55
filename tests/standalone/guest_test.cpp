// A guest in the application's process: with the application's pool no thread is created, and code still goes; where
// the system refuses threads or memory, an error or slower work follows, and never the process's end.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "jit/jit.h"
#include "tests/jit/kernels.h"
#include "tests/support/engine_of.h"

namespace {

std::atomic<bool> refuse_threads = false;
/// This allocation of the thread fails, counted from 1; 0: none does.
thread_local int failing_allocation = 0;

}  // namespace

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*start)(void*), void* argument) noexcept {
  if (refuse_threads) return EAGAIN;
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

/// The C++ library's own operator delete frees what malloc gave.
[[gnu::noinline]] void* operator new(std::size_t size) {
  const bool fails = failing_allocation == 1;
  if (failing_allocation > 0) --failing_allocation;
  if (fails) throw std::bad_alloc();
  if (void* memory = std::malloc(std::max<std::size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}

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

TEST(Guest, AThreadThatIsRefusedIsAnErrorOrDoneWithout) {
  {
    const Engine engine = engine_of(chain(20), {.threads = 1, .cache_bytes = 1 << 10});
    refuse_threads = true;
    const Result<Engine> workers = try_engine_of(onnx::model(scale_and_shift()), {.threads = 3});
    ASSERT_FALSE(workers.ok());
    EXPECT_EQ(workers.error().code, ErrorCode::out_of_memory);
    EXPECT_NE(workers.error().message.find("the system refused thread 2 of 3: "), std::string::npos)
        << workers.error().message;
    static_cast<void>(engine.run({{"x", Tensor(DType::f32, {2, 3})}}));
    engine.trim();
    EXPECT_EQ(engine.run({{"x", Tensor(DType::f32, {2, 3})}})[0].shape(), Shape({2, 3}));
  }
  refuse_threads = false;
  EXPECT_EQ(jit::Compiler::get()->stats().live_modules, 0);
}

/// Memory is there again once compiling itself begins: LLVM does without exceptions.
class WithMemory final : public ThreadPool {
 public:
  [[nodiscard]] int threads() const noexcept override { return 2; }
  void parallel(int parts, Task task, void* context) noexcept override {
    failing_allocation = 0;
    for (int part = 0; part < parts; ++part) task(context, part, 0);
  }
};

/// What is compiled when memory runs out is not waited for ever after.
TEST(Guest, CompilesAgainAfterMemoryRanOut) {
  WithMemory pool;
  const loops::Kernel first = jit::testing::softmax(5, 7);
  const loops::Kernel second = jit::testing::layer_norm(5, 7);
  const loops::Kernel* const kernels[] = {&first, &second};
  static_cast<void>(jit::Compiler::get()->compile(kernels));  // what the process has once is there
  int failures = 0;
  for (bool failed = true; failed;) {
    const auto compiler = jit::Compiler::get();
    failing_allocation = 1 + 3 * failures;
    try {
      static_cast<void>(compiler->compile(kernels, {.pool = &pool}));
      failed = false;
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    failing_allocation = 0;
    EXPECT_EQ(compiler->compile(kernels, {.pool = &pool}).size(), 2U) << failures;
  }
  EXPECT_GT(failures, 0);
}

TEST(Guest, RunsAgainAfterMemoryRanOut) {
  const auto pool = std::make_shared<WithMemory>();
  const Inputs inputs = {{"x", Tensor::from(std::vector<float>(6, 0.5F), {2, 3})}};
  int failures = 0;
  for (bool failed = true; failed;) {
    const Engine engine = engine_of(chain(2), {.pool = pool});  // compiled code went with the last one
    failing_allocation = 1 + 37 * failures;
    const Result<Outputs> run = engine.try_run(inputs);
    failing_allocation = 0;
    failed = !run.ok();
    if (failed) {
      ++failures;
      EXPECT_EQ(to_string(run.error().code), to_string(ErrorCode::out_of_memory)) << run.error().message;
    }
    const Result<Outputs> again = engine.try_run(inputs);
    EXPECT_TRUE(again.ok()) << failures << ": " << again.error().message;
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace lathe::tests
