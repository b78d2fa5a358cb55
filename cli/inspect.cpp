// `lathe inspect`: a model's graph at a stage of its way, and the passes it went through.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/progress.h"
#include "cli/show.h"

namespace lathe::cli {
namespace {

struct InspectCommand {
  std::string model;
  bool passes = false;
  std::string format = "text";
  std::string stage;
  EngineArguments engine;
  InputArguments inputs;

  void operator()() const {
    if (passes && format != "text")
      throw UsageError(fmt::format("--format {} is for graphs; --passes lists passes as text", format));
    if (passes && stage == "imported") throw UsageError("no pass has run at --stage imported");
    if (!inputs.shapes.empty() && (stage == "imported" || stage == "frozen"))
      throw UsageError(fmt::format("no shapes are known at --stage {}; --shape is for --stage specialized", stage));
    if (stage == "imported") {
      fmt::print("{}", with_progress("Loading " + printable(model),
                                     [&] { return unwrap(tools::try_imported_graph(model, graph_format())); }));
      return;
    }
    const Engine loaded = load_model(model, engine);
    const bool specialize = stage == "specialized" || (stage.empty() && !inputs.shapes.empty());
    std::vector<std::string> notes;
    const Shapes shapes = specialize ? collect_shapes(loaded, inputs.shapes, notes) : Shapes{};
    for (const std::string& note : notes) fmt::print(stderr, "{}\n", note);
    if (passes) {
      print_passes(with_progress("Specializing", [&] { return unwrap(tools::try_passes(loaded, shapes)); }));
    } else {
      const tools::Stage which = specialize ? tools::Stage::specialized : tools::Stage::frozen;
      fmt::print("{}",
                 with_progress("Specializing", [&] { return tools::graph(loaded, which, graph_format(), shapes); }));
    }
  }

  [[nodiscard]] tools::GraphFormat graph_format() const {
    return format == "dot"    ? tools::GraphFormat::dot
           : format == "html" ? tools::GraphFormat::html
                              : tools::GraphFormat::text;
  }

  static void print_passes(const std::vector<tools::PassRecord>& records) {
    std::vector<std::vector<std::string>> rows = {{"when", "pass", "ms", "nodes", "changes"}};
    double seconds = 0;
    for (const tools::PassRecord& r : records) {
      seconds += r.seconds;
      rows.push_back({r.stage, r.name, r.switched_off ? "off" : fmt::format("{:.2f}", r.seconds * 1e3),
                      fmt::format("{} → {}", r.nodes_before, r.nodes_after), std::to_string(r.changes)});
    }
    fmt::print("{}{} passes, {:.2f} ms\n", table(rows), records.size(), seconds * 1e3);
  }
};

}  // namespace

void add_inspect(CLI::App& app, Status&) {
  CLI::App* command = app.add_subcommand("inspect", "Print a model's graph, or the passes it goes through");
  auto inspect = std::make_shared<InspectCommand>();
  command->add_option("model", inspect->model, "the model file")->required();
  command->add_flag("--passes", inspect->passes, "list the passes that ran, with their times, instead of the graph");
  command->add_option("--format", inspect->format, "of the graph")
      ->check(CLI::IsMember({"text", "dot", "html"}))
      ->capture_default_str();
  command
      ->add_option("--stage", inspect->stage,
                   "which graph: as the file says it, after the passes of the load (default), or after those for the "
                   "given shapes (default with --shape; where the model's data decides shapes, as in a run on zeros)")
      ->check(CLI::IsMember({"imported", "frozen", "specialized"}));
  inspect->inputs.add_shapes_to(*command);
  command->footer(
      "Examples:\n"
      "  lathe inspect model.onnx\n"
      "  lathe inspect model.onnx --passes --shape x=1x3x224x224\n"
      "  lathe inspect model.onnx --stage imported --format dot | dot -Tsvg > model.svg\n"
      "  lathe inspect model.onnx --format html > model.html");
  command->callback([inspect] { (*inspect)(); });
}

}  // namespace lathe::cli
