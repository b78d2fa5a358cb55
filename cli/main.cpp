// The `lathe` command: run, test, bench, inspect, explain and ops.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>

#include "cli/command.h"

namespace lathe::cli {
namespace {

/// Throws where the first word is neither a command nor an option.
void require_command(const CLI::App& app, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (app.get_option_no_throw(first) || std::find(names.begin(), names.end(), first) != names.end()) return;
  const std::string wrong = argc > 1
                                ? fmt::format("unknown {} '{}'", first.starts_with('-') ? "option" : "command", first)
                                : "a command is missing";
  throw UsageError(fmt::format("{}; the commands are {}", wrong, fmt::join(names, ", ")));
}

/// One paragraph on stderr, wrapped to the terminal where there is one.
void complain(std::string_view message) {
  std::size_t width = 0;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) width = std::max<std::size_t>(size.ws_col, 40);
  std::string text = "lathe: ";
  std::size_t column = text.size();
  std::size_t begin = 0;
  while (begin < message.size()) {
    const std::size_t end = std::min(message.find(' ', begin), message.size());
    const std::string word = printable(message.substr(begin, end - begin));
    if (width > 0 && column + word.size() + 1 > width && column > 2) {
      text += "\n  ";
      column = 2;
    } else if (begin > 0) {
      text += ' ';
      ++column;
    }
    text += word;
    column += word.size();
    begin = end + 1;
  }
  std::fputs((text + "\n").c_str(), stderr);  // fmt::print would throw where nobody catches
}

std::string version_text() {
  const BuildInfo& info = build_info();
  return fmt::format("lathe {}\nLLVM {}, oneDNN {}, built with {}\nthis CPU: {}\nformats: {}", info.version, info.llvm,
                     info.onednn, info.compiler, info.isa, fmt::join(info.formats, ", "));
}

int main(int argc, char** argv) {
  CLI::App app("Loads trained models, compiles them for the shapes that arrive, and runs them.", "lathe");
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer(
      "`lathe COMMAND --help` explains a command and shows examples. Exit status: 0, 1 where something failed, 2 where "
      "the command line is wrong.");
  Status status;
  add_run(app, status);
  add_test(app, status);
  add_bench(app, status);
  add_inspect(app, status);
  add_explain(app, status);
  add_ops(app, status);
  try {
    require_command(app, argc, argv);
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot write to the standard output");
    return status.code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto chosen = app.get_subcommands();
    complain(
        fmt::format("{}; see `lathe {}--help`", error.what(), chosen.empty() ? "" : chosen.front()->get_name() + " "));
    return 2;
  } catch (const UsageError& error) {
    complain(error.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& error) {
    complain(fmt::format("cannot read '{}': {}", error.path1().string(), error.code().message()));
    return 1;
  } catch (const std::exception& error) {
    complain(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace lathe::cli

int main(int argc, char** argv) { return lathe::cli::main(argc, argv); }
