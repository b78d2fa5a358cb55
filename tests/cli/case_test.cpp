// What `lathe test` says of a case's files when they are wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/case.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

/// A case of its own that passes: a copy of ONNX's test_add.
class Case : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(tests::cases_dir()) / "node" / "test_add", folder_, fs::copy_options::recursive);
  }

  /// "passed", or the reason why not, with the folder's name left out.
  [[nodiscard]] std::string verdict() const {
    const Verdict v = run_case(folder_, {.threads = 1}, false);
    if (v.outcome == Outcome::passed) return "passed";
    EXPECT_EQ(v.outcome, Outcome::failed);
    const std::size_t at = v.reason.find(folder_.string());
    if (at == std::string::npos) return "does not name the file: " + v.reason;
    return std::string(v.reason).replace(at, folder_.string().size(), "CASE");
  }
  [[nodiscard]] std::string verdict_with_rule(const std::string& text) const {
    fs::remove_all(folder_ / "case.json");
    std::ofstream(folder_ / "case.json") << text;
    return verdict();
  }

  tests::TemporaryFolder temporary_;
  const fs::path& folder_ = temporary_.path();
};

TEST_F(Case, RulesThatHold) {
  EXPECT_EQ(verdict_with_rule("{}"), "passed");
  EXPECT_EQ(verdict_with_rule(R"({"rtol": 0, "atol": 1e-7})"), "passed");
  EXPECT_EQ(verdict_with_rule(R"({"compare": "shape"})"), "passed");
  fs::remove(folder_ / "case.json");
  EXPECT_EQ(verdict(), "passed");
}

TEST_F(Case, BrokenJson) {
  for (const char* text : {"", "{", R"({"rtol": NaN})", R"({"rtol": 1e999})", R"({"rtol": 1} x)", "{\"\xff\": 1}"})
    EXPECT_EQ(verdict_with_rule(text), "'CASE/case.json' is not valid JSON") << text;
  for (const char* text : {"[]", "1", "null", R"("shape")"})
    EXPECT_EQ(verdict_with_rule(text), R"('CASE/case.json' holds no JSON object; {"rtol": 1e-3, "atol": 1e-7} is one)")
        << text;
}

TEST_F(Case, KeysAndValuesThatARuleCannotHave) {
  EXPECT_EQ(verdict_with_rule(R"({"rtoll": 1})"),
            R"('CASE/case.json' has the unknown key "rtoll"; allowed are "rtol", "atol" and "compare")");
  for (const char* key : {"rtol", "atol"}) {
    for (const char* value : {"-1", "-0.5", R"("0.1")", "true", "null", "[]"})
      EXPECT_EQ(verdict_with_rule(std::string(R"({")") + key + R"(": )" + value + "}"),
                std::string("'CASE/case.json' has ") + value + " as \"" + key + "\", expected a number of 0 or more");
  }
  for (const char* value : {R"("foo")", R"("")", "1", "null", R"(["shape"])"})
    EXPECT_EQ(verdict_with_rule(std::string(R"({"compare": )") + value + "}"),
              std::string("'CASE/case.json' has ") + value + R"( as "compare", expected "shape")");
}

TEST_F(Case, DamagedFilesAreNamed) {
  for (const char* file : {"test_data_set_0/output_0.pb", "test_data_set_0/input_0.pb"}) {
    std::ofstream(folder_ / file) << "no tensor";
    EXPECT_NE(verdict().find(std::string("CASE/") + file), std::string::npos) << verdict();
  }
}

TEST_F(Case, FoldersInPlaceOfFilesAreNamed) {
  for (const char* file : {"case.json", "test_data_set_0/input_1.pb", "model.onnx"}) {
    fs::remove(folder_ / file);
    fs::create_directory(folder_ / file);
    EXPECT_NE(verdict().find(std::string("CASE/") + file), std::string::npos) << verdict();
    fs::remove(folder_ / "case.json");
  }
}

}  // namespace
}  // namespace lathe::cli
