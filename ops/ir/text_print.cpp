// Prints graphs as text.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <unordered_set>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"
#include "ops/ir/text.h"

namespace lathe::ops {
namespace {

constexpr std::int64_t kShownElements = 64;  // larger constants are printed as a hash

bool is_bare(std::string_view name) {
  if (name.empty() || name == "_") return false;
  for (char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && c != '_' && c != '.' && c != '/' && c != '-') return false;
  }
  return name.find("//") == std::string_view::npos;  // that begins a comment
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string name_text(std::string_view name) { return is_bare(name) ? std::string(name) : in_quotes(name); }

/// A number that reads back as a float: with a point or an exponent.
template <class T>
std::string float_text(T value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

template <class T>
std::string complex_text(std::complex<T> value) {
  return float_text(value.real()) + ", " + float_text(value.imag());
}

std::string element_text(const Tensor& tensor, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  const DType dtype = tensor.dtype();
  switch (dtype) {
    case DType::f32:
      return float_text(tensor.view<float>()[at]);
    case DType::f64:
      return float_text(tensor.view<double>()[at]);
    case DType::string:
      return in_quotes(tensor.view<std::string>()[at]);
    case DType::boolean:
      return tensor.view<bool>()[at] ? "true" : "false";
    case DType::u64:
      return fmt::format("{}", tensor.view<std::uint64_t>()[at]);
    case DType::c64:
      return complex_text(tensor.view<std::complex<float>>()[at]);
    case DType::c128:
      return complex_text(tensor.view<std::complex<double>>()[at]);
    default:
      break;
  }
  if (dtype.is_float8()) return fmt::format("{:#04x}", static_cast<const std::uint8_t*>(tensor.data())[at]);  // exact
  if (dtype.is_float()) return float_text(tensor.number(i));
  return fmt::format("{}", tensor.integer(i));
}

std::string layout_text(const Layout& layout, int rank) {
  if (layout.row_major) return "";
  return fmt::format("{{{}}}", fmt::join(layout.order.begin(), layout.order.begin() + rank, ","));
}

std::string tensor_text(const Tensor& tensor, const Layout& layout = {}) {
  std::string text = Fact(tensor.dtype(), tensor.shape()).to_string() + layout_text(layout, tensor.shape().rank());
  if (tensor.size() > kShownElements) return text + " #" + content_hash(tensor);
  text += " [";
  for (std::int64_t i = 0; i < tensor.size(); ++i) text += (i ? ", " : "") + element_text(tensor, i);
  return text + "]";
}

std::string type_text(const ValueInfo& info) {
  const bool has_type = info.dtype != DType::undefined;
  std::string text(has_type ? info.dtype.name() : "?");
  if (!info.dims) {
    text += "[...]";
  } else {
    text += "[";
    for (std::size_t i = 0; i < info.dims->size(); ++i) {
      const Dim& dim = (*info.dims)[i];
      if (i) text += ",";
      if (dim.extent >= 0) {
        text += std::to_string(dim.extent);
      } else {
        // A symbol that reads as a number is quoted: the exporter wrote it, it is not an extent.
        const bool number = !dim.symbol.empty() && dim.symbol.find_first_not_of("0123456789-") == std::string::npos;
        text += dim.symbol.empty() ? "?" : number ? in_quotes(dim.symbol) : name_text(dim.symbol);
      }
    }
    text += "]";
  }
  switch (info.kind) {
    case ValueInfo::Kind::tensor:
      return text;
    case ValueInfo::Kind::sequence:
      return "seq(" + text + ")";
    case ValueInfo::Kind::optional:
      return "optional(" + text + ")";
    case ValueInfo::Kind::map:
      return "map(" + text + ")";
    case ValueInfo::Kind::optional_sequence:
      return "optional(seq(" + text + "))";
  }
  return text;
}

struct AttributeText {
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return float_text(v); }
  std::string operator()(const std::string& v) const { return in_quotes(v); }
  std::string operator()(const Tensor& v) const { return "tensor " + tensor_text(v); }
  std::string operator()(const ValueInfo& v) const { return "type " + type_text(v); }
  std::string operator()(const std::vector<std::int64_t>& v) const { return list("ints", v); }
  std::string operator()(const std::vector<double>& v) const { return list("floats", v); }
  std::string operator()(const std::vector<std::string>& v) const { return list("strings", v); }
  std::string operator()(const std::vector<Tensor>& v) const {
    std::string text = "tensors [";
    for (std::size_t i = 0; i < v.size(); ++i) text += (i ? ", " : "") + tensor_text(v[i]);
    return text + "]";
  }
  template <class T>
  std::string list(std::string_view kind, const std::vector<T>& v) const {
    if (v.empty()) return std::string(kind) + " []";
    std::string text = "[";
    for (std::size_t i = 0; i < v.size(); ++i) text += (i ? ", " : "") + (*this)(v[i]);
    return text + "]";
  }
};

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), names_(graph.value_count()) { name_values(); }

