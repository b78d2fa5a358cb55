// What callers and models get wrong gives a clear error, and the engine works on afterwards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stop_token>
#include <thread>

#include "frontends/frontend.h"
#include "ops/ir/op.h"
#include "runtime/core.h"
#include "tests/support/engine_of.h"
#include "tests/support/real_models.h"
#include "tests/support/temporary_folder.h"

namespace lathe::tests {
namespace {

using namespace std::chrono_literals;

/// Expects an error of that code whose message has all of `parts`.
template <class T>
void expect_error(const Result<T>& result, ErrorCode code, std::initializer_list<std::string> parts) {
  ASSERT_FALSE(result.ok()) << "no error";
  EXPECT_EQ(to_string(result.error().code), to_string(code)) << result.error().message;
  for (const std::string& part : parts)
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message << "\nlacks " << part;
}

/// y = Gather(table, index): f32[rows] by i64[n].
onnx::ModelSpec lookup() {
  return {.graph = {.nodes = {{"Gather", {"table", "index"}, {"y"}, {}, "look_up"}},
                    .inputs = {onnx::value("table", DType::f32, {"rows"}), onnx::value("index", DType::i64, {"n"})},
                    .outputs = {onnx::value("y", DType::f32, {"n"})}}};
}

class WrongInputs : public testing::Test {
 protected:
  void SetUp() override { expect_usable(); }
  void TearDown() override { expect_usable(); }
  void expect_usable() const {
    const Outputs out = engine_.run(good());
    EXPECT_EQ(out[0].view<float>()[1], 30.0F);
  }
  static Inputs good() { return {{"table", table()}, {"index", Tensor::from<std::int64_t>({0, -1}, {2})}}; }
  static Tensor table() { return Tensor::from<float>({10, 20, 30}, {3}); }

  const Engine engine_ = engine_of(lookup());
};

TEST_F(WrongInputs, UnknownName) {
  expect_error(engine_.try_run({{"tabel", table()}}), ErrorCode::not_found, {"'tabel'", "'table', 'index'"});
}

TEST_F(WrongInputs, Missing) {
  expect_error(engine_.try_run({{"table", table()}}), ErrorCode::invalid_argument, {"'index'", "i64[n]", "missing"});
}

TEST_F(WrongInputs, GivenTwice) {
  expect_error(engine_.try_run({{"table", table()}, {"table", table()}, {"index", Tensor(DType::i64, {1})}}),
               ErrorCode::invalid_argument, {"'table'", "twice"});
}

TEST_F(WrongInputs, Dtype) {
  expect_error(engine_.try_run({{"table", table()}, {"index", table()}}), ErrorCode::invalid_argument,
               {"'index'", "i64", "f32"});
}

TEST_F(WrongInputs, Rank) {
  expect_error(engine_.try_run({{"table", Tensor(DType::f32, {3, 1})}, {"index", Tensor(DType::i64, {1})}}),
               ErrorCode::invalid_argument, {"'table'", "f32[rows]", "3,1"});
}

TEST_F(WrongInputs, NoName) { expect_error(engine_.try_run(table()), ErrorCode::invalid_argument, {"name"}); }

TEST_F(WrongInputs, UndefinedTensor) {
  expect_error(engine_.try_run({{"table", Tensor()}, {"index", Tensor(DType::i64, {1})}}), ErrorCode::invalid_argument,
               {"'table'"});
}

TEST_F(WrongInputs, NullMemory) {
  expect_error(
      engine_.try_run({{"table", Tensor::borrow(DType::f32, {3}, nullptr)}, {"index", Tensor(DType::i64, {1})}}),
      ErrorCode::invalid_argument, {"'table'", "f32[rows]", "nothing"});
}

TEST_F(WrongInputs, UnknownOutputWanted) {
  expect_error(engine_.try_run(good(), {.outputs = {"z"}}), ErrorCode::not_found, {"'z'", "'y'"});
}

TEST_F(WrongInputs, IndexOutOfRange) {
  for (std::int64_t index : {3, -4}) {
    expect_error(engine_.try_run({{"table", table()}, {"index", Tensor::from<std::int64_t>({0, index}, {2})}}),
                 ErrorCode::out_of_range, {"Gather", "look_up", std::to_string(index), "3"});
  }
}

TEST_F(WrongInputs, PrepareNamesWhatIsWrong) {
  expect_error(engine_.try_prepare({{"tabel", {3}}}), ErrorCode::not_found, {"'tabel'"});
  expect_error(engine_.try_prepare({{"table", {-3}}, {"index", {1}}}), ErrorCode::invalid_argument, {"'table'", "-3"});
  expect_error(engine_.try_prepare({{"table", {3}}}), ErrorCode::invalid_argument, {"'index'"});
  expect_error(engine_.try_prepare({{"table", {std::int64_t{1} << 62, 4}}, {"index", {1}}}),
               ErrorCode::invalid_argument, {"'table'", "f32[rows]", "4611686018427387904x4"});
}

TEST(WrongInput, FixedDimOfARealModel) {
  const Engine engine = Engine::load(model_path("rl-ppo-g1"), {.threads = 1});
  expect_error(engine.try_run(Tensor(DType::f32, {1, 99})), ErrorCode::invalid_argument,
               {"'actor_obs'", "f32[1,100]", "1,99"});
}

TEST(WrongInput, ShapesThatDoNotBroadcast) {
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Add", {"a", "b"}, {"y"}, {}, "sum"}},
                           .inputs = {onnx::value("a", DType::f32, {"n"}), onnx::value("b", DType::f32, {"m"})},
                           .outputs = {onnx::value("y", DType::f32, {"n"})}}});
  expect_error(engine.try_run({{"a", Tensor(DType::f32, {3})}, {"b", Tensor(DType::f32, {4})}}),
               ErrorCode::invalid_model, {"sum", "3", "4"});
  EXPECT_EQ(engine.run({{"a", Tensor(DType::f32, {3})}, {"b", Tensor(DType::f32, {1})}})[0].shape(), (Shape{3}));
}

