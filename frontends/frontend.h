// Frontend: a reader of one model format; import_model: a file of any format that this build reads, as a graph.
#pragma once

#include <span>
#include <string_view>

#include <lathe/options.h>

#include "frontends/source.h"
#include "ops/ir/graph.h"

namespace lathe::frontends {

/// How sure a frontend is that a file is of its format.
enum class Match : std::uint8_t { no, possible, certain };

class Frontend {
 public:
  virtual ~Frontend() = default;
  /// "onnx": what LoadOptions::formats calls it.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Looks at the content only; reads little of it and never throws.
  [[nodiscard]] virtual Match probe(const ModelSource& source) const noexcept = 0;
  /// The model's main graph, in the vocabulary of ONNX's newest opset, verified. Failure naming the place in the file.
  /// What it needs of the file is copied.
  [[nodiscard]] virtual ops::Graph import(const ModelSource& source, const LoadLimits& limits) const = 0;
};

/// Every frontend of this build, by name. Generated at build time from the folders beside this file.
std::span<const Frontend* const> all_frontends();

/// The graph of a model, read by the frontend that is surest of it. Failure (unsupported) where none of
/// `options.formats` is.
ops::Graph import_model(const ModelSource& source, const LoadOptions& options);

}  // namespace lathe::frontends
