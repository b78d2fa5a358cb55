// Picks the frontend for a file by its content.
#include "frontends/frontend.h"

#include <algorithm>

#include "ops/ir/failure.h"

namespace lathe::frontends {

ops::Graph import_model(const ModelSource& source, const LoadOptions& options) {
  const Frontend* best = nullptr;
  Match best_match = Match::no;
  std::string tried;
  for (const Frontend* frontend : all_frontends()) {
    const auto& formats = options.formats;
    if (!formats.empty() && std::find(formats.begin(), formats.end(), frontend->name()) == formats.end()) continue;
    tried += tried.empty() ? "" : ", ";
    tried += frontend->name();
    const Match match = frontend->probe(source);
    if (match > best_match) {
      best = frontend;
      best_match = match;
    }
  }
  if (!best) {
    fail(ErrorCode::unsupported, "'{}' ({} bytes) is of none of the formats read here ({})", shown(source.name()),
         source.bytes().size(), tried.empty() ? "none is allowed" : tried);
  }
  return best->import(source, options.limits);
}

}  // namespace lathe::frontends
