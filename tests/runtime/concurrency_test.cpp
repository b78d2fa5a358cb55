// Many threads, many shapes, one engine; loading and destroying beside runs; one plan for all who ask at once.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <stop_token>
#include <thread>
#include <vector>

#include <lathe/tools.h>

#include "jit/jit.h"
#include "tests/support/engine_of.h"

namespace lathe::tests {
namespace {

constexpr int kThreads = 8;

/// Runs `body(thread)` on kThreads threads that start together.
template <class Body>
void on_many_threads(Body&& body) {
  std::barrier start(kThreads);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      body(t);
    });
  }
}

/// y = relu(x @ w + 1): one contraction and what follows it.
onnx::ModelSpec small_network() {
  std::vector<float> w(16 * 8, 0.5F);
  return {.graph = {.nodes = {{"MatMul", {"x", "w"}, {"m"}, {}, "product"},
                              {"Add", {"m", "one"}, {"a"}, {}, "shift"},
                              {"Relu", {"a"}, {"y"}, {}, "relu"}},
                    .inputs = {onnx::value("x", DType::f32, {"n", 16})},
                    .outputs = {onnx::value("y", DType::f32, {"n", 8})},
                    .initializers = {onnx::tensor("w", {16, 8}, w), onnx::tensor("one", {}, std::vector<float>{1})}}};
}

Tensor filled(const Shape& shape, float value) {
  Tensor t(DType::f32, shape);
  for (float& v : t.mutable_view<float>()) v = value;
  return t;
}

/// Whether every element of the network's output is right for inputs of `value`.
bool right(const Tensor& y, std::int64_t n, float value) {
  if (!(y.shape() == Shape{n, 8})) return false;
  for (float v : y.view<float>()) {
    if (v != 8 * value + 1) return false;
  }
  return true;
}

class EngineThreads : public testing::TestWithParam<int> {};

