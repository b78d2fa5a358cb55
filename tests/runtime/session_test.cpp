// Sessions: buffers bound once are read and written at every run, and what cannot be bound is refused.
#include <lathe/session.h>

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "tests/support/engine_of.h"
#include "tests/support/real_models.h"

namespace lathe::tests {
namespace {

Tensor borrow(std::vector<float>& values, std::size_t first, std::int64_t count) {
  return Tensor::borrow(DType::f32, {count}, values.data() + first);
}

std::string message(const Result<void>& result, ErrorCode code) {
  if (result.ok()) return "no error";
  EXPECT_EQ(to_string(result.error().code), to_string(code)) << result.error().message;
  return result.error().message;
}

TEST(Session, ReadsAndWritesBoundMemory) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> x = {1, 2, 3};
  std::vector<float> y(3);
  session.bind_input("x", borrow(x, 0, 3));
  session.bind_output("y", borrow(y, 0, 3));
  session.run();
  EXPECT_EQ(y, (std::vector<float>{3, 5, 7}));
  x = {4, 5, 6};
  session.run();
  EXPECT_EQ(y, (std::vector<float>{9, 11, 13}));
  EXPECT_EQ(session.output("y").tensor().data(), y.data());
}

TEST(Session, BindingAgainReplaces) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> first(4), second(4), shorter(2);
  session.bind_input("x", borrow(x, 0, 4));
  session.bind_output("y", borrow(first, 0, 4));
  session.run();
  session.bind_output("y", borrow(second, 0, 4));
  x[0] = 10;
  session.run();
  EXPECT_EQ(first[0], 3.0F);
  EXPECT_EQ(second[0], 21.0F);
  session.bind_input("x", borrow(x, 0, 2));
  session.bind_output("y", borrow(shorter, 0, 2));
  session.run();
  EXPECT_EQ(shorter, (std::vector<float>{21, 5}));
}

TEST(Session, AnUndefinedTensorUnbinds) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> x = {1}, y(1);
  session.bind_input("x", borrow(x, 0, 1));
  session.bind_output("y", borrow(y, 0, 1));
  session.run();
  session.bind_output("y", {});
  x[0] = 5;
  session.run();
  EXPECT_EQ(y[0], 3.0F);
  EXPECT_EQ(session.output("y").view<float>()[0], 11.0F);
  session.bind_input("x", {});
  EXPECT_NE(message(session.try_run(), ErrorCode::invalid_argument).find("'x'"), std::string::npos);
}

TEST(Session, InputsGivenWinOverBoundOnes) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> x = {1, 2};
  session.bind_input("x", borrow(x, 0, 2));
  session.run({{"x", Tensor::from<float>({10}, {1})}});
  EXPECT_EQ(session.output("y").shape(), (Shape{1}));
  EXPECT_EQ(session.output("y").view<float>()[0], 21.0F);
  session.run();
  EXPECT_EQ(session.output("y").view<float>()[1], 5.0F);
}

TEST(Session, OneMemoryForInputAndOutputHoldsTheResult) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> x = {1, 2, 3};
  session.bind_input("x", borrow(x, 0, 3));
  session.bind_output("y", borrow(x, 0, 3));
  session.run();
  EXPECT_EQ(x, (std::vector<float>{3, 5, 7}));
  session.run();
  EXPECT_EQ(x, (std::vector<float>{7, 11, 15}));
}

TEST(Session, OverlapInPartIsRefused) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> memory(5);
  session.bind_input("x", borrow(memory, 0, 4));
  session.bind_output("y", borrow(memory, 1, 4));
  EXPECT_NE(message(session.try_run(), ErrorCode::invalid_argument).find("overlaps"), std::string::npos);
  std::vector<float> apart(4);
  session.bind_output("y", borrow(apart, 0, 4));
  session.run();
  EXPECT_EQ(apart[0], 1.0F);
}

TEST(Session, OutputsThatOverlapAreRefused) {
  onnx::ModelSpec spec = scale_and_shift();
  spec.graph.outputs.push_back(onnx::value("m", DType::f32, {"n"}));
  Session session = engine_of(spec).session();
  std::vector<float> x(4), memory(6);
  session.bind_input("x", borrow(x, 0, 4));
  session.bind_output("y", borrow(memory, 0, 4));
  session.bind_output("m", borrow(memory, 2, 4));
  const std::string text = message(session.try_run(), ErrorCode::invalid_argument);
  EXPECT_NE(text.find("'y' and 'm'"), std::string::npos) << text;
}

