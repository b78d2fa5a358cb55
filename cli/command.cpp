// What the commands of `lathe` share.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lathe/tools.h>

#include "cli/progress.h"

namespace lathe::cli {

void EngineArguments::add_to(CLI::App& command) {
  command.add_option("--threads", threads, "threads of one run; 0: one per core")
      ->check(CLI::Range(0, EngineOptions::kMaxThreads))
      ->capture_default_str();
  command.add_option("--passes", passes, "passes switched off, as in --passes=-graph_fuse,-alter_op_layout")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->check(CLI::IsMember(tools::pass_switches()));
  command.add_option("--backends", backends, "backends allowed, as in --backends jit,plain; all unless said")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->check(CLI::IsMember({"jit", "onednn", "plain"}));
  command.add_option("--code-level", code_level, "how hard compiled code is optimized")
      ->check(CLI::IsMember({"automatic", "none", "less", "standard"}))
      ->capture_default_str();
}

EngineOptions EngineArguments::options() const {
  EngineOptions options;
  options.threads = threads;
  options.passes = fmt::format("{}", fmt::join(passes, ","));
  options.backends = backends;
  options.code_level = code_level == "none"       ? CodeLevel::none
                       : code_level == "less"     ? CodeLevel::less
                       : code_level == "standard" ? CodeLevel::standard
                                                  : CodeLevel::automatic;
  return options;
}

Engine load_model(const std::string& path, const EngineArguments& arguments) {
  const Progress progress("Loading " + printable(path));
  return Engine::load(path, arguments.options());
}

CLI::Validator not_empty() {
  return {[](const std::string& text) { return text.empty() ? "must not be empty" : ""; }, ""};
}

std::string printable(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace lathe::cli
