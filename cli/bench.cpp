// `lathe bench`: how long a model takes to load, to answer first, and in the long run.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/progress.h"
#include "cli/show.h"

namespace lathe::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Measures {
  std::string model;
  double load_ms = 0, first_ms = 0, min_ms = 0, median_ms = 0, p99_ms = 0, compile_ms = 0;
  std::uint64_t kernels = 0, runs = 0;
  std::size_t arena_bytes = 0;
  double peak_rss_mb = 0;
};

void take_percentiles(std::vector<double>& times, Measures& m) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  m.runs = times.size();
  m.min_ms = times.front();
  m.median_ms = at(0.5);
  m.p99_ms = at(0.99);
}

Measures measure(const std::string& model, const EngineArguments& arguments, const InputArguments& inputs,
                 double seconds) {
  Measures m;
  m.model = model;
  const Clock::time_point load = Clock::now();
  const Engine engine = load_model(model, arguments);
  m.load_ms = ms_since(load);

  const CollectedInputs collected = collect_inputs(engine, inputs);
  for (const std::string& note : collected.notes) fmt::print(stderr, "{}\n", note);
  Session session = engine.session();
  for (const NamedValue& input : collected.values) session.bind_input(input.name, input.value.tensor());
  const Progress progress("Measuring " + printable(model));
  const Clock::time_point first = Clock::now();
  session.run();
  m.first_ms = ms_since(first);

  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point run = Clock::now();
    session.run();
    times.push_back(ms_since(run));
  } while (ms_since(begin) < seconds * 1e3);
  // The first tenth warms caches, branch predictors and clocks.
  if (times.size() >= 20) times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10));
  take_percentiles(times, m);

  const CacheStats stats = engine.cache_stats();
  m.compile_ms = stats.compile_seconds * 1e3;
  m.kernels = stats.kernels_compiled;
  m.arena_bytes = engine.memory().arenas;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  m.peak_rss_mb = static_cast<double>(usage.ru_maxrss) / 1024;
  return m;
}

nlohmann::json to_json(const Measures& m) {
  return {{"model", m.model},
          {"load_ms", m.load_ms},
          {"first_ms", m.first_ms},
          {"min_ms", m.min_ms},
          {"median_ms", m.median_ms},
          {"p99_ms", m.p99_ms},
          {"compile_ms", m.compile_ms},
          {"kernels", m.kernels},
          {"arena_bytes", m.arena_bytes},
          {"runs", m.runs},
          {"peak_rss_mb", m.peak_rss_mb}};
}

/// CLI::Range lets NaN pass.
CLI::Validator seconds_in_range() {
  const auto check = [](const std::string& text) {
    double seconds = 0;
    const bool right = CLI::detail::lexical_cast(text, seconds) && seconds >= 0.001 && seconds <= 3600;
    return right ? "" : fmt::format("Value {} not in range 0.001 to 3600", text);
  };
  return {check, "FLOAT in [0.001 - 3600]"};
}

struct BenchCommand {
  std::vector<std::string> models;
  double seconds = 2;
  bool json = false;
  EngineArguments engine;
  InputArguments inputs;

  int operator()() const {
    if (models.size() > 1 && (!inputs.archive.empty() || !inputs.files.empty() || !inputs.shapes.empty())) {
      throw UsageError("--inputs, --input and --shape belong to one model; bench them one by one");
    }
    nlohmann::json all = nlohmann::json::array();
    std::vector<std::vector<std::string>> rows = {{"model", "load_ms", "first_ms", "min_ms", "median_ms", "p99_ms",
                                                   "compile_ms", "kernels", "arena_bytes", "peak_rss_mb"}};
    int failed = 0;
    for (const std::string& model : models) {
      try {
        const Measures m = measure(model, engine, inputs, seconds);
        all.push_back(to_json(m));
        rows.push_back(row(m));
      } catch (const std::exception& error) {
        if (models.size() == 1) throw;  // else the others' figures are worth having
        fmt::print(stderr, "lathe: {}\n", printable(error.what()));
        failed = 1;
      }
    }
    fmt::print("{}", json ? all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : table(rows));
    return failed;
  }

  static std::vector<std::string> row(const Measures& m) {
    return {printable(m.model),
            fmt::format("{:.1f}", m.load_ms),
            fmt::format("{:.1f}", m.first_ms),
            fmt::format("{:.4f}", m.min_ms),
            fmt::format("{:.4f}", m.median_ms),
            fmt::format("{:.4f}", m.p99_ms),
            fmt::format("{:.1f}", m.compile_ms),
            std::to_string(m.kernels),
            std::to_string(m.arena_bytes),
            fmt::format("{:.0f}", m.peak_rss_mb)};
  }
};

}  // namespace

void add_bench(CLI::App& app, Status& status) {
  CLI::App* command = app.add_subcommand("bench", "Measure load, first run and steady runs of models");
  auto bench = std::make_shared<BenchCommand>();
  command->add_option("models", bench->models, "model files")->required()->type_name("MODEL");
  command->add_option("--seconds", bench->seconds, "how long to measure steady runs")
      ->check(seconds_in_range())
      ->capture_default_str();
  command->add_flag("--json", bench->json, "as JSON");
  bench->inputs.add_to(*command);
  bench->engine.add_to(*command);
  command->footer(
      "Runs a session with bound inputs. peak_rss_mb is the process's: with several models it only grows.\n\n"
      "Examples:\n"
      "  lathe bench model.onnx --threads 2 --seconds 5\n"
      "  lathe bench model.onnx --inputs inputs.npz --json\n"
      "  lathe bench a.onnx b.onnx c.onnx");
  command->callback([bench, &status] { status.code = (*bench)(); });
}

}  // namespace lathe::cli
