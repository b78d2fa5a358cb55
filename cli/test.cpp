// `lathe test`: runs folders of test cases in ONNX's form.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cli/case.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/workers.h"

namespace lathe::cli {
namespace {

struct TestCommand {
  std::vector<std::string> folders;
  EngineArguments engine;
  int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  int timeout = 120;
  bool verbose = false;
  bool skip_unsupported = false;
  bool in_process = false;

  int operator()() const {
    const auto cases = with_progress("Looking for cases", [&] { return find_cases(folders); });
    if (cases.empty())
      throw std::runtime_error("no case found: a case is a folder with model.onnx and test_data_set_*");
    const EngineOptions options = engine.options();
    std::size_t counts[3] = {};
    Progress progress(fmt::format("0 of {}", cases.size()), in_process);
    const auto work = [&](std::size_t i) {
      const Verdict v = run_case(cases[i], options, skip_unsupported);
      return static_cast<char>(v.outcome) + v.reason;
    };
    const auto done = [&](const JobResult& result) {
      const bool passed = result.death.empty() && result.answer.starts_with('p');
      const bool skipped = result.death.empty() && result.answer.starts_with('s');
      ++counts[passed ? 0 : skipped ? 2 : 1];
      const std::string reason = result.death.empty() ? result.answer.substr(1) : result.death;
      const std::string_view word = passed ? "passed" : skipped ? "skipped" : "FAILED";
      if (verbose || word == "FAILED") {
        progress.print(fmt::format("{} {}{}{}\n", word, printable(cases[result.job].string()),
                                   reason.empty() ? "" : ": ", printable(reason)));
      }
      progress.say(fmt::format("{} of {}", counts[0] + counts[1] + counts[2], cases.size()));
    };
    if (in_process) {
      for (std::size_t i = 0; i < cases.size(); ++i) done({i, work(i), {}});
    } else {
      run_jobs(cases.size(), jobs, std::chrono::seconds(timeout), work, done, [&] { progress.show(); });
    }
    progress.print(fmt::format("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]));
    return counts[1] == 0 ? 0 : 1;
  }
};

}  // namespace

void add_test(CLI::App& app, Status& status) {
  CLI::App* command = app.add_subcommand("test", "Run test cases in ONNX's form");
  auto test = std::make_shared<TestCommand>();
  command->add_option("folders", test->folders, "cases, or folders that hold some at any depth")
      ->required()
      ->type_name("DIR");
  CLI::Option* jobs = command->add_option("--jobs", test->jobs, "cases at a time, each in a process of its own")
                          ->check(CLI::Range(1, 1024))
                          ->capture_default_str();
  CLI::Option* timeout = command->add_option("--timeout", test->timeout, "seconds that a case may take")
                             ->check(CLI::Range(1, 86'400))
                             ->capture_default_str();
  command->add_flag("-v,--verbose", test->verbose, "a line for cases that pass or are skipped, too");
  command->add_flag("--skip-unsupported", test->skip_unsupported,
                    "count cases that need what this build lacks as skipped, not failed");
  command->add_flag("--in-process", test->in_process, "run all cases in this process, one by one (for debuggers)")
      ->excludes(jobs)
      ->excludes(timeout);
  test->engine.threads = 1;  // the cases fill the cores
  test->engine.add_to(*command);
  command->footer(
      "A case is a folder with model.onnx, test_data_set_*/input_*.pb and output_*.pb, and optionally case.json with "
      "rtol (1e-3 unless said; of integers none), atol (1e-7), and \"compare\": \"shape\" where values are random. "
      "Exit status 1 where a case failed.\n\n"
      "Examples:\n"
      "  lathe test cases/node\n"
      "  lathe test cases/node/test_softmax_axis_0 --in-process\n"
      "  lathe test cases --passes=-all --backends plain --jobs 4");
  command->callback([test, &status] { status.code = (*test)(); });
}

}  // namespace lathe::cli