TEST(Session, OutputOfAnotherShapeOrDtypeIsRefused) {
  Session session = engine_of(scale_and_shift()).session();
  std::vector<float> x(4), y(4);
  session.bind_input("x", borrow(x, 0, 4));
  session.bind_output("y", borrow(y, 0, 3));
  const std::string shape = message(session.try_run(), ErrorCode::invalid_argument);
  EXPECT_NE(shape.find("output 'y' is f32[4], but it is bound to memory for f32[3]"), std::string::npos) << shape;
  session.bind_output("y", Tensor::borrow(DType::i32, {4}, y.data()));
  const std::string dtype = message(session.try_run(), ErrorCode::invalid_argument);
  EXPECT_NE(dtype.find("i32"), std::string::npos) << dtype;
  session.bind_output("y", borrow(y, 0, 4));
  session.run();
  EXPECT_EQ(y[3], 1.0F);
}

TEST(Session, WrongBindingsAreRefusedAtOnce) {
  Session session = engine_of(scale_and_shift()).session();
  EXPECT_NE(message(session.try_bind_input("nothing", Tensor(DType::f32, {1})), ErrorCode::not_found).find("'x'"),
            std::string::npos);
  EXPECT_NE(message(session.try_bind_output("nothing", Tensor(DType::f32, {1})), ErrorCode::not_found).find("'y'"),
            std::string::npos);
  message(session.try_bind_input("x", Tensor(DType::i64, {1})), ErrorCode::invalid_argument);
  message(session.try_bind_input("x", Tensor(DType::f32, {1, 1})), ErrorCode::invalid_argument);
}

TEST(Session, ServesManyShapesAndOutlivesItsEngine) {
  std::optional<Engine> engine = engine_of(scale_and_shift());
  Session session = engine->session();
  engine.reset();
  for (std::int64_t n : {3, 100, 1, 7, 100, 20, 3, 4, 5, 6, 8, 9, 10, 100}) {
    session.run({{"x", Tensor(DType::f32, {n})}});
    EXPECT_EQ(session.output("y").shape(), (Shape{n}));
  }
}

TEST(Session, MovedFromReturnsErrors) {
  Session session = engine_of(scale_and_shift()).session();
  Session other = std::move(session);
  // NOLINTBEGIN(bugprone-use-after-move): what this is about
  message(session.try_run(), ErrorCode::invalid_argument);
  message(session.try_run(Tensor(DType::f32, {1})), ErrorCode::invalid_argument);
  message(session.try_prepare(), ErrorCode::invalid_argument);
  message(session.try_bind_input("x", Tensor(DType::f32, {1})), ErrorCode::invalid_argument);
  message(session.try_bind_output("y", Tensor(DType::f32, {1})), ErrorCode::invalid_argument);
  EXPECT_EQ(session.find_output("y"), nullptr);
  EXPECT_EQ(session.find_output(0), nullptr);
  // NOLINTEND(bugprone-use-after-move)
  other.run(Tensor(DType::f32, {1}));
  EXPECT_NE(other.find_output("y"), nullptr);
}

TEST(Session, RealTimeSaysWhichMemoryIsShared) {
  Session session = engine_of(scale_and_shift()).session();
  const Tensor both(DType::f32, {4});
  session.bind_input("x", both);
  session.bind_output("y", both);
  const std::string text = message(session.try_prepare({.real_time = true}), ErrorCode::unsupported);
  EXPECT_NE(text.find("an output is bound to an input's memory"), std::string::npos) << text;
}

TEST(Session, RealTimeNeedsEverythingBound) {
  Session session = Engine::load(model_path("rl-ppo-g1"), {.threads = 1}).session();
  const std::string text = message(session.try_prepare({.real_time = true}), ErrorCode::unsupported);
  EXPECT_NE(text.find("input 'actor_obs' is not bound"), std::string::npos) << text;
  EXPECT_NE(text.find("output 'action' is not bound"), std::string::npos) << text;
}

TEST(Session, RealTimeLeavesBoundOutputsAsTheyWere) {
  Session session = Engine::load(model_path("rl-ppo-g1"), {.threads = 1}).session();
  const Sample sample = stored_sample("rl-ppo-g1");
  Tensor action(DType::f32, {1, 29});
  action.mutable_view<float>()[0] = 42;
  session.bind_input("actor_obs", sample.inputs[0].tensor);
  session.bind_output("action", action);
  session.prepare({.real_time = true});
  EXPECT_EQ(action.view<float>()[0], 42.0F);
  session.run();
  EXPECT_EQ(difference("rl-ppo-g1", "action", action, sample.outputs[0].tensor), std::nullopt);
}