  std::string print(const std::string& indent) const {
    std::string text = "graph " + name_text(graph_.name) + "(";
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) text += (i ? ", " : "") + input_text(graph_.inputs[i]);
    text += ") {\n";
    const std::string inner = indent + "  ";
    for (std::size_t i = 0; i < graph_.value_count(); ++i) {
      const auto id = static_cast<ValueId>(i);
      const ValueDef& value = graph_.value(id);
      if (!value.is_constant()) continue;
      const Layout layout = value.fact ? value.fact->layout : Layout();
      text += inner + reference(id) + " = constant " + tensor_text(value.constant, layout) + "\n";
    }
    for (NodeId id : graph_.order()) text += inner + node_text(graph_.node(id), inner) + "\n";
    text += inner + "return";
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) text += (i ? ", " : " ") + output_text(graph_.outputs[i]);
    return text + "\n" + indent + "}";
  }

 private:
  /// Values are told apart by their names in text, in the graph by number: doubled names get a suffix. What callers see
  /// (inputs, outputs) is named first and keeps its names.
  void name_values() {
    std::unordered_set<std::string> taken;
    const auto give = [&](ValueId id) {
      std::string& name = names_[static_cast<std::size_t>(id)];
      if (!name.empty()) return;
      const std::string& wanted = graph_.value(id).name;
      name = wanted.empty() ? "v" + std::to_string(id) : wanted;
      for (int suffix = 1; !taken.insert(name).second; ++suffix)
        name = fmt::format("{}.{}", wanted.empty() ? "v" : wanted, suffix);
    };
    for (ValueId id : graph_.inputs) give(id);
    for (ValueId id : graph_.outputs) give(id);
    for (std::size_t i = 0; i < names_.size(); ++i) give(static_cast<ValueId>(i));
  }

  std::string reference(ValueId id) const {
    return id == kNone ? "_" : "%" + name_text(names_[static_cast<std::size_t>(id)]);
  }

  std::string input_text(ValueId id) const {
    const ValueDef& value = graph_.value(id);
    std::string text = reference(id);
    if (value.declared) text += ": " + type_text(*value.declared);
    const std::string fact = value.fact ? value.fact->to_string() : "";
    if (value.fact && !(value.declared && fact == type_text(*value.declared))) text += " fact " + fact;
    if (value.default_value.defined()) text += " = " + tensor_text(value.default_value);
    return text;
  }

  std::string output_text(ValueId id) const {
    const ValueDef& value = graph_.value(id);
    const bool is_input = std::find(graph_.inputs.begin(), graph_.inputs.end(), id) != graph_.inputs.end();
    return reference(id) + (value.declared && !is_input ? ": " + type_text(*value.declared) : "");
  }

  std::string node_text(const Node& node, const std::string& indent) const {
    std::string text;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) text += (i ? ", " : "") + reference(node.outputs[i]);
    text += node.outputs.empty() ? "" : " = ";
    text += node.op->domain.empty() ? "" : std::string(node.op->domain) + "::";
    text += std::string(node.op->name) + "(";
    for (std::size_t i = 0; i < node.inputs.size(); ++i) text += (i ? ", " : "") + reference(node.inputs[i]);
    text += ")";
    std::string attributes;
    for (const auto& [name, value] : node.attributes) {
      attributes += (attributes.empty() ? "" : ", ") + name_text(name) + " = " + std::visit(AttributeText(), value);
    }
    if (!attributes.empty()) text += " {" + attributes + "}";
    if (node.captures > 0) text += fmt::format(" captures {}", node.captures);
    if (!node.name.empty()) text += " @" + name_text(node.name);
    text += subgraphs_text(node, indent);
    return text + facts_text(node);
  }

  static std::string subgraphs_text(const Node& node, const std::string& indent) {
    if (node.subgraphs.empty()) return "";
    std::string text = " {";
    for (const auto& subgraph : node.subgraphs) text += "\n" + indent + "  " + Printer(*subgraph).print(indent + "  ");
    return text + "\n" + indent + "}";
  }

  std::string facts_text(const Node& node) const {
    std::string text;
    bool any = false;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      const bool known = id != kNone && graph_.value(id).fact;
      any = any || known;
      text += (i ? ", " : "") + (known ? graph_.value(id).fact->to_string() : "_");
    }
    return any ? " : " + text : "";
  }

  const Graph& graph_;
  std::vector<std::string> names_;
};

}  // namespace

std::string content_hash(const Tensor& tensor) {
  XXH64_hash_t hash = 0;
  if (tensor.dtype() == DType::string) {
    for (const std::string& s : tensor.view<std::string>()) hash = XXH64(s.data(), s.size(), hash + 1);
  } else {
    hash = XXH64(tensor.data(), tensor.bytes(), 0);
  }
  return fmt::format("{:016x}", hash);
}

std::string to_text(const Graph& graph) { return Printer(graph).print("") + "\n"; }

}  // namespace lathe::ops
