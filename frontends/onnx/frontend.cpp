// The ONNX frontend: finds out whether a file is ONNX, and imports it.
#include "frontends/frontend.h"

#include "frontends/onnx/build.h"
#include "frontends/onnx/wire.h"
#include "ops/ir/failure.h"

namespace lathe::frontends {
namespace {

using namespace onnx;  // NOLINT(google-build-using-namespace): the format this file is about

constexpr std::int64_t kNewestIr = 14;
constexpr std::int64_t kNewestOpset = 28;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_versions(const ModelProto& model) {
  if (model.ir_version < 1) fail(ErrorCode::invalid_model, "the file states no IR version: it is no ONNX model");
  if (model.ir_version > kNewestIr) {
    fail(ErrorCode::unsupported, "the model has IR version {}, this build reads up to {}", model.ir_version, kNewestIr);
  }
  if (!model.graph) fail(ErrorCode::invalid_model, "the model has no graph");
  for (const auto& [domain, version] : model.opsets) {
    if (version < 1) fail(ErrorCode::invalid_model, "opset {} of domain '{}' does not exist", version, shown(domain));
    if (domain.empty() && version > kNewestOpset) {
      fail(ErrorCode::unsupported, "the model uses opset {}, this build knows up to {}", version, kNewestOpset);
    }
  }
}

class OnnxFrontend final : public Frontend {
 public:
  [[nodiscard]] std::string_view name() const override { return "onnx"; }

  /// ONNX has no magic number: the fields tell. A damaged file counts as ONNX as long as its start reads like it.
  [[nodiscard]] Match probe(const ModelSource& source) const noexcept override {
    bool has_version = false;
    try {
      Message m(text_of(source.bytes()), "ModelProto");
      for (int fields = 0; fields < 64 && m.next(); ++fields) {
        if (m.field() == 7) return has_version ? Match::certain : Match::possible;
        if (m.field() == 1) {
          has_version = m.integer() > 0;
        } else {
          m.skip();
        }
      }
    } catch (...) {
      return has_version ? Match::possible : Match::no;
    }
    return has_version ? Match::possible : Match::no;
  }

  [[nodiscard]] ops::Graph import(const ModelSource& source, const LoadLimits& limits) const override {
    Budget budget(limits);
    try {
      ModelProto model = parse_model(text_of(source.bytes()));
      constexpr std::int64_t kOpsetsSince = 3;
      if (model.opsets.empty() && model.ir_version < kOpsetsSince) model.opsets.emplace_back("", 1);
      check_versions(model);
      ops::Graph graph = build_graph(model, source, budget);
      ops::verify(graph);
      graph.compact();
      return graph;
    } catch (const Failure& failure) {
      fail(failure.error.code, "'{}': {}", shown(source.name()), failure.error.message);
    }
  }
};

}  // namespace

const Frontend& onnx_frontend();
const Frontend& onnx_frontend() {
  static const OnnxFrontend kFrontend;
  return kFrontend;
}

}  // namespace lathe::frontends