TEST_P(EngineThreads, ManyShapesThroughOneEngine) {
  const Engine engine = engine_of(small_network(), {.threads = GetParam()});
  std::atomic<int> wrong = 0;
  on_many_threads([&](int t) {
    for (int i = 0; i < 40; ++i) {
      const std::int64_t n = 1 + (i * 7 + t * 3) % 23;
      const auto value = static_cast<float>(t + i % 4);
      const Result<Outputs> out = engine.try_run(filled({n, 16}, value));
      wrong += !out.ok() || !right((*out)[0].tensor(), n, value);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(EngineThreads, ASmallCacheEvictsWhatOthersRun) {
  const Engine engine = engine_of(small_network(), {.threads = GetParam(), .cache_bytes = 1});
  std::atomic<int> wrong = 0;
  on_many_threads([&](int t) {
    for (int i = 0; i < 20; ++i) {
      const std::int64_t n = 2 + (i + t) % 5;
      const Result<Outputs> out = engine.try_run(filled({n, 16}, 1));
      wrong += !out.ok() || !right((*out)[0].tensor(), n, 1);
      if (i % 8 == 0) engine.trim();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(engine.cache_stats().evictions, 0U);
}

TEST_P(EngineThreads, ASessionEach) {
  const Engine engine = engine_of(small_network(), {.threads = GetParam()});
  std::atomic<int> wrong = 0;
  on_many_threads([&](int t) {
    Session session = engine.session();
    const std::int64_t n = 3 + t % 3;
    Tensor x = filled({n, 16}, static_cast<float>(t));
    Tensor y(DType::f32, {n, 8});
    session.bind_input("x", x);
    session.bind_output("y", y);
    session.prepare();
    for (int i = 0; i < 50; ++i) {
      wrong += !session.try_run().ok() || !right(y, n, static_cast<float>(t));
    }
  });
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(PerRun, EngineThreads, testing::Values(1, 2), testing::PrintToStringParamName());

TEST(EngineOnThreads, OnePlanForAllWhoAskAtOnce) {
  const Engine engine = engine_of(small_network());
  on_many_threads([&](int) { static_cast<void>(engine.try_run(filled({5, 16}, 1))); });
  const CacheStats stats = engine.cache_stats();
  EXPECT_EQ(stats.plans, 1U);
  EXPECT_EQ(stats.structures, 1U);
  EXPECT_EQ(stats.structure_hits, 0U);
  const Engine alone = engine_of(small_network());
  static_cast<void>(alone.run(filled({5, 16}, 1)));
  EXPECT_EQ(stats.passes_run, alone.cache_stats().passes_run);
}

/// Holds up whoever makes a plan, from `close` to `open`.
class Gate {
 public:
  [[nodiscard]] EngineOptions options() {
    return {.threads = 1, .log = [this](LogLevel, std::string_view text) {
              if (text.find("making a plan") == std::string_view::npos) return;
              ++makers;
              makers.notify_all();
              closed_.wait(true);
            }};
  }
  void close() { closed_ = true; }
  void open() {
    closed_ = false;
    closed_.notify_all();
  }
  /// Waits until `count` plans have been begun.
  void await_makers(int count) {
    for (int now = makers; now < count; now = makers) makers.wait(now);
  }
  std::atomic<int> makers = 0;

 private:
  std::atomic<bool> closed_ = false;
};

TEST(EngineOnThreads, WaitingForAPlanEndsAtTheWaitersDeadlineOrStop) {
  using namespace std::chrono_literals;
  Gate gate;
  const Engine engine = engine_of(small_network(), gate.options());
  static_cast<void>(engine.run(filled({4, 16}, 1)));
  gate.close();
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  const auto run_in_thread = [&] {
    threads.emplace_back([&] {
      const Result<Outputs> out = engine.try_run(filled({5, 16}, 2));
      wrong += !out.ok() || !right((*out)[0].tensor(), 5, 2);
    });
  };
  run_in_thread();
  gate.await_makers(2);

  for (const std::int64_t n : {5, 6}) {  // the plan that is being made, and one that must wait for its turn
    const auto deadline = std::chrono::steady_clock::now() + 10ms;
    const Result<Outputs> late = engine.try_run(filled({n, 16}, 2), {.deadline = deadline});
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code, ErrorCode::deadline_exceeded) << late.error().message;
    std::stop_source source;
    std::jthread stopper([&] {
      std::this_thread::sleep_for(10ms);
      source.request_stop();
    });
    const Result<Outputs> stopped = engine.try_run(filled({n, 16}, 2), {.stop = source.get_token()});
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::cancelled) << stopped.error().message;
  }
  Session session = engine.session();
  session.bind_input("x", filled({5, 16}, 2));
  const Result<void> late = session.try_run({.deadline = std::chrono::steady_clock::now() + 10ms});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::deadline_exceeded);

  // Nobody else waits: not a run whose plan is there, not another engine.
  EXPECT_TRUE(right(engine.run(filled({4, 16}, 3))[0].tensor(), 4, 3));
  EXPECT_TRUE(right(engine_of(small_network()).run(filled({5, 16}, 3))[0].tensor(), 5, 3));

  for (int i = 0; i < 3; ++i) run_in_thread();
  EXPECT_EQ(gate.makers, 2);
  gate.open();
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(gate.makers, 2) << "one makes the plan for all";
  EXPECT_EQ(engine.cache_stats().plans, 2U);
}

TEST(EngineOnThreads, WhoWaitsForAPlanThatCannotBeMadeTriesItself) {
  Gate gate;
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Add", {"a", "b"}, {"y"}, {}, "sum"}},
                           .inputs = {onnx::value("a", DType::f32, {"n"}), onnx::value("b", DType::f32, {"m"})},
                           .outputs = {onnx::value("y", DType::f32, {"n"})}}},
                gate.options());
  gate.close();
  std::atomic<int> errors = 0;
  std::vector<std::jthread> threads;
  const auto run_in_thread = [&] {
    threads.emplace_back([&] {
      const Result<Outputs> out = engine.try_run({{"a", filled({3}, 1)}, {"b", filled({4}, 1)}});
      errors += !out.ok() && out.error().message.find("sum") != std::string::npos;
    });
  };
  run_in_thread();
  gate.await_makers(1);
  for (int i = 0; i < 3; ++i) run_in_thread();
  gate.open();
  threads.clear();
  EXPECT_EQ(errors, 4);
  EXPECT_EQ(engine.run({{"a", filled({4}, 1)}, {"b", filled({4}, 1)}})[0].view<float>()[3], 2.0F);
}

TEST(EngineOnThreads, EachEngineCountsTheKernelsItCompiledItself) {
  const std::shared_ptr<jit::Compiler> compiler = jit::Compiler::get();
  const auto before = compiler->stats().kernels_compiled;
  std::vector<Engine> engines;
  for (int t = 0; t < kThreads; ++t) {
    // Long chains that differ: each engine needs a kernel of its own.
    std::vector<onnx::NodeSpec> nodes;
    for (int n = 0; n < 40; ++n) {
      const std::string from = n == 0 ? "x" : "v" + std::to_string(n - 1);
      nodes.push_back({n % (t + 2) == 0 ? "Tanh" : "Sigmoid", {from}, {n == 39 ? "y" : "v" + std::to_string(n)}});
    }
    engines.push_back(engine_of({.graph = {.nodes = nodes,
                                           .inputs = {onnx::value("x", DType::f32, {"n"})},
                                           .outputs = {onnx::value("y", DType::f32, {"n"})}}}));
  }
  on_many_threads([&](int t) { static_cast<void>(engines[static_cast<std::size_t>(t)].run(filled({100}, 1))); });
  std::uint64_t counted = 0;
  for (const Engine& engine : engines) {
    EXPECT_GT(engine.cache_stats().kernels_compiled, 0U);
    counted += engine.cache_stats().kernels_compiled;
  }
  EXPECT_EQ(counted, static_cast<std::uint64_t>(compiler->stats().kernels_compiled - before));
}

TEST(EngineOnThreads, GraphsForToolsBesideRuns) {
  const Engine engine = engine_of(small_network(), {.threads = 1});
  std::atomic<int> wrong = 0;
  on_many_threads([&](int t) {
    for (int i = 0; i < 20; ++i) {
      const std::int64_t n = 2 + (i * 7 + t * 3) % 23;
      if (t % 2 == 0) {
        const std::string graph =
            tools::graph(engine, tools::Stage::specialized, tools::GraphFormat::text, {{"x", {n, 16}}});
        wrong += graph.find("f32[" + std::to_string(n) + ",16]") == std::string::npos;
      } else {
        const Result<Outputs> out = engine.try_run(filled({n, 16}, 1));
        wrong += !out.ok() || !right((*out)[0].tensor(), n, 1);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(EngineOnThreads, LoadingAndDestroyingBesideRuns) {
  const Engine shared = engine_of(small_network(), {.threads = 2});
  std::atomic<int> wrong = 0;
  on_many_threads([&](int t) {
    for (int i = 0; i < 6; ++i) {
      if (t % 2 == 0) {
        Outputs kept;
        {
          const Engine own = engine_of(small_network(), {.threads = 2});
          kept = own.run(filled({i + 1, 16}, 2));
        }
        wrong += !right(kept[0].tensor(), i + 1, 2);
      } else {
        const Result<Outputs> out = shared.try_run(filled({t + i, 16}, 3));
        wrong += !out.ok() || !right((*out)[0].tensor(), t + i, 3);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(EngineOnThreads, ErrorsAndCancelledRunsBesideGoodOnes) {
  const Engine engine = engine_of(small_network(), {.threads = 2});
  std::atomic<int> wrong = 0;
  on_many_threads([&](int t) {
    for (int i = 0; i < 20; ++i) {
      if (t % 2 == 0) {
        wrong += engine.try_run(Tensor(DType::f32, {2, 15})).ok();
        std::stop_source source;
        source.request_stop();
        wrong += engine.try_run(filled({2, 16}, 1), {.stop = source.get_token()}).ok();
      } else {
        const Result<Outputs> out = engine.try_run(filled({4, 16}, 1));
        wrong += !out.ok() || !right((*out)[0].tensor(), 4, 1);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace lathe::tests
