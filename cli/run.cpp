// `lathe run`: one run of a model on tensors from files.
#include <fmt/format.h>

#include <chrono>
#include <set>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/progress.h"
#include "cli/show.h"

namespace lathe::cli {
namespace {

struct RunCommand {
  std::string model;
  std::string outputs;
  std::vector<std::string> wanted;
  EngineArguments engine;
  InputArguments inputs;

  void operator()() const {
    const Engine loaded = load_model(model, engine);
    std::set<std::string> names;
    for (const std::string& name : wanted) {
      declared(loaded.outputs(), name, "output", "--want " + name);
      if (!names.insert(name).second) throw UsageError(fmt::format("--want {} is given twice", name));
    }
    CollectedInputs collected = collect_inputs(loaded, inputs);
    for (const std::string& note : collected.notes) fmt::print(stderr, "{}\n", note);
    const auto begin = std::chrono::steady_clock::now();
    const Outputs results =
        with_progress("Running", [&] { return loaded.run(Inputs(std::move(collected.values)), {.outputs = wanted}); });
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    std::vector<std::vector<std::string>> rows;
    std::vector<tools::NamedTensor> tensors;
    for (const NamedValue& output : results) {
      rows.push_back({printable(output.name), summary(output.value)});
      flatten(output.name, output.value, tensors);
    }
    fmt::print("{}", table(rows));
    fmt::print(stderr, "first run, compiling included: {:.1f} ms\n", ms);
    if (outputs.empty()) return;
    const Progress progress("Writing " + printable(outputs));
    tools::write_npz(outputs, tensors);
  }
};

}  // namespace

void add_run(CLI::App& app, Status&) {
  CLI::App* command = app.add_subcommand("run", "Run a model once and print or save its outputs");
  auto run = std::make_shared<RunCommand>();
  command->add_option("model", run->model, "the model file")->required();
  run->inputs.add_to(*command);
  command->add_option("--outputs", run->outputs, "save the outputs by name")->type_name("FILE.npz")->check(not_empty());
  command->add_option("--want", run->wanted, "only this output (may be repeated)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  run->engine.add_to(*command);
  command->footer(
      "Inputs that are not given get seeded random values, which is said on stderr.\n\n"
      "Examples:\n"
      "  lathe run model.onnx\n"
      "  lathe run model.onnx --inputs inputs.npz --outputs outputs.npz --threads 2\n"
      "  lathe run model.onnx --input image.npy\n"
      "  lathe run bert.onnx --input tokens=ids.npy --shape mask=1x128");
  command->callback([run] { (*run)(); });
}

}  // namespace lathe::cli
