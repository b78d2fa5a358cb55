// What tools say about models: graphs, passes and plans.
#include <lathe/tools.h>

#include "frontends/frontend.h"
#include "ops/ir/text.h"
#include "passes/pipeline.h"
#include "runtime/boundary.h"
#include "runtime/introspect.h"
#include "runtime/tools/graph_view.h"

namespace lathe::tools {
namespace {

std::string formatted(const ops::Graph& graph, GraphFormat format) {
  switch (format) {
    case GraphFormat::text:
      return ops::to_text(graph);
    case GraphFormat::dot:
      return runtime::to_dot(graph);
    case GraphFormat::html:
      return runtime::to_html(graph);
  }
  fail(ErrorCode::invalid_argument, "unknown graph format {}", static_cast<int>(format));
}

}  // namespace

Result<std::string> try_imported_graph(const std::string& path, GraphFormat format, const LoadOptions& load) noexcept {
  return runtime::guarded<std::string>(
      [&] { return formatted(frontends::import_model(frontends::ModelSource::open(path, load), load), format); });
}

Result<std::string> try_graph(const Engine& engine, Stage stage, GraphFormat format, const Shapes& shapes) noexcept {
  return runtime::guarded<std::string>([&] {
    if (stage == Stage::imported) {
      fail(ErrorCode::invalid_argument,
           "an engine does not keep the imported graph; try_imported_graph reads it from the file");
    }
    if (stage == Stage::frozen) return formatted(runtime::frozen_graph(*engine.impl()), format);
    return formatted(runtime::specialized_graph(*engine.impl(), shapes), format);
  });
}

Result<std::vector<PassRecord>> try_passes(const Engine& engine, const Shapes& shapes) noexcept {
  return runtime::guarded<std::vector<PassRecord>>([&] { return runtime::pass_records(*engine.impl(), shapes); });
}

std::vector<std::string> pass_switches() { return passes::all_switches(); }

Result<PlanRecord> try_explain(const Engine& engine, const Shapes& shapes, bool real_time) noexcept {
  return runtime::guarded<PlanRecord>([&] { return runtime::plan_record(*engine.impl(), shapes, real_time); });
}

Result<PlanRecord> try_explain_run(const Engine& engine, const Inputs& inputs, bool real_time) noexcept {
  return runtime::guarded<PlanRecord>([&] { return runtime::plan_record_of_run(*engine.impl(), inputs, real_time); });
}

}  // namespace lathe::tools