TEST(WrongInput, ShapesToPrepareThatOverflow) {
  const Engine engine = engine_of({.graph = {.nodes = {{"Neg", {"x"}, {"y"}, {}, "negated"}},
                                             .inputs = {onnx::value("x", DType::f32, {"n", "m"})},
                                             .outputs = {onnx::value("y", DType::f32, {"n", "m"})}}});
  expect_error(engine.try_prepare({{"x", {std::int64_t{1} << 62, 4}}}), ErrorCode::invalid_argument,
               {"'x'", "4611686018427387904x4"});
}

TEST(WrongInput, ElementsOfASequence) {
  const Engine engine =
      engine_of({.graph = {.nodes = {{"ConcatFromSequence", {"s"}, {"y"}, {onnx::attr("axis", 0)}, "joined"}},
                           .inputs = {onnx::sequence("s", DType::f32)},
                           .outputs = {onnx::value("y", DType::f32, {"n"})}}});
  const Tensor one(DType::f32, {1});
  for (const Tensor& wrong : {Tensor(), Tensor(DType::i64, {1})}) {
    expect_error(engine.try_run({{"s", Sequence{one, wrong}}}), ErrorCode::invalid_argument, {"'s'", "seq(f32"});
  }
  EXPECT_EQ(engine.run({{"s", Sequence{one, one}}})[0].shape(), (Shape{2}));
}

/// An identity of f32[2] whose output is declared as `declared`.
Engine contradictory(const onnx::Bytes& declared, const EngineOptions& options = {.threads = 1}) {
  return engine_of({.graph = {.nodes = {{"Neg", {"x"}, {"y"}, {}, "negated"}},
                              .inputs = {onnx::value("x", DType::f32, {2})},
                              .outputs = {declared}}},
                   options);
}

TEST(ContradictoryModel, OutputOfAnotherDtypeThanDeclared) {
  const Tensor x(DType::f32, {2});
  const Engine engine = contradictory(onnx::value("y", DType::i64, {2}));
  expect_error(engine.try_run(x), ErrorCode::invalid_model, {"'y'", "i64[2]", "f32[2]"});
  expect_error(engine.try_prepare({}), ErrorCode::invalid_model, {"'y'", "i64[2]", "f32[2]"});
  Session session = engine.session();
  expect_error(session.try_run(x), ErrorCode::invalid_model, {"'y'", "i64[2]", "f32[2]"});
  session.bind_input("x", x);
  session.bind_output("y", Tensor(DType::f32, {2}));
  expect_error(session.try_run(), ErrorCode::invalid_model, {"'y'", "i64[2]", "f32[2]"});
  expect_error(session.try_prepare({.real_time = true}), ErrorCode::invalid_model, {"'y'", "i64[2]", "f32[2]"});
  expect_error(contradictory(onnx::sequence("y", DType::f32)).try_run(x), ErrorCode::invalid_model,
               {"'y'", "seq(f32", "f32[2]"});
}

TEST(ContradictoryModel, OutputOfAnotherShapeThanDeclaredIsWorthAWarning) {
  std::vector<std::string> said;
  EngineOptions options{.threads = 1};
  options.log = [&](LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) said.emplace_back(text);
  };
  const Engine engine = contradictory(onnx::value("y", DType::f32, {3}), options);
  for (int run = 0; run < 3; ++run) EXPECT_EQ(engine.run(Tensor(DType::f32, {2}))[0].shape(), (Shape{2}));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("'y' is declared as f32[3]"), std::string::npos) << said[0];
}

TEST(ContradictoryModel, InputThatIsAnOutputOfAnotherDtype) {
  expect_error(try_engine_of(onnx::model({.graph = {.nodes = {},
                                                    .inputs = {onnx::value("x", DType::f32, {2})},
                                                    .outputs = {onnx::value("x", DType::i64, {2})}}})),
               ErrorCode::invalid_model, {"'x'", "f32[2]", "i64[2]"});
}

TEST(WrongInput, ShapesThatOverflow) {
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Expand", {"x", "shape"}, {"y"}, {}, "blow_up"}},
                           .inputs = {onnx::value("x", DType::f32, {1}), onnx::value("shape", DType::i64, {3})},
                           .outputs = {onnx::value("y", DType::f32, {"a", "b", "c"})}}});
  const std::int64_t huge = std::int64_t{1} << 40;
  const auto with = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    return Inputs{{"x", Tensor(DType::f32, {1})}, {"shape", Tensor::from<std::int64_t>({a, b, c}, {3})}};
  };
  const Result<Outputs> out = engine.try_run(with(huge, huge, huge));
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("blow_up"), std::string::npos) << out.error().message;
  EXPECT_EQ(engine.run(with(2, 3, 4))[0].shape(), (Shape{2, 3, 4}));
}

