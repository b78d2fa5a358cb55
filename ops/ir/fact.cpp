// Facts, layouts, and the text forms of types.
#include "ops/ir/fact.h"

#include <fmt/format.h>

#include <algorithm>

#include <lathe/info.h>

namespace lathe {

bool ValueInfo::admits(const Shape& shape) const {
  if (!dims) return true;
  return std::equal(dims->begin(), dims->end(), shape.begin(), shape.end(),
                    [](const Dim& dim, std::int64_t extent) { return dim.extent < 0 || dim.extent == extent; });
}

std::string ValueInfo::to_string() const {
  std::string text;
  if (dtype == DType::undefined) {
    text = "?";
  } else {
    text = dtype.name();
  }
  if (!dims) {
    text += "[...]";
  } else {
    text += "[";
    for (std::size_t i = 0; i < dims->size(); ++i) {
      const Dim& d = (*dims)[i];
      text += i ? "," : "";
      text += d.extent >= 0 ? std::to_string(d.extent) : d.symbol.empty() ? "?" : d.symbol;
    }
    text += "]";
  }
  switch (kind) {
    case Kind::tensor:
      return text;
    case Kind::sequence:
      return "seq(" + text + ")";
    case Kind::optional:
      return "optional(" + text + ")";
    case Kind::map:
      return "map(" + text + ")";
    case Kind::optional_sequence:
      return "optional(seq(" + text + "))";
  }
  return text;
}

}  // namespace lathe

namespace lathe::ops {

Layout Layout::channels_last(int rank) {
  Layout l;
  if (rank < 3) return l;
  l.row_major = false;
  l.order[0] = 0;
  for (int i = 1; i + 1 < rank; ++i) l.order[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i + 1);
  l.order[static_cast<std::size_t>(rank - 1)] = 1;
  return l;
}

bool operator==(const Layout& a, const Layout& b) {
  return a.row_major == b.row_major && (a.row_major || a.order == b.order);
}

std::string Fact::to_string() const {
  if (kind == Kind::sequence) return fmt::format("seq({})", dtype.name());
  if (kind == Kind::optional) return fmt::format("optional({})", dtype.name());
  if (kind == Kind::map) return fmt::format("map({})", dtype.name());
  std::string text = fmt::format("{}[{}]", dtype.name(), fmt::join(shape.begin(), shape.end(), ","));
  if (!layout.row_major)
    text += fmt::format("{{{}}}", fmt::join(layout.order.begin(), layout.order.begin() + rank(), ","));
  return text;
}

Shape strides_of(const Fact& fact) {
  Shape strides = fact.shape;
  std::int64_t step = 1;
  for (int p = fact.rank() - 1; p >= 0; --p) {
    const int d = fact.layout.dim_at(p);
    strides[d] = step;
    step *= fact.shape[d];
  }
  return strides;
}

}  // namespace lathe::ops
