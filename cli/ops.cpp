// `lathe ops`: the operators of this build.
#include <fmt/format.h>

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

std::string full_name(const tools::OperatorInfo& op) {
  return op.domain.empty() ? op.name : op.domain + "::" + op.name;
}

/// The page docs/operators.md.
void print_page(const std::vector<tools::OperatorInfo>& all) {
  fmt::print(R"(# Operators

The {} operators of this build, as `lathe ops --markdown` writes them. Those of the domain `lathe` are its own helpers.

- **newest form**: the opset of the operator's domain that changed it last. Older forms are brought to it when a model is loaded.
- **runs**: *compiled*: in loops that are fused with their neighbours and compiled; *in other operators*: built of others, which
  are fused again; *oneDNN*: offered to oneDNN first, which takes it for some dtypes and layouts; *plain*: a C++ function;
  *graph*: control flow over graphs.

| operator | newest form | runs |
|---|---|---|
)",
             all.size());
  for (const tools::OperatorInfo& op : all) {
    fmt::print("| {} | {} | {} |\n", full_name(op), op.since, how_it_runs(op));
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
      list.push_back(
          {{"name", op.name}, {"domain", op.domain}, {"since", op.since}, {"how", op.how}, {"onednn", op.onednn}});
    }
    fmt::print("{}\n", list.dump(1));
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"operator", "since", "runs"}};
  for (const tools::OperatorInfo& op : all) {
    rows.push_back({full_name(op), std::to_string(op.since), how_it_runs(op)});
  }
  fmt::print("{}{} operators\n", table(rows), all.size());
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