TEST(Session, RealTimeNamesTheNodesThatCannotComply) {
  const Engine engine = engine_of(
      {.graph = {.nodes = {{"NonZero", {"x"}, {"y"}, {}, "where_it_is"}, {"Neg", {"x"}, {"z"}, {}, "negated"}},
                 .inputs = {onnx::value("x", DType::f32, {4})},
                 .outputs = {onnx::value("y", DType::i64, {1, "k"}), onnx::value("z", DType::f32, {4})}}});
  Session session = engine.session();
  std::vector<float> x = {0, 1, 0, 1}, z(4);
  std::vector<std::int64_t> y(2);
  session.bind_input("x", borrow(x, 0, 4));
  session.bind_output("y", Tensor::borrow(DType::i64, {1, 2}, y.data()));
  session.bind_output("z", borrow(z, 0, 4));
  const std::string text = message(session.try_prepare({.real_time = true}), ErrorCode::unsupported);
  EXPECT_NE(text.find("where_it_is"), std::string::npos) << text;
  EXPECT_EQ(text.find("negated"), std::string::npos) << text;
  session.run();
  EXPECT_EQ(y, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(z, (std::vector<float>{0, -1, 0, -1}));
}

TEST(Session, RealTimeNamesEveryKernelThatAllocates) {
  const Engine engine = engine_of(
      {.graph = {.nodes = {{"GridSample", {"x", "g"}, {"a"}, {}, "sampled"},
                           {"TopK", {"a", "k"}, {"b", "i"}, {}, "chosen"},
                           {"GridSample", {"b", "g"}, {"c"}, {}, "sampled_again"},
                           {"Neg", {"c"}, {"y"}, {}, "negated"}},
                 .inputs = {onnx::value("x", DType::f32, {1, 1, 4, 4}), onnx::value("g", DType::f32, {1, 4, 4, 2})},
                 .outputs = {onnx::value("y", DType::f32, {1, 1, 4, 4})},
                 .initializers = {onnx::tensor_raw("k", DType::i64, {1}, std::string("\4\0\0\0\0\0\0\0", 8))}}});
  Session session = engine.session();
  Tensor y(DType::f32, {1, 1, 4, 4});
  session.bind_input("x", Tensor(DType::f32, {1, 1, 4, 4}));
  session.bind_input("g", Tensor(DType::f32, {1, 4, 4, 2}));
  session.bind_output("y", y);
  EXPECT_EQ(message(session.try_prepare({.real_time = true}), ErrorCode::unsupported),
            "the session cannot run in real time:\n"
            "  GridSample 'sampled': runs a plain kernel, which allocates\n"
            "  GridSample 'sampled_again': runs a plain kernel, which allocates");
}

TEST(Session, RealTimeRunsConvolutionsInCompiledLoops) {
  const Engine engine = Engine::load(model_path("ppocr-cls"), {.threads = 1});
  const Sample sample = stored_sample("ppocr-cls");
  for (const tools::StepRecord& step : tools::explain(engine, shapes_of(sample), true).steps) {
    EXPECT_NE(step.backend, "onednn") << step.name;
    EXPECT_EQ(step.why_not_real_time, "") << step.name;
    EXPECT_FALSE(step.allocates) << step.name;
  }
  Session session = engine.session();
  Tensor y(sample.outputs[0].tensor.dtype(), sample.outputs[0].tensor.shape());
  session.bind_input(sample.inputs[0].name, sample.inputs[0].tensor);
  session.bind_output(sample.outputs[0].name, y);
  session.prepare({.real_time = true});
  session.run();
  EXPECT_EQ(difference("ppocr-cls", sample.outputs[0].name, y, sample.outputs[0].tensor), std::nullopt);
  const auto before = y.clone();
  session.bind_output(sample.outputs[0].name, y);  // bound again, it keeps to the plan
  session.run();
  EXPECT_EQ(std::memcmp(y.data(), before.data(), y.bytes()), 0);
}

TEST(Session, StringsAreNotBound) {
  const Engine engine = engine_of({.graph = {.nodes = {{"StringConcat", {"x", "x"}, {"y"}, {}, "twice"}},
                                             .inputs = {onnx::value("x", DType::string, {2})},
                                             .outputs = {onnx::value("y", DType::string, {2})}}});
  Session session = engine.session();
  session.bind_input("x", Tensor::from<std::string>({"a", "b"}, {2}));
  const std::string said =
      message(session.try_bind_output("y", Tensor(DType::string, {2})), ErrorCode::invalid_argument);
  EXPECT_EQ(said, "output 'y': strings cannot be bound, their memory grows as they are written");
  session.run();
  EXPECT_EQ(session.output("y").tensor().view<std::string>()[1], "bb");
}

}  // namespace
}  // namespace lathe::tests
