// `lathe ops`: the operators of this build.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/show.h"

namespace lathe::cli {
namespace {

void print_operators(bool json) {
  const std::vector<tools::OperatorInfo> all = tools::operators();
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const tools::OperatorInfo& op : all) {
      list.push_back({{"name", op.name}, {"domain", op.domain}, {"since", op.since}, {"how", op.how}});
    }
    fmt::print("{}\n", list.dump(1));
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"operator", "since", "how"}};
  for (const tools::OperatorInfo& op : all) {
    rows.push_back({op.domain.empty() ? op.name : op.domain + "::" + op.name, std::to_string(op.since), op.how});
  }
  fmt::print("{}{} operators\n", table(rows), all.size());
}

}  // namespace

void add_ops(CLI::App& app, Status&) {
  CLI::App* command = app.add_subcommand("ops", "List the operators of this build");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "as JSON");
  command->footer("Example:\n  lathe ops | grep -i conv");
  command->callback([json] { print_operators(*json); });
}

}  // namespace lathe::cli