/// A loop that counts up.
Engine counting(const EngineOptions& options = {.threads = 1}) {
  return engine_of(loop_model({{"Add", {"a", "x"}, {"b"}, {}, "count"}, go_on()}, {1}, {1}), options);
}
Inputs count_to(std::int64_t trips) {
  return {{"trips", Tensor::scalar(trips)}, {"start", Tensor(DType::f32, {1})}, {"x", Tensor::from<float>({1}, {1})}};
}
constexpr std::int64_t kForever = std::int64_t{1} << 60;

TEST(Cancellation, BeforeARun) {
  const Engine engine = counting();
  std::stop_source source;
  source.request_stop();
  expect_error(engine.try_run(count_to(3), {.stop = source.get_token()}), ErrorCode::cancelled, {"cancelled"});
  EXPECT_EQ(engine.run(count_to(3))[0].view<float>()[0], 3.0F);
}

TEST(Cancellation, OfAnEndlessLoop) {
  const Engine engine = counting();
  std::stop_source source;
  std::jthread canceller([&] {
    std::this_thread::sleep_for(30ms);
    source.request_stop();
  });
  expect_error(engine.try_run(count_to(kForever), {.stop = source.get_token()}), ErrorCode::cancelled, {"cancelled"});
  EXPECT_EQ(engine.run(count_to(3))[0].view<float>()[0], 3.0F);
}

TEST(Cancellation, ByDeadline) {
  const Engine engine = counting();
  const auto start = std::chrono::steady_clock::now();
  expect_error(engine.try_run(count_to(kForever), {.deadline = start + 30ms}), ErrorCode::deadline_exceeded,
               {"deadline"});
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
  expect_error(engine.try_run(count_to(1), {.deadline = start}), ErrorCode::deadline_exceeded, {"deadline"});
  EXPECT_EQ(engine.run(count_to(3), {.deadline = std::chrono::steady_clock::now() + 1h})[0].view<float>()[0], 3.0F);
}

TEST(Cancellation, OfASession) {
  Session session = counting().session();
  const auto deadline = std::chrono::steady_clock::now() + 20ms;
  expect_error(session.try_run(count_to(kForever), {.deadline = deadline}), ErrorCode::deadline_exceeded, {"deadline"});
  session.run(count_to(4));
  EXPECT_EQ(session.output("y").view<float>()[0], 4.0F);
}

TEST(Cancellation, BetweenPasses) {
  std::stop_source source;
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .log = [&](LogLevel, std::string_view text) {
                                                        if (text.find("making a plan") != std::string_view::npos)
                                                          source.request_stop();
                                                      }});
  const std::uint64_t before = engine.cache_stats().passes_run;
  expect_error(engine.try_run(Tensor(DType::f32, {7}), {.stop = source.get_token()}), ErrorCode::cancelled,
               {"cancelled"});
  EXPECT_EQ(engine.cache_stats().passes_run, before);
  EXPECT_EQ(engine.run(Tensor(DType::f32, {7}))[0].shape(), Shape{7});
}

/// Has two threads' work done on the calling one, and calls `first` before the first of it.
class HookedPool final : public ThreadPool {
 public:
  [[nodiscard]] int threads() const noexcept override { return 2; }
  void parallel(int parts, Task task, void* context) noexcept override {
    if (calls++ == 0 && first) first();
    for (int i = 0; i < parts; ++i) task(context, i, 0);
  }
  int calls = 0;
  std::function<void()> first;
};

/// Three steps that are worth two threads, each one call of the pool; in a Scan over 3 where `in_scan`.
onnx::ModelSpec three_steps(bool in_scan) {
  const std::vector<onnx::NodeSpec> chain = {
      {"Exp", {"x"}, {"a"}, {}, "one"}, {"Tanh", {"a"}, {"b"}, {}, "two"}, {"Exp", {"b"}, {"y"}, {}, "three"}};
  onnx::GraphSpec graph = {.nodes = chain,
                           .inputs = {onnx::value("x", DType::f32, {"n"})},
                           .outputs = {onnx::value("y", DType::f32, {"n"})}};
  if (!in_scan) return {.graph = graph};
  graph.nodes.resize(1);
  graph.nodes[0].outputs = {"y"};
  graph.name = "body";
  return {.graph = {.nodes = {{"Scan",
                               {"xs"},
                               {"ys"},
                               {onnx::attr_graph("body", onnx::graph(graph)), onnx::attr("num_scan_inputs", 1)},
                               "scan"}},
                    .inputs = {onnx::value("xs", DType::f32, {"m", "n"})},
                    .outputs = {onnx::value("ys", DType::f32, {"m", "n"})}}};
}

TEST(Cancellation, BetweenTheStepsOfAPlanAndTheIterationsOfAScan) {
  constexpr std::int64_t kCount = 200'000;
  for (const bool in_scan : {false, true}) {
    const Tensor x(DType::f32, in_scan ? Shape{3, kCount} : Shape{kCount});
    const auto pool = std::make_shared<HookedPool>();
    const Engine engine = engine_of(three_steps(in_scan), {.pool = pool, .passes = "-graph_fuse"});
    static_cast<void>(engine.run(x));  // compiles, in the pool too
    pool->calls = 0;
    static_cast<void>(engine.run(x));
    ASSERT_EQ(pool->calls, 3) << "not each step is one call of the pool";
    const auto expect_end = [&](const RunOptions& options, ErrorCode code) {
      pool->calls = 0;
      expect_error(engine.try_run(x, options), code, {});
      EXPECT_EQ(pool->calls, 1) << "it went on";
    };
    std::stop_source source;
    pool->first = [&] { source.request_stop(); };
    expect_end({.stop = source.get_token()}, ErrorCode::cancelled);
    const auto deadline = std::chrono::steady_clock::now() + 200ms;
    pool->first = [&] { std::this_thread::sleep_until(deadline); };
    expect_end({.deadline = deadline}, ErrorCode::deadline_exceeded);
    pool->first = nullptr;
    static_cast<void>(engine.run(x));
  }
}

