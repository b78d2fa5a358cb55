// `lathe ops`: the operators of this build.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/show.h"

namespace lathe::cli {
namespace {

std::string how_it_runs(const tools::OperatorInfo& op) {
  const std::string own = op.how == "lower"    ? "in other operators"
                          : op.how == "expr"   ? "compiled"
                          : op.how == "kernel" ? "plain"
                                               : "graph";
  return op.onednn ? "oneDNN or " + own : own;
}

bool contains(const std::vector<DType>& all, const std::vector<DType>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

std::vector<DType> without(const std::vector<DType>& all, const std::vector<DType>& some) {
  std::vector<DType> rest;
  std::set_difference(all.begin(), all.end(), some.begin(), some.end(), std::back_inserter(rest));
  return rest;
}

/// "floats i32 i64", "any but string": sets that schemas name often, and what is left.
std::string dtype_names(std::vector<DType> dtypes) {
  std::vector<DType> all;
  for (int code = 1; code < DType::kCount; ++code) all.emplace_back(static_cast<DType::Code>(code));
  if (dtypes == all) return "any";
  constexpr std::size_t kFew = 6;
  if (dtypes.size() + kFew >= all.size()) return "any but " + dtype_names(without(all, dtypes));
  static const std::vector<std::pair<const char*, std::vector<DType>>> kSets = {
      {"numbers",
       {DType::f32, DType::u8, DType::i8, DType::u16, DType::i16, DType::i32, DType::i64, DType::f16, DType::f64,
        DType::u32, DType::u64, DType::bf16}},
      {"floats", {DType::f32, DType::f16, DType::f64, DType::bf16}},
      {"integers", {DType::u8, DType::i8, DType::u16, DType::i16, DType::i32, DType::i64, DType::u32, DType::u64}},
      {"float8", {DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz}},
      {"complex", {DType::c64, DType::c128}},
      {"packed", {DType::u4, DType::i4, DType::f4e2m1, DType::u2, DType::i2}}};
  std::vector<std::string> names;
  for (const auto& [name, set] : kSets) {
    if (!contains(dtypes, set)) continue;
    names.emplace_back(name);
    dtypes = without(dtypes, set);
  }
  for (const DType d : dtypes) names.emplace_back(d.name());
  return fmt::format("{}", fmt::join(names, " "));
}

/// "0: floats; 1, 2: i64", without numbers where all inputs are alike.
std::string dtypes_of(const tools::OperatorInfo& op) {
  std::string text;
  for (const tools::InputDTypes& rule : op.takes) {
    if (!text.empty()) text += "; ";
    constexpr std::size_t kMany = 8;  // a pattern, which the first ones show
    const bool many = rule.inputs.size() > kMany;
    const auto last = many ? rule.inputs.begin() + 4 : rule.inputs.end();
    const char* more = many ? ", …" : rule.and_behind ? "…" : "";
    if (!rule.inputs.empty()) text += fmt::format("{}{}: ", fmt::join(rule.inputs.begin(), last, ", "), more);
    text +=
        (rule.alike || rule.inputs.size() + (rule.and_behind ? 1 : 0) == 1 ? "" : "each ") + dtype_names(rule.dtypes);
  }
  return text;
}

std::string opsets(const tools::OperatorInfo& op) {
  return op.first == op.since ? std::to_string(op.first) : fmt::format("{}–{}", op.first, op.since);
}

std::string full_name(const tools::OperatorInfo& op) {
  return op.domain.empty() ? op.name : op.domain + "::" + op.name;
}

/// The page docs/operators.md.
void print_page(const std::vector<tools::OperatorInfo>& all) {
  fmt::print(R"(# Operators

The {} operators of this build, as `lathe ops --markdown` writes them. Those of the domain `lathe` are its own helpers.

- **opsets**: of the operator's domain, the one that introduced it and the one that changed it last. Older forms are brought to that
  when a model is loaded, back to opset 7 (and 1 where ONNX's suites use it).
- **dtypes**: of tensors that the inputs take, by number where they differ; the inputs named together share one unless it says *each*. An attribute may narrow it (keys, a
  reduction, a mode). *floats*: f16, bf16, f32, f64;
  *integers*: of 8 to 64 bits, both signs; *numbers*: these two; *float8*: the four kinds; *packed*: i4, u4, i2, u2, f4e2m1; *complex*: c64, c128; *any*: all
  that ONNX has. Empty: sequences, optionals and maps, or what an attribute says.
- **runs**: *compiled*: in loops that are fused with their neighbours and compiled; *in other operators*: built of others, which
  are fused again; *oneDNN*: offered to oneDNN first, which takes it for some dtypes and layouts; *plain*: a C++ function;
  *graph*: control flow over graphs.

| operator | opsets | runs | dtypes |
|---|---|---|---|
)",
             all.size());
  for (const tools::OperatorInfo& op : all) {
    fmt::print("| {} | {} | {} | {} |\n", full_name(op), opsets(op), how_it_runs(op), dtypes_of(op));
  }
}

void print_operators(bool json, bool markdown) {
  const std::vector<tools::OperatorInfo> all = tools::operators();
  if (markdown) {
    print_page(all);
    return;
  }
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const tools::OperatorInfo& op : all) {
      nlohmann::json takes = nlohmann::json::array();
      for (const tools::InputDTypes& rule : op.takes) {
        std::vector<std::string_view> names;
        for (const DType d : rule.dtypes) names.push_back(d.name());
        takes.push_back(
            {{"inputs", rule.inputs}, {"and_behind", rule.and_behind}, {"dtypes", names}, {"alike", rule.alike}});
      }
      list.push_back({{"name", op.name},
                      {"domain", op.domain},
                      {"first", op.first},
                      {"since", op.since},
                      {"takes", std::move(takes)},
                      {"how", op.how},
                      {"onednn", op.onednn}});
    }
    fmt::print("{}\n", list.dump(1));
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"operator", "opsets", "runs", "dtypes"}};
  for (const tools::OperatorInfo& op : all) {
    rows.push_back({full_name(op), opsets(op), how_it_runs(op), dtypes_of(op)});
  }
  fmt::print(
      "{}{} operators. floats: f16 bf16 f32 f64; integers: 8 to 64 bits; numbers: both; packed: 4 and 2 bits;\n"
      "0, 1: of these inputs, which share one dtype unless it says each; 2…: of input 2 and those behind\n",
      table(rows), all.size());
}

}  // namespace

void add_ops(CLI::App& app, Status&) {
  CLI::App* command = app.add_subcommand("ops", "List the operators of this build");
  auto json = std::make_shared<bool>(false);
  auto markdown = std::make_shared<bool>(false);
  CLI::Option* as_json = command->add_flag("--json", *json, "as JSON");
  command->add_flag("--markdown", *markdown, "as the page docs/operators.md")->excludes(as_json);
  command->footer("Example:\n  lathe ops | grep -i conv");
  command->callback([json, markdown] { print_operators(*json, *markdown); });
}

}  // namespace lathe::cli
