// A test case in ONNX's form.
#include "cli/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include <lathe/tools.h>

#include "cli/compare.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> data_sets(const fs::path& folder) {
  std::vector<fs::path> sets;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with("test_data_set_"))
      sets.push_back(entry.path());
  }
  std::sort(sets.begin(), sets.end());
  return sets;
}

/// `folder/prefix_0.pb`, `folder/prefix_1.pb`, … as far as they exist.
std::vector<fs::path> numbered(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> files;
  while (true) {
    fs::path file = folder / fmt::format("{}_{}.pb", prefix, files.size());
    if (!fs::exists(file)) return files;
    files.push_back(std::move(file));
  }
}

Tolerance read_tolerance(const fs::path& folder) {
  Tolerance tolerance;
  const fs::path path = folder / "case.json";
  if (!fs::exists(path)) return tolerance;
  const auto require = [&](bool condition, const std::string& what) {
    if (!condition) throw std::runtime_error(fmt::format("'{}' {}", path.string(), what));
  };
  std::ifstream file(path);
  require(file && fs::is_regular_file(path), "cannot be read");
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  require(!json.is_discarded(), "is not valid JSON");
  require(json.is_object(), R"(holds no JSON object; {"rtol": 1e-3, "atol": 1e-7} is one)");
  for (const auto& [key, value] : json.items()) {
    if (key == "rtol" || key == "atol") {
      require(value.is_number() && value >= 0,
              fmt::format("has {} as \"{}\", expected a number of 0 or more", value.dump(), key));
      (key == "rtol" ? tolerance.relative : tolerance.absolute) = value;
    } else {
      require(key == "compare",
              fmt::format(R"(has the unknown key "{}"; allowed are "rtol", "atol" and "compare")", key));
      require(value == "shape", fmt::format(R"(has {} as "compare", expected "shape")", value.dump()));
      tolerance.shape_only = true;
    }
  }
  return tolerance;
}

/// The values of the files, each under the name of the declared input or output that it belongs to: by its own name
/// where the model knows it, else by position.
std::vector<NamedValue> read_values(const std::vector<fs::path>& files, const std::vector<ValueInfo>& declared,
                                    std::string_view what) {
  if (files.size() > declared.size()) {
    throw std::runtime_error(
        fmt::format("{} {} files for a model with {} {}s", files.size(), what, declared.size(), what));
  }
  std::vector<NamedValue> values;
  for (std::size_t i = 0; i < files.size(); ++i) {
    NamedValue value = unwrap(tools::try_read_onnx_value(files[i].string(), declared[i].kind));
    const bool known =
        std::any_of(declared.begin(), declared.end(), [&](const ValueInfo& d) { return d.name == value.name; });
    if (!known) value.name = declared[i].name;
    values.push_back(std::move(value));
  }
  return values;
}

std::optional<std::string> run_set(const Engine& engine, const fs::path& set, const Tolerance& tolerance) {
  const Outputs outputs = engine.run(Inputs(read_values(numbered(set, "input"), engine.inputs(), "input")));
  const std::vector<NamedValue> expected = read_values(numbered(set, "output"), engine.outputs(), "output");
  if (expected.empty()) return "no output files";
  for (const NamedValue& e : expected) {
    const Value* actual = outputs.find(e.name);
    if (!actual) return fmt::format("output '{}' is missing", printable(e.name));
    if (const auto wrong = difference(e.value, *actual, tolerance))
      return fmt::format("output '{}': {}", printable(e.name), *wrong);
  }
  return std::nullopt;
}

}  // namespace

std::vector<fs::path> find_cases(const std::vector<std::string>& roots) {
  std::vector<fs::path> cases;
  const auto add = [&](const fs::path& folder) {
    if (fs::exists(folder / "model.onnx")) cases.push_back(folder);
  };
  for (const std::string& root : roots) {
    if (!fs::is_directory(root)) throw std::runtime_error(fmt::format("'{}' is not a folder", root));
    add(root);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_directory()) add(entry.path());
    }
  }
  std::sort(cases.begin(), cases.end());
  cases.erase(std::unique(cases.begin(), cases.end()), cases.end());
  return cases;
}

Verdict run_case(const fs::path& folder, const EngineOptions& options, bool skip_unsupported) {
  try {
    const std::vector<fs::path> sets = data_sets(folder);
    if (sets.empty()) return {Outcome::skipped, "no test_data_set_* beside the model"};
    const Tolerance tolerance = read_tolerance(folder);
    const Engine engine = Engine::load((folder / "model.onnx").string(), options);
    for (const fs::path& set : sets) {
      if (const auto wrong = run_set(engine, set, tolerance)) {
        return {Outcome::failed, (sets.size() > 1 ? set.filename().string() + ": " : "") + *wrong};
      }
    }
    return {Outcome::passed, {}};
  } catch (const Exception& error) {
    const bool skip = skip_unsupported && error.code() == ErrorCode::unsupported;
    return {skip ? Outcome::skipped : Outcome::failed, error.what()};
  } catch (const std::exception& error) {
    return {Outcome::failed, error.what()};
  }
}

}  // namespace lathe::cli