TEST(Cancellation, BetweenNodesThatRunOnTheirOwn) {
  class StoppingAllocator final : public Allocator {
   public:
    void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
      ++calls;
      source.request_stop();
      return std::aligned_alloc(alignment, bytes);
    }
    void release(void* memory, std::size_t, std::size_t) noexcept override { std::free(memory); }
    std::stop_source source;
    int calls = 0;
  };
  const auto allocator = std::make_shared<StoppingAllocator>();
  const Engine engine =
      engine_of({.graph = {.nodes = {{"SequenceConstruct", {"x"}, {"s"}, {}, "gather"},
                                     {"ConcatFromSequence", {"s"}, {"y"}, {onnx::attr("axis", 0)}, "join"}},
                           .inputs = {onnx::value("x", DType::f32, {"n"})},
                           .outputs = {onnx::value("y", DType::f32, {"n"})}}},
                {.threads = 1, .allocator = allocator});
  const int loaded = allocator->calls;
  allocator->source = std::stop_source();
  expect_error(engine.try_run(Tensor(DType::f32, {100}), {.stop = allocator->source.get_token()}), ErrorCode::cancelled,
               {"cancelled"});
  EXPECT_EQ(allocator->calls, loaded + 1) << "it went on after the first node";
}

TEST(MemoryLimit, ARunThatNeedsMoreFailsAndSmallerOnesGoOn) {
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .memory_bytes = 1 << 20});
  expect_error(engine.try_run(Tensor(DType::f32, {1 << 20})), ErrorCode::limit_exceeded,
               {"shift", "4194304 bytes", "memory_bytes", "of 1048576 bytes"});
  EXPECT_EQ(engine.run(Tensor(DType::f32, {1000}))[0].view<float>()[999], 1.0F);
}

TEST(MemoryLimit, AnArenaIsBlamedOnTheStepWithTheLargestBuffer) {
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .memory_bytes = 1 << 20, .passes = "-graph_fuse"});
  expect_error(engine.try_run(Tensor(DType::f32, {1 << 20})), ErrorCode::limit_exceeded, {"scale", "4194304 bytes"});
}

TEST(MemoryLimit, WhatCouldNeverFitIsRefusedBeforeItIsCompiled) {
  const Engine sums = engine_of(scale_and_shift(), {.threads = 1, .memory_bytes = 1 << 20});
  expect_error(sums.try_prepare({{"x", {1 << 20}}}), ErrorCode::limit_exceeded, {"input 'x'", "4194304 bytes"});

  // oneDNN would take long to make a primitive of this.
  const Engine wide = engine_of(
      {.graph = {.nodes = {{"Conv", {"x", "w"}, {"y"}, {onnx::attr("pads", onnx::Ints{0, INT32_MAX, 0, 0})}, "widen"}},
                 .inputs = {onnx::value("x", DType::f32, {1, 1, 1, "n"})},
                 .outputs = {onnx::value("y", DType::f32, {1, 1, 1, "m"})},
                 .initializers = {onnx::tensor("w", {1, 1, 1, 2}, std::vector<float>{1, 1})}}},
      {.threads = 1, .memory_bytes = 1 << 20});
  expect_error(wide.try_prepare({{"x", {1, 1, 1, 8}}}), ErrorCode::limit_exceeded, {"widen", "of 1048576 bytes"});
}

