// Inputs of a run: which argument is for which input, and which inputs may stay away.
#include <gtest/gtest.h>

#include <filesystem>

#include <lathe/tools.h>

#include "cli/command.h"
#include "cli/inputs.h"
#include "tests/support/engine_of.h"
#include "tests/support/temporary_folder.h"

namespace lathe::cli {
namespace {

namespace onnx = tests::onnx;

/// y = x₀ + x₁ + …
Engine sum_of(const std::vector<std::string>& names) {
  onnx::ModelSpec spec{
      .graph = {.nodes = {{"Sum", names, {"y"}, {}, "sum"}}, .outputs = {onnx::value("y", DType::f32, {"n"})}}};
  for (const std::string& name : names) spec.graph.inputs.push_back(onnx::value(name, DType::f32, {"n"}));
  return tests::engine_of(spec);
}

InputArguments files(std::vector<std::string> files) {
  InputArguments arguments;
  arguments.files = std::move(files);
  return arguments;
}

class FilesOfInputs : public testing::Test {
 protected:
  /// An .npy file of one element, at a path below the test's folder.
  std::string file(const std::string& path, float element) {
    const std::filesystem::path whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    tools::write_npy(whole.string(), Tensor::from(std::span<const float>(&element, 1), {1}));
    return whole.string();
  }
  tests::TemporaryFolder folder_;
};

float element(const CollectedInputs& inputs, const std::string& name) {
  for (const NamedValue& input : inputs.values) {
    if (input.name == name) return input.value.view<float>().front();
  }
  throw Exception({ErrorCode::not_found, name});
}

TEST_F(FilesOfInputs, TheLongestNameThatFitsIsMeant) {
  const Engine engine = sum_of({"a", "a=b", "c"});
  const CollectedInputs inputs = collect_inputs(
      engine, files({"a=" + file("1.npy", 1), "a=b=" + file("dir=2/x=y.npy", 2), "c=" + file("a=b=3.npy", 3)}));
  EXPECT_EQ(element(inputs, "a"), 1);
  EXPECT_EQ(element(inputs, "a=b"), 2);
  EXPECT_EQ(element(inputs, "c"), 3);
  EXPECT_TRUE(inputs.notes.empty());
}

TEST_F(FilesOfInputs, AnOnlyInputNeedsNoName) {
  const Engine engine = sum_of({"a"});
  EXPECT_EQ(element(collect_inputs(engine, files({file("dir=1/x=y.npy", 1)})), "a"), 1);
  EXPECT_EQ(element(collect_inputs(engine, files({"a=" + file("dir=1/x=y.npy", 1)})), "a"), 1);
  EXPECT_THROW(collect_inputs(engine, files({"b=" + file("x.npy", 1)})), UsageError);
  EXPECT_THROW(collect_inputs(sum_of({"a", "b"}), files({file("dir=1/x=y.npy", 1)})), UsageError);
}

TEST_F(FilesOfInputs, NamesOfShapesMayHoldEqualsSigns) {
  InputArguments arguments;
  arguments.shapes = {"a=b=3"};
  const CollectedInputs inputs = collect_inputs(sum_of({"a", "a=b"}), arguments);
  ASSERT_EQ(inputs.values.size(), 2U);
  EXPECT_EQ(inputs.values[0].value.shape(), (Shape{3}));
  EXPECT_EQ(inputs.values[1].value.shape(), (Shape{3}));
}

TEST(InputsThatMayBeLeftOut, OptionalOnesAre) {
  const Engine engine = tests::engine_of(
      {.graph = {.nodes = {{"OptionalHasElement", {"maybe"}, {"has"}, {}, "ask"}, {"Not", {"b"}, {"y"}, {}, "not"}},
                 .inputs = {onnx::optional("maybe", DType::f32), onnx::value("b", DType::boolean, {})},
                 .outputs = {onnx::value("has", DType::boolean, {}), onnx::value("y", DType::boolean, {})}}});
  CollectedInputs inputs = collect_inputs(engine, {});
  ASSERT_EQ(inputs.values.size(), 1U);
  EXPECT_EQ(inputs.values[0].name, "b");
  EXPECT_FALSE(engine.run(Inputs(std::move(inputs.values)))["has"].view<bool>().front());
}

}  // namespace
}  // namespace lathe::cli
