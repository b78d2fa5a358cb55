// What tools tell of models and of the build: imported graphs, passes and their switches, versions.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include <lathe/tools.h>

#include "tests/support/engine_of.h"
#include "tests/support/temporary_folder.h"

namespace lathe::tests {
namespace {

TEST(Tools, TheImportedGraphIsTheFilesOwn) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "m.onnx";
  std::ofstream(path, std::ios::binary) << onnx::model(scale_and_shift());
  const Result<std::string> text = tools::try_imported_graph(path, tools::GraphFormat::text);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, R"(graph g(%x: f32[n]) {
  %two = constant f32[] [2.0]
  %one = constant f32[] [1.0]
  %m = Mul(%x, %two) @scale
  %y = Add(%m, %one) @shift
  return %y: f32[n]
}
)");
  const Result<std::string> dot = tools::try_imported_graph(path, tools::GraphFormat::dot);
  ASSERT_TRUE(dot.ok()) << dot.error().message;
  EXPECT_EQ(dot->substr(0, 15), "digraph model {");

  LoadOptions small;
  small.limits.nodes = 1;
  const Result<std::string> limited = tools::try_imported_graph(path, tools::GraphFormat::text, small);
  ASSERT_FALSE(limited.ok());
  EXPECT_EQ(limited.error().code, ErrorCode::limit_exceeded);
  const Result<std::string> missing = tools::try_imported_graph(path + "x", tools::GraphFormat::text);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
}

TEST(Tools, PassesAreThoseOfTheLoadAndOfTheShapes) {
  const Engine engine = engine_of(scale_and_shift(), {.threads = 1, .passes = "-eliminate_common"});
  const Result<std::vector<tools::PassRecord>> load = tools::try_passes(engine);
  ASSERT_TRUE(load.ok()) << load.error().message;
  ASSERT_FALSE(load->empty());
  for (const tools::PassRecord& record : *load) {
    EXPECT_EQ(record.stage, "load") << record.name;
    EXPECT_EQ(record.switched_off, record.name == "eliminate_common") << record.name;
    EXPECT_EQ(record.nodes_before, 2U) << record.name;
  }
  const Result<std::vector<tools::PassRecord>> all = tools::try_passes(engine, {{"x", {3}}});
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_GT(all->size(), load->size());
  EXPECT_EQ((*all)[load->size()].stage, "specialize");
  EXPECT_EQ((*all)[load->size()].name, "lower");
  const Result<std::vector<tools::PassRecord>> wrong = tools::try_passes(engine, {{"z", {3}}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::not_found);
}

TEST(Tools, EverySwitchIsOneThatOptionsTake) {
  const std::vector<std::string> switches = tools::pass_switches();
  EXPECT_NE(std::find(switches.begin(), switches.end(), "-all"), switches.end());
  EXPECT_NE(std::find(switches.begin(), switches.end(), "-graph_fuse"), switches.end());
  EXPECT_EQ(std::find(switches.begin(), switches.end(), "-lower"), switches.end()) << "always runs";
  for (const std::string& one : switches) {
    const Result<Engine> engine = try_engine_of(onnx::model(scale_and_shift()), {.threads = 1, .passes = one});
    EXPECT_TRUE(engine.ok()) << one << ": " << engine.error().message;
  }
}

TEST(BuildInfo, NamesVersionsAndFormats) {
  const BuildInfo& info = build_info();
  for (const std::string* version : {&info.version, &info.llvm, &info.onednn}) {
    EXPECT_EQ(std::count(version->begin(), version->end(), '.'), 2) << *version;
  }
  EXPECT_EQ(info.formats, std::vector<std::string>{"onnx"});
  EXPECT_NE(info.compiler.find(' '), std::string::npos) << info.compiler;
#if defined(__x86_64__)
  EXPECT_EQ(info.isa.substr(0, 6), "x86-64");
#endif
  EXPECT_EQ(&info, &build_info());
}

}  // namespace
}  // namespace lathe::tests
