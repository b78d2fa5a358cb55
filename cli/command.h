// What the commands of `lathe` share: how each joins the program, how it fails, and the options of an engine.
#pragma once

#include <CLI/CLI.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include <lathe/lathe.h>

namespace lathe::cli {

/// A failure that the command line itself caused: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Exit status of the command chosen; 0 until it ran.
struct Status {
  int code = 0;
};

// Each adds its subcommand, which sets `status` when it runs and throws on failure.
void add_run(CLI::App& app, Status& status);
void add_test(CLI::App& app, Status& status);
void add_bench(CLI::App& app, Status& status);
void add_inspect(CLI::App& app, Status& status);
void add_explain(CLI::App& app, Status& status);
void add_ops(CLI::App& app, Status& status);

/// --threads, --passes, --backends, --code-level.
struct EngineArguments {
  int threads = 0;
  std::vector<std::string> passes;
  std::vector<std::string> backends;
  std::string code_level = "automatic";

  void add_to(CLI::App& command);
  [[nodiscard]] EngineOptions options() const;
};

/// Loads a model, showing progress where that takes long.
Engine load_model(const std::string& path, const EngineArguments& arguments);

/// Refuses "", which is what a script's unset variable leaves.
CLI::Validator not_empty();

/// A name out of a file, safe for a terminal: control characters become \xNN.
std::string printable(std::string_view text);

}  // namespace lathe::cli
