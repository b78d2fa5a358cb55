// `lathe explain`: for each step of a plan the kernel that runs it, what was fused, and why other backends declined.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/progress.h"
#include "cli/show.h"

namespace lathe::cli {
namespace {

nlohmann::json to_json(const tools::PlanRecord& plan) {
  nlohmann::json steps = nlohmann::json::array();
  for (const tools::StepRecord& s : plan.steps) {
    nlohmann::json declines = nlohmann::json::array();
    for (const tools::Decline& d : s.declines) declines.push_back({{"backend", d.backend}, {"reason", d.reason}});
    steps.push_back({{"name", s.name},
                     {"inside", s.inside},
                     {"nodes", s.nodes},
                     {"operators", s.operators},
                     {"backend", s.backend},
                     {"kernel", s.kernel},
                     {"outputs", s.outputs},
                     {"declines", declines},
                     {"allocates", s.allocates},
                     {"why_not_real_time", s.why_not_real_time},
                     {"scratch_bytes", s.scratch_bytes}});
  }
  return {{"steps", steps},
          {"arena_bytes", plan.arena_bytes},
          {"kernels", plan.kernels},
          {"run_ended_by", plan.run_ended_by}};
}

void print_step(std::size_t index, const tools::StepRecord& s) {
  if (s.backend == "not run") {
    fmt::print("{:>4}  not run with these inputs  {}\n", index, printable(s.name));
    return;
  }
  fmt::print("{:>4}  {} {}  {}{}{}{}\n", index, s.backend, s.kernel, printable(s.name), s.outputs.empty() ? "" : "  → ",
             fmt::join(s.outputs, ", "), s.allocates ? "  (allocates)" : "");
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < s.operators.size(); ++i) {
    const std::string name = i < s.nodes.size() ? s.nodes[i] : "";
    parts.push_back(name.empty() ? s.operators[i] : fmt::format("{} '{}'", s.operators[i], printable(name)));
  }
  if (parts.size() > 1) fmt::print("        fused: {}\n", fmt::join(parts, ", "));
  for (const tools::Decline& d : s.declines) fmt::print("        {} declined: {}\n", d.backend, printable(d.reason));
  if (!s.why_not_real_time.empty()) fmt::print("        not real-time: {}\n", printable(s.why_not_real_time));
}

void print_plan(const tools::PlanRecord& plan) {
  std::map<std::string, std::size_t> backends;
  std::size_t nodes = 0, allocating = 0;
  std::string inside;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const tools::StepRecord& s = plan.steps[i];
    if (s.inside != inside) fmt::print("in the {}:\n", s.inside.empty() ? "model's graph" : printable(s.inside));
    inside = s.inside;
    print_step(i, s);
    ++backends[s.backend];
    nodes += s.operators.size();
    allocating += s.allocates ? 1U : 0U;
  }
  std::vector<std::string> counts;
  for (const auto& [backend, count] : backends) counts.push_back(fmt::format("{} {}", count, backend));
  fmt::print("{} nodes in {} steps ({}), {} compiled kernels, {} steps that allocate, arena of {} bytes\n", nodes,
             plan.steps.size(), fmt::join(counts, ", "), plan.kernels, allocating, plan.arena_bytes);
  if (!plan.run_ended_by.empty()) fmt::print("the run ended early: {}\n", printable(plan.run_ended_by));
}

struct ExplainCommand {
  std::string model;
  bool json = false;
  bool real_time = false;
  EngineArguments engine;
  InputArguments inputs;

  void operator()() const {
    const Engine loaded = load_model(model, engine);
    CollectedInputs collected = collect_inputs(loaded, inputs);
    for (const std::string& note : collected.notes) fmt::print(stderr, "{}\n", note);
    const tools::PlanRecord plan = with_progress(
        "Running once", [&] { return tools::explain_run(loaded, Inputs(std::move(collected.values)), real_time); });
    if (json) {
      fmt::print("{}\n", to_json(plan).dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      print_plan(plan);
    }
  }
};

}  // namespace

void add_explain(CLI::App& app, Status&) {
  CLI::App* command =
      app.add_subcommand("explain", "Say which kernel runs each node, what is fused, and why others declined");
  auto explain = std::make_shared<ExplainCommand>();
  command->add_option("model", explain->model, "the model file")->required();
  explain->inputs.add_to(*command);
  command->add_flag("--json", explain->json, "as JSON");
  command->add_flag("--real-time", explain->real_time, "the plan of a session that is prepared for real time");
  explain->engine.add_to(*command);
  command->footer(
      "Examples:\n"
      "  lathe explain model.onnx --shape x=1x3x224x224\n"
      "  lathe explain model.onnx --inputs inputs.npz      inside If and Loop too, as these inputs take them\n"
      "  lathe explain model.onnx --backends jit,plain\n"
      "  lathe explain model.onnx --real-time\n"
      "  lathe explain model.onnx --json | jq '.steps[] | select(.backend == \"plain\").name'");
  command->callback([explain] { (*explain)(); });
}

}  // namespace lathe::cli
