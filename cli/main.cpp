// The `lathe` command: run, test, bench, inspect, explain and ops.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "cli/command.h"

namespace lathe::cli {
namespace {

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
  fmt::print(stderr, "{}\n", text);
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
  app.footer("`lathe COMMAND --help` explains a command and shows examples.");
  Status status;
  add_run(app, status);
  add_test(app, status);
  add_bench(app, status);
  add_inspect(app, status);
  add_explain(app, status);
  add_ops(app, status);
  try {
    app.parse(argc, argv);
    return status.code;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const UsageError& error) {
    complain(error.what());
    return 2;
  } catch (const std::exception& error) {
    complain(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace lathe::cli

int main(int argc, char** argv) { return lathe::cli::main(argc, argv); }