TEST(MemoryLimit, WhatIsIdleMakesRoom) {
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .memory_bytes = 1 << 20, .passes = "-graph_fuse"});
  const Tensor x(DType::f32, {100'000});  // 400 kB of arena and as much of result
  static_cast<void>(engine.run(x));
  Session session = engine.session();
  session.run({{"x", x}});
  static_cast<void>(engine.run(Tensor(DType::f32, {10})));
}

/// One node that reads x and, where it has a second input, i64[m].
onnx::ModelSpec one_node(const onnx::NodeSpec& node, DType in, DType out, int out_rank) {
  onnx::ModelSpec spec = {
      .graph = {.nodes = {node},
                .inputs = {onnx::value("x", in, {"n"})},
                .outputs = {onnx::value(
                    "y", out, out_rank == 1 ? std::vector<onnx::DimSpec>{"k"} : std::vector<onnx::DimSpec>{1, "k"})}}};
  if (node.inputs.size() > 1) spec.graph.inputs.push_back(onnx::value(node.inputs[1], DType::i64, {"m"}));
  return spec;
}

Tensor ones(std::int64_t n) {
  Tensor t(DType::f32, {n});
  for (float& v : t.mutable_view<float>()) v = 1;
  return t;
}

TEST(MemoryLimit, OfANodeWhoseOutputDependsOnData) {
  const EngineOptions options = {.threads = 1, .memory_bytes = 1 << 20};
  const Engine places =
      engine_of(one_node({"NonZero", {"x"}, {"y"}, {}, "places"}, DType::f32, DType::i64, 2), options);
  expect_error(places.try_run(ones(200'000)), ErrorCode::limit_exceeded, {"places", "1600000 bytes", "memory_bytes"});
  EXPECT_EQ(places.run(ones(20))[0].shape(), (Shape{1, 20}));
  EXPECT_EQ(places.memory().values, 0U);

  const Engine expand =
      engine_of(one_node({"Expand", {"x", "shape"}, {"y"}, {}, "blow_up"}, DType::f32, DType::f32, 1), options);
  const auto to = [](std::int64_t n) {
    return Inputs{{"x", ones(1)}, {"shape", Tensor::from<std::int64_t>({n}, {1})}};
  };
  for (const std::int64_t n : {std::int64_t{1} << 20, std::int64_t{1} << 38, std::int64_t{1} << 58})
    expect_error(expand.try_run(to(n)), ErrorCode::limit_exceeded, {"blow_up", std::to_string(4 * n), "memory_bytes"});
  EXPECT_EQ(expand.run(to(7))[0].shape(), (Shape{7}));
}

TEST(MemoryLimit, OfDecodedImages) {
  if (ops::find_operator("ImageDecoder") == nullptr) GTEST_SKIP() << "built without images";
  const Engine engine = engine_of({.graph = {.nodes = {{"ImageDecoder", {"x"}, {"y"}, {}, "decode"}},
                                             .inputs = {onnx::value("x", DType::u8, {"n"})},
                                             .outputs = {onnx::value("y", DType::u8, {"h", "w", 3})}}},
                                  {.threads = 1, .memory_bytes = 1 << 20});
  const auto image = [](const std::string& text) {
    return Tensor::from(std::vector<std::uint8_t>(text.begin(), text.end()), {static_cast<std::int64_t>(text.size())});
  };
  expect_error(engine.try_run(image("P3 1000 1000 255 1")), ErrorCode::limit_exceeded,
               {"decode", "3000000 bytes", "memory_bytes"});
  EXPECT_EQ(engine.run(image("P3 1 1 255 1 2 3"))[0].view<std::uint8_t>()[2], 3);
}

TEST(MemoryLimit, OfStrings) {
  const Engine engine =
      engine_of(one_node({"Expand", {"x", "shape"}, {"y"}, {}, "blow_up"}, DType::string, DType::string, 1),
                {.threads = 1, .memory_bytes = 1 << 20});
  const auto to = [](std::int64_t n) {
    return Inputs{{"x", Tensor::from<std::string>({"a"}, {1})}, {"shape", Tensor::from<std::int64_t>({n}, {1})}};
  };
  expect_error(engine.try_run(to(std::int64_t{1} << 40)), ErrorCode::limit_exceeded, {"blow_up", "memory_bytes"});
  EXPECT_EQ(engine.run(to(9))[0].shape(), (Shape{9}));
}

/// y = x three times over, by way of a sequence: nodes that run on their own.
onnx::ModelSpec through_a_sequence() {
  return {.graph = {.nodes = {{"SequenceConstruct", {"x", "x", "x"}, {"s"}, {}, "gather"},
                              {"ConcatFromSequence", {"s"}, {"y"}, {onnx::attr("axis", 0)}, "join"}},
                    .inputs = {onnx::value("x", DType::f32, {"n"})},
                    .outputs = {onnx::value("y", DType::f32, {"m"})}}};
}

TEST(MemoryLimit, OfNodesThatRunOnTheirOwn) {
  const Engine engine = engine_of(through_a_sequence(), {.threads = 1, .memory_bytes = 1 << 20});
  expect_error(engine.try_run(ones(100'000)), ErrorCode::limit_exceeded, {"gather", "400000 bytes", "memory_bytes"});
  expect_error(engine.try_run(ones(50'000)), ErrorCode::limit_exceeded, {"join", "600000 bytes", "memory_bytes"});
  EXPECT_EQ(engine.memory().values, 0U);
  const Outputs out = engine.run(ones(40'000));
  EXPECT_EQ(out[0].shape(), (Shape{120'000}));
  EXPECT_EQ(engine.memory().values, 480'000U);
  EXPECT_EQ(engine.memory().arenas, 0U);
}

TEST(MemoryLimit, OfWeightsAndOfWhatIsFoldedOfThem) {
  onnx::ModelSpec spec = {.graph = {.nodes = {{"Concat", {"w", "w", "w"}, {"c"}, {onnx::attr("axis", 0)}, "triple"},
                                              {"Add", {"x", "c"}, {"y"}, {}, "sum"}},
                                    .inputs = {onnx::value("x", DType::f32, {1})},
                                    .outputs = {onnx::value("y", DType::f32, {"n"})},
                                    .initializers = {onnx::tensor("w", {40'000}, std::vector<float>(40'000, 1.0F))}}};
  const std::string bytes = onnx::model(spec);
  expect_error(try_engine_of(bytes, {.threads = 1, .memory_bytes = 100'000}), ErrorCode::limit_exceeded,
               {"'w'", "160000 bytes", "memory_bytes"});
  expect_error(try_engine_of(bytes, {.threads = 1, .memory_bytes = 500'000}), ErrorCode::limit_exceeded,
               {"triple", "480000 bytes", "memory_bytes"});
  const Engine engine = unwrap(try_engine_of(bytes, {.threads = 1, .memory_bytes = 2'000'000}));
  EXPECT_EQ(engine.memory().weights, 480'000U) << "w itself is gone";
  EXPECT_EQ(engine.run(Tensor(DType::f32, {1}))[0].view<float>()[119'999], 1.0F);
}

TEST(MemoryLimit, ALoopThatGrowsWithoutEndFails) {
  const Engine engine =
      engine_of(loop_model({{"Concat", {"a", "a"}, {"b"}, {onnx::attr("axis", 0)}, "double"}, go_on()}, {"n"}, {1}),
                {.threads = 1, .memory_bytes = 1 << 20});
  const auto doubled = [](std::int64_t trips) {
    return Inputs{{"trips", Tensor::scalar(trips)}, {"start", Tensor(DType::f32, {1})}, {"x", Tensor(DType::f32, {1})}};
  };
  expect_error(engine.try_run(doubled(kForever)), ErrorCode::limit_exceeded, {"double", "memory_bytes"});
  EXPECT_EQ(engine.run(doubled(5))[0].shape(), (Shape{32}));
}

TEST(WrongInput, CountOfALoop) {
  const onnx::Bytes body =
      onnx::graph({.nodes = {{"Identity", {"go"}, {"go_on"}}, {"Neg", {"x"}, {"row"}}},
                   .inputs = {onnx::value("i", DType::i64, {}), onnx::value("go", DType::boolean, {})},
                   .outputs = {onnx::value("go_on", DType::boolean, {}), onnx::value("row", DType::f32, {1})},
                   .name = "body"});
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Loop", {"trips", ""}, {"y"}, {onnx::attr_graph("body", body)}, "rows"}},
                           .inputs = {onnx::value("trips", DType::f32, {}), onnx::value("x", DType::f32, {1})},
                           .outputs = {onnx::value("y", DType::f32, {"n", 1})}}});
  expect_error(engine.try_run({{"trips", Tensor::scalar(2.0F)}, {"x", ones(1)}}), ErrorCode::invalid_model,
               {"Loop 'rows'", "input 0 must be i32 or i64, got f32"});
}

TEST(MemoryLimit, OfWhatALoopGathers) {
  // The body passes x on as the scan output.
  const onnx::Bytes body =
      onnx::graph({.nodes = {{"Identity", {"go"}, {"go_on"}}, {"Add", {"x", "x"}, {"row"}, {}, "row"}},
                   .inputs = {onnx::value("i", DType::i64, {}), onnx::value("go", DType::boolean, {})},
                   .outputs = {onnx::value("go_on", DType::boolean, {}), onnx::value("row", DType::f32, {1000})},
                   .name = "body"});
  const Engine engine =
      engine_of({.graph = {.nodes = {{"Loop", {"trips", ""}, {"y"}, {onnx::attr_graph("body", body)}, "rows"}},
                           .inputs = {onnx::value("trips", DType::i64, {}), onnx::value("x", DType::f32, {1000})},
                           .outputs = {onnx::value("y", DType::f32, {"n", 1000})}}},
                {.threads = 1, .memory_bytes = 1 << 20});
  const auto rows = [](std::int64_t trips) { return Inputs{{"trips", Tensor::scalar(trips)}, {"x", ones(1000)}}; };
  expect_error(engine.try_run(rows(kForever)), ErrorCode::limit_exceeded, {"Add 'row'", "memory_bytes"});
  // The rows fit, but not they and the stack of them.
  expect_error(engine.try_run(rows(200)), ErrorCode::limit_exceeded, {"Loop 'rows'", "800000 bytes", "memory_bytes"});
  EXPECT_EQ(engine.run(rows(50))[0].view<float>()[49'999], 2.0F);
}

TEST(MemoryLimit, ResultsGiveTheirMemoryBack) {
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .memory_bytes = 1 << 20});
  for (int i = 0; i < 100; ++i) static_cast<void>(engine.run(Tensor(DType::f32, {50'000})));
  EXPECT_EQ(engine.memory().values, 0U);
  const Outputs kept = engine.run(Tensor(DType::f32, {50'000}));
  EXPECT_EQ(engine.memory().values, 200'000U);
  engine.trim();
  EXPECT_EQ(engine.memory().arenas, 0U);
}

/// Counts what it hands out, and refuses more than `limit` bytes at a time.
class CountingAllocator final : public Allocator {
 public:
  explicit CountingAllocator(std::size_t limit) : limit_(limit) {}
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    if (bytes > limit_) return nullptr;
    held += bytes;
    ++calls;
    return std::aligned_alloc(alignment, bytes);
  }
  void release(void* memory, std::size_t bytes, std::size_t) noexcept override {
    held -= bytes;
    std::free(memory);
  }
  std::size_t held = 0;
  int calls = 0;

 private:
  std::size_t limit_;
};

TEST(ApplicationAllocator, GivesTheMemoryAndGetsItBack) {
  const auto allocator = std::make_shared<CountingAllocator>(1 << 20);
  {
    const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .allocator = allocator});
    const Outputs out = engine.run(Tensor(DType::f32, {1000}));
    EXPECT_GT(allocator->calls, 0);
    EXPECT_GE(allocator->held, out[0].tensor().bytes());
    expect_error(engine.try_run(Tensor(DType::f32, {1 << 20})), ErrorCode::out_of_memory, {"4194304"});
    EXPECT_EQ(engine.run(Tensor(DType::f32, {10}))[0].view<float>()[9], 1.0F);
  }
  EXPECT_EQ(allocator->held, 0U);
}

TEST(ApplicationAllocator, GivesAllDataMemory) {
  const auto allocator = std::make_shared<CountingAllocator>(1 << 20);
  {
    const Engine eager = engine_of(through_a_sequence(), {.threads = 1, .allocator = allocator});
    const Outputs out = eager.run(ones(1000));
    EXPECT_EQ(allocator->held, eager.memory().data());
    EXPECT_EQ(eager.memory().values, 12'032U) << "12,000 bytes in units of 64";
    expect_error(eager.try_run(ones(100'000)), ErrorCode::out_of_memory, {"join", "1200000"});
  }
  EXPECT_EQ(allocator->held, 0U);
  {
    const Engine engine = Engine::load(model_path("ppocr-cls"), {.threads = 1, .allocator = allocator});
    const std::size_t weights = engine.memory().weights;
    EXPECT_GT(weights, 100'000U);
    EXPECT_EQ(allocator->held, weights);
    const Sample sample = stored_sample("ppocr-cls");
    Session session = engine.session();
    session.run(inputs_of(sample));
    const MemoryUse use = engine.memory();
    EXPECT_GT(use.packed_weights, 0U);
    EXPECT_GT(use.arenas, 0U);
    EXPECT_EQ(allocator->held, use.data());
  }
  EXPECT_EQ(allocator->held, 0U);
}

TEST(WrongOptions, AreNamed) {
  const std::string bytes = onnx::model(scale_and_shift());
  expect_error(try_engine_of(bytes, {.threads = -1}), ErrorCode::invalid_argument, {"threads", "-1"});
  expect_error(try_engine_of(bytes, {.threads = 1'000'000}), ErrorCode::invalid_argument, {"threads", "1000000"});
  expect_error(try_engine_of(bytes, {.backends = {"cuda"}}), ErrorCode::invalid_argument, {"'cuda'", "onednn"});
  expect_error(try_engine_of(bytes, {}, {.formats = {"tflite"}}), ErrorCode::unsupported, {"none is allowed"});
}

TEST(DamagedModel, TruncatedAnywhere) {
  std::string bytes;
  {
    std::ifstream file(model_path("surface-mlp"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  ASSERT_GT(bytes.size(), 1000U);
  for (std::size_t i = 0; i < 40; ++i) {
    const Result<Engine> engine = try_engine_of(bytes.substr(0, bytes.size() * i / 40));
    ASSERT_FALSE(engine.ok()) << i << "/40 of the file loads";
    EXPECT_FALSE(engine.error().message.empty());
    EXPECT_NE(to_string(engine.error().code), "internal") << engine.error().message;
  }
}

TEST(DamagedModel, Cycle) {
  expect_error(try_engine_of(onnx::model(
                   {.graph = {.nodes = {{"Add", {"x", "b"}, {"a"}, {}, "first"}, {"Neg", {"a"}, {"b"}, {}, "second"}},
                              .inputs = {onnx::value("x", DType::f32, {1})},
                              .outputs = {onnx::value("a", DType::f32, {1})}}})),
               ErrorCode::invalid_model, {"cycle", "first"});
}

TEST(DamagedModel, OperatorsThatDoNotExistAreListedAtOnce) {
  expect_error(try_engine_of(
                   onnx::model({.graph = {.nodes = {{"Fold", {"x"}, {"a"}, {}, "n1"}, {"Spin", {"a"}, {"b"}, {}, "n2"}},
                                          .inputs = {onnx::value("x", DType::f32, {1})},
                                          .outputs = {onnx::value("b", DType::f32, {1})}}})),
               ErrorCode::unsupported, {"Fold", "n1", "Spin", "n2"});
}

TEST(DamagedModel, NoSuchFile) {
  expect_error(Engine::try_load("nothing/at/all.onnx"), ErrorCode::not_found, {"nothing/at/all.onnx"});
}

/// A model whose weight lies in the file `location`.
onnx::Bytes with_external_weight(const std::string& location) {
  const auto entry = [](const std::string& key, const std::string& value) {
    return onnx::message([&](auto& w) {
      w.add_string(1, key);
      w.add_string(2, value);
    });
  };
  const onnx::Bytes weight = onnx::message([&](auto& w) {
    w.add_int64(1, 2);
    w.add_int32(2, DType::f32);
    w.add_string(8, "w");
    w.add_message(13, entry("location", location));
    w.add_int32(14, 1);
  });
  return onnx::model({.graph = {.nodes = {{"Add", {"x", "w"}, {"y"}, {}, "sum"}},
                                .inputs = {onnx::value("x", DType::f32, {2})},
                                .outputs = {onnx::value("y", DType::f32, {2})},
                                .initializers = {weight}}});
}

TEST(ExternalData, StaysInsideTheModelsFolder) {
  namespace fs = std::filesystem;
  const TemporaryFolder temporary;
  const fs::path& folder = temporary.path();
  fs::create_directory(folder / "model");
  const std::vector<float> weight = {5, 6};
  const auto write = [](const fs::path& path, const void* data, std::size_t size) {
    std::ofstream(path, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  };
  write(folder / "secret.bin", weight.data(), 8);
  write(folder / "model" / "weight.bin", weight.data(), 8);
  fs::create_symlink(folder / "secret.bin", folder / "model" / "link.bin");
  const auto load = [&](const std::string& location) {
    const onnx::Bytes model = with_external_weight(location);
    write(folder / "model" / "m.onnx", model.data(), model.size());
    return Engine::try_load((folder / "model" / "m.onnx").string(), {.threads = 1});
  };
  const Result<Engine> inside = load("weight.bin");
  ASSERT_TRUE(inside.ok()) << inside.error().message;
  EXPECT_EQ(inside->run(Tensor(DType::f32, {2}))[0].view<float>()[1], 6.0F);
  for (const std::string& location :
       {std::string("../secret.bin"), (folder / "secret.bin").string(), std::string("link.bin")}) {
    const Result<Engine> engine = load(location);
    ASSERT_FALSE(engine.ok()) << location;
    EXPECT_NE(engine.error().message.find(location), std::string::npos) << engine.error().message;
  }
}

TEST(ExternalData, ComesFromCompanionsInMemory) {
  const float weight[] = {7, 8};
  const auto bytes = std::as_bytes(std::span(weight));
  const Result<Engine> engine =
      try_engine_of(with_external_weight("w.bin"), {.threads = 1}, {.companions = {{"w.bin", bytes}}});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ(engine->run(Tensor(DType::f32, {2}))[0].view<float>()[1], 8.0F);
  EXPECT_FALSE(try_engine_of(with_external_weight("w.bin")).ok());
}

TEST(LoadLimit, OfNodesBytesAndTime) {
  const std::string bytes = onnx::model(scale_and_shift());
  LoadOptions nodes;
  nodes.limits.nodes = 1;
  expect_error(try_engine_of(bytes, {}, nodes), ErrorCode::limit_exceeded,
               {"the model has more than 1 nodes, the load's limit"});
  LoadOptions size;
  size.limits.bytes = 10;
  expect_error(try_engine_of(bytes, {}, size), ErrorCode::limit_exceeded,
               {fmt::format("the model has {} bytes, the limit is 10", bytes.size())});
  LoadOptions time;
  time.limits.time = std::chrono::milliseconds(0);
  expect_error(try_engine_of(bytes, {}, time), ErrorCode::limit_exceeded,
               {"the load took longer than its limit of 0 ms"});
  time.limits.time = std::chrono::milliseconds::max();
  const Result<Engine> without_limit = try_engine_of(bytes, {}, time);
  EXPECT_TRUE(without_limit.ok()) << without_limit.error().message;
}

/// a · b, square matrices of `n` rows of constants.
onnx::ModelSpec product(int n) {
  const std::vector<float> ones(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 1.0F);
  return {.graph = {.nodes = {{"MatMul", {"a", "b"}, {"y"}, {}, "product"}},
                    .inputs = {},
                    .outputs = {onnx::value("y", DType::f32, {n, n})},
                    .initializers = {onnx::tensor("a", {n, n}, ones), onnx::tensor("b", {n, n}, ones)}}};
}

/// How often the time is looked at while the product is folded: once for the node, then between the parts.
int looks_within_fold(int n) {
  const onnx::Bytes bytes = onnx::model(product(n));
  const ops::Graph imported =
      frontends::import_model(frontends::ModelSource::from_bytes(std::as_bytes(std::span(bytes)), {}), {});
  const EngineOptions options{.threads = 1};
  runtime::EngineCore core(options);
  int within = 0;
  for (int last = 1;; ++last) {
    ops::Graph graph = imported.clone();
    std::vector<passes::Record> records;
    int looks = 0;
    try {
      core.freeze(graph, records, [&] {
        if (++looks == last) fail(ErrorCode::limit_exceeded, "too late");
      });
      return within;
    } catch (const Failure& failure) {
      within += failure.error.message == "MatMul 'product': too late";
    }
  }
}

TEST(LoadLimit, OfTimeIsLookedAtWithinALongFold) {
  EXPECT_EQ(looks_within_fold(4), 1);
  EXPECT_GT(looks_within_fold(256), 2);
  const Outputs in_parts = engine_of(product(256)).run({});
  for (const float v : in_parts[0].view<float>()) ASSERT_EQ(v, 256.0F);
}

TEST(LoadLimit, OfNesting) {
  onnx::Bytes body = onnx::graph({.nodes = {{"Identity", {"x"}, {"b"}}},
                                  .inputs = {},
                                  .outputs = {onnx::value("b", DType::f32, {})},
                                  .name = "innermost"});
  for (int depth = 1; depth < 4; ++depth) {
    const onnx::NodeSpec branch{
        "If", {"go"}, {"b"}, {onnx::attr_graph("then_branch", body), onnx::attr_graph("else_branch", body)}, "choose"};
    body = onnx::graph({.nodes = {branch}, .inputs = {}, .outputs = {onnx::value("b", DType::f32, {})}, .name = "g"});
  }
  const std::string bytes =
      onnx::model({.graph = {.nodes = {{"If",
                                        {"go"},
                                        {"y"},
                                        {onnx::attr_graph("then_branch", body), onnx::attr_graph("else_branch", body)},
                                        "outermost"}},
                             .inputs = {onnx::value("x", DType::f32, {}), onnx::value("go", DType::boolean, {})},
                             .outputs = {onnx::value("y", DType::f32, {})}}});
  EXPECT_TRUE(try_engine_of(bytes).ok());
  LoadOptions load;
  load.limits.nesting = 3;
  expect_error(try_engine_of(bytes, {}, load), ErrorCode::limit_exceeded, {"nested deeper than the load's limit of 3"});
}

}  // namespace
}  // namespace lathe::tests
