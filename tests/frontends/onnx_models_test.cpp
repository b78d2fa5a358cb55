// The real models import, and their graphs print and parse back.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "frontends/frontend.h"
#include "ops/ir/failure.h"
#include "ops/ir/text.h"
#include "tests/support/paths.h"

namespace lathe::tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModels[] = {"basic-pitch",  "chars2vec",    "magika",        "minilm-int8",
                                   "name-encoder", "nmr-gnn",      "oww-embedding", "ppocr-cls",
                                   "ppocr-det",    "ppocr-rec",    "rl-ppo-g1",     "silero-vad",
                                   "surface-mlp",  "surface-tree", "tashkeel-int8", "yolo-isbn"};

void collect_constants(const ops::Graph& graph, std::map<std::string, Tensor, std::less<>>& constants) {
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const Tensor& t = graph.value(static_cast<ops::ValueId>(i)).constant;
    if (t.defined()) constants.emplace(ops::content_hash(t), t);
  }
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const ops::Node& node = graph.node(static_cast<ops::NodeId>(i));
    for (const auto& [name, value] : node.attributes) {
      if (const auto* t = std::get_if<Tensor>(&value)) constants.emplace(ops::content_hash(*t), *t);
    }
    for (const auto& subgraph : node.subgraphs) collect_constants(*subgraph, constants);
  }
}

class OnnxModels : public testing::TestWithParam<const char*> {};

TEST_P(OnnxModels, ImportAndTextRoundTrip) {
  const std::string path = models_dir() + "/" + GetParam() + ".onnx";
  ASSERT_TRUE(fs::exists(path)) << path << " is missing: fetch the models, or set LATHE_MODELS to their folder";
  const LoadOptions options;
  ops::Graph graph;
  try {
    graph = frontends::import_model(frontends::ModelSource::open(path, options), options);
  } catch (const Failure& failure) {
    FAIL() << failure.error.message;
  }
  EXPECT_FALSE(graph.inputs.empty());
  EXPECT_FALSE(graph.outputs.empty());

  std::map<std::string, Tensor, std::less<>> constants;
  collect_constants(graph, constants);
  const std::string text = ops::to_text(graph);
  const ops::Graph again = ops::parse_text(text, [&](std::string_view hash) {
    const auto at = constants.find(hash);
    return at == constants.end() ? Tensor() : at->second;
  });
  ops::verify(again);
  EXPECT_EQ(ops::to_text(again), text);
}

/// Every case of ONNX's own suite imports, or names the operators that are missing.
TEST(OnnxCases, ImportOrSayWhatIsMissing) {
  ASSERT_TRUE(fs::exists(cases_dir())) << cases_dir()
                                       << " is missing: write the cases, or set LATHE_CASES to their folder";
  int models = 0;
  int imported = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cases_dir())) {
    if (entry.path().filename() != "model.onnx") continue;
    ++models;
    try {
      const LoadOptions options;
      const std::string path = entry.path().string();
      const ops::Graph graph = frontends::import_model(frontends::ModelSource::open(path, options), options);
      ops::verify(graph);
      ++imported;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error.code, ErrorCode::unsupported) << entry.path() << ": " << failure.error.message;
    }
  }
  EXPECT_GE(models, 2000);
  EXPECT_GT(imported, 0);
  RecordProperty("imported", imported);
}

INSTANTIATE_TEST_SUITE_P(All, OnnxModels, testing::ValuesIn(kModels), [](const auto& model) {
  std::string name = model.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace lathe::tests
