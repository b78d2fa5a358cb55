// Parses the text form of graphs.
#include <algorithm>
#include <charconv>
#include <complex>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"
#include "ops/ir/text.h"

namespace lathe::ops {
namespace {

constexpr int kDeepest = 64;

bool is_name_char(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || c == '_' || c == '.' || c == '/' || c == '-';
}

/// Reads the text piece by piece; blanks and comments fall between pieces.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  /// The next character that is no blank; 0 at the end.
  char peek() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return c;
      }
    }
    return 0;
  }
  bool take(std::string_view piece) {
    peek();
    if (text_.substr(at_, piece.size()) != piece) return false;
    at_ += piece.size();
    return true;
  }
  void expect(std::string_view piece) {
    if (!take(piece)) error("expected '{}'", piece);
  }
  /// A word made of name characters, taken only where it is exactly `word`.
  bool take_word(std::string_view word) {
    peek();
    const std::size_t start = at_;
    if (bare() == word) return true;
    at_ = start;
    return false;
  }
  bool at_word(std::string_view word) {
    peek();
    const std::size_t start = at_;
    const bool found = bare() == word;
    at_ = start;
    return found;
  }

  /// Name characters, maybe none.
  std::string_view bare() {
    peek();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_name_char(text_[at_]) && text_.substr(at_, 2) != "//") ++at_;
    return text_.substr(start, at_ - start);
  }
  std::string name() {
    if (peek() == '"') return string();
    const std::string_view word = bare();
    if (word.empty()) error("expected a name");
    return std::string(word);
  }
  std::string string() {
    expect("\"");
    std::string out;
    for (;;) {
      if (at_ >= text_.size()) error("a string has no end");
      const char c = text_[at_++];
      if (c == '"') return out;
      out += c == '\\' ? escape() : c;
    }
  }
  /// The characters of a number.
  std::string_view number() {
    peek();
    const std::size_t start = at_;
    while (at_ < text_.size() && (is_name_char(text_[at_]) || text_[at_] == '+')) ++at_;
    if (at_ == start) error("expected a number");
    return text_.substr(start, at_ - start);
  }
  std::int64_t integer() {
    const std::string_view text = number();
    std::int64_t value = 0;
    if (!convert(text, value)) error("'{}' is no integer", shown(text));
    return value;
  }

  template <class T>
  static bool convert(std::string_view text, T& value) {
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc() && end == text.data() + text.size();
  }

  template <class... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t start = before.rfind('\n');
    const std::size_t column = start == std::string_view::npos ? before.size() + 1 : before.size() - start;
    fail(ErrorCode::invalid_model, "graph text, line {}, column {}: {}", line, column,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  char escape() {
    if (at_ >= text_.size()) error("a string has no end");
    const char c = text_[at_++];
    if (c == 'n') return '\n';
    if (c != 'x') return c;
    int value = 0;
    const std::string_view digits = text_.substr(at_, 2);
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || failure != std::errc() || end != digits.data() + 2)
      error("expected two hexadecimal digits");
    at_ += 2;
    return static_cast<char>(value);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// ---- types ----

DType parse_dtype(Reader& r) {
  if (r.take("?")) return {};
  const std::string name(r.bare());
  const DType dtype = DType::from_name(name);
  if (dtype == DType::undefined && name != "undefined") r.error("'{}' is no dtype", shown(name));
  return dtype;
}

/// "[1,batch,?]" behind a dtype; absent for "[...]" and where nothing stands there.
std::optional<std::vector<Dim>> parse_dims(Reader& r) {
  if (!r.take("[")) return std::nullopt;
  if (r.take("...")) {
    r.expect("]");
    return std::nullopt;
  }
  std::vector<Dim> dims;
  while (!r.take("]")) {
    if (!dims.empty()) r.expect(",");
    if (dims.size() == Shape::kMaxRank) r.error("more than {} dims", Shape::kMaxRank);
    Dim dim;
    if (!r.take("?")) {
      const bool is_quoted = r.peek() == '"';
      dim.symbol = r.name();
      if (!is_quoted && Reader::convert(dim.symbol, dim.extent)) {
        if (dim.extent < 0) r.error("a dim of {}", dim.extent);
        dim.symbol.clear();
      }
    }
    dims.push_back(std::move(dim));
  }
  return dims;
}

ValueInfo parse_type(Reader& r) {
  const bool optional = r.take("optional(");
  const bool sequence = r.take("seq(");
  const bool map = !optional && !sequence && r.take("map(");
  ValueInfo info;
  info.dtype = parse_dtype(r);
  info.dims = parse_dims(r);
  if (sequence || map) r.expect(")");
  if (optional) r.expect(")");
  using Kind = ValueInfo::Kind;
  info.kind = optional   ? (sequence ? Kind::optional_sequence : Kind::optional)
              : sequence ? Kind::sequence
              : map      ? Kind::map
                         : Kind::tensor;
  return info;
}

Layout parse_layout(Reader& r, int rank) {
  Layout layout;
  if (!r.take("{")) return layout;
  layout.row_major = false;
  std::array<bool, Shape::kMaxRank> seen{};
  for (int i = 0; i < rank; ++i) {
    if (i > 0) r.expect(",");
    const std::int64_t d = r.integer();
    if (d < 0 || d >= rank || seen[static_cast<std::size_t>(d)])
      r.error("{} does not belong into a layout of rank {}", d, rank);
    seen[static_cast<std::size_t>(d)] = true;
    layout.order[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(d);
  }
  r.expect("}");
  return layout;
}

std::optional<Shape> fixed_shape(const ValueInfo& info) {
  if (!info.dims) return std::nullopt;
  Shape shape;
  for (const Dim& d : *info.dims) {
    if (d.extent < 0) return std::nullopt;
    shape.push_back(d.extent);
  }
  return shape;
}

Fact parse_fact(Reader& r) {
  const ValueInfo info = parse_type(r);
  switch (info.kind) {
    case ValueInfo::Kind::tensor:
      break;
    case ValueInfo::Kind::sequence:
      return Fact::of_kind(Fact::Kind::sequence, info.dtype);
    case ValueInfo::Kind::map:
      return Fact::of_kind(Fact::Kind::map, info.dtype);
    default:
      return Fact::of_kind(Fact::Kind::optional, info.dtype);
  }
  const std::optional<Shape> shape = fixed_shape(info);
  if (!shape) r.error("a fact has fixed dims");
  Fact fact(info.dtype, *shape);
  fact.layout = parse_layout(r, fact.rank());
  return fact;
}

// ---- tensors ----

template <class T>
T parse_float(Reader& r) {
  const std::string_view text = r.number();
  T value = 0;
  if (text == "nan") return std::numeric_limits<T>::quiet_NaN();
  if (text == "-nan") return -std::numeric_limits<T>::quiet_NaN();
  if (!Reader::convert(text, value)) r.error("'{}' is no number", shown(text));
  return value;
}

bool parse_bool(Reader& r) {
  if (r.take_word("true")) return true;
  if (!r.take_word("false")) r.error("expected true or false");
  return false;
}

template <class T, class Read>
void fill(Reader& r, Tensor& tensor, Read read) {
  bool first = true;
  for (T& element : tensor.mutable_view<T>()) {
    if (!first) r.expect(",");
    first = false;
    element = read();
  }
}

template <class T>
std::complex<T> parse_complex(Reader& r) {
  const T real = parse_float<T>(r);
  r.expect(",");
  return {real, parse_float<T>(r)};
}

std::uint8_t parse_byte(Reader& r) {
  std::string_view text = r.number();
  unsigned value = 0;
  const bool hex = text.substr(0, 2) == "0x";
  const auto [end, failure] = std::from_chars(text.data() + (hex ? 2 : 0), text.data() + text.size(), value, 16);
  if (!hex || failure != std::errc() || end != text.data() + text.size() || value > 255) {
    r.error("'{}' is not the byte of a float8, as in 0x38", shown(text));
  }
  return static_cast<std::uint8_t>(value);
}

std::uint64_t parse_unsigned(Reader& r) {
  const std::string_view text = r.number();
  std::uint64_t value = 0;
  if (!Reader::convert(text, value)) r.error("'{}' is no unsigned integer", shown(text));
  return value;
}

/// The elements between brackets.
Tensor parse_elements(Reader& r, DType dtype, const Shape& shape) {
  // Every element takes a character at least: the text bounds what is allocated.
  Tensor tensor(dtype, shape);
  switch (dtype) {
    case DType::f32:
      fill<float>(r, tensor, [&] { return parse_float<float>(r); });
      return tensor;
    case DType::f64:
      fill<double>(r, tensor, [&] { return parse_float<double>(r); });
      return tensor;
    case DType::i64:
      fill<std::int64_t>(r, tensor, [&] { return r.integer(); });
      return tensor;
    case DType::u64:
      fill<std::uint64_t>(r, tensor, [&] { return parse_unsigned(r); });
      return tensor;
    case DType::boolean:
      fill<bool>(r, tensor, [&] { return parse_bool(r); });
      return tensor;
    case DType::string:
      fill<std::string>(r, tensor, [&] { return r.string(); });
      return tensor;
    case DType::c64:
      fill<std::complex<float>>(r, tensor, [&] { return parse_complex<float>(r); });
      return tensor;
    case DType::c128:
      fill<std::complex<double>>(r, tensor, [&] { return parse_complex<double>(r); });
      return tensor;
    default:
      break;
  }
  if (dtype.is_float8()) {
    Tensor bytes(DType::u8, shape);
    fill<std::uint8_t>(r, bytes, [&] { return parse_byte(r); });
    std::memcpy(tensor.mutable_data(), bytes.data(), bytes.bytes());
    return tensor;
  }
  Tensor wide(dtype.is_float() ? DType::f64 : DType::i64, shape);
  if (dtype.is_float()) {
    fill<double>(r, wide, [&] { return parse_float<double>(r); });
  } else {
    fill<std::int64_t>(r, wide, [&] { return r.integer(); });
  }
  return wide.cast(dtype);
}

struct TypedTensor {
  Tensor tensor;
  Layout layout;
};

TypedTensor parse_tensor(Reader& r, const LargeConstants& large) {
  const Fact fact = parse_fact(r);
  if (!fact.is_tensor() || fact.dtype == DType::undefined) r.error("a constant is a tensor");
  if (r.take("#")) {
    const std::string hash(r.bare());
    Tensor tensor = large ? large(hash) : Tensor();
    if (tensor.dtype() != fact.dtype || tensor.shape() != fact.shape)
      r.error("the content of constant #{} is not known", shown(hash));
    return {std::move(tensor), fact.layout};
  }
  r.expect("[");
  constexpr std::int64_t kMostElements = 1 << 20;
  const std::int64_t count = fact.shape.elements();
  if (count < 0 || count > kMostElements) r.error("a constant of shape {} is too large to be written out", fact.shape);
  TypedTensor result{parse_elements(r, fact.dtype, fact.shape), fact.layout};
  r.expect("]");
  return result;
}

// ---- attributes ----

/// Whether the characters of a number say a float.
bool is_float_text(std::string_view text) {
  return text.find_first_of(".en") != std::string_view::npos;  // a point, an exponent, inf or nan
}

AttrValue parse_number(Reader& r) {
  const std::string_view text = r.number();
  std::int64_t integer = 0;
  if (!is_float_text(text)) {
    if (!Reader::convert(text, integer)) r.error("'{}' is no number", shown(text));
    return integer;
  }
  Reader again(text);
  return parse_float<double>(again);
}

AttrValue parse_list(Reader& r) {
  r.expect("[");
  std::vector<std::int64_t> ints;
  std::vector<double> floats;
  std::vector<std::string> strings;
  do {
    if (r.peek() == '"') {
      strings.push_back(r.string());
      continue;
    }
    const AttrValue number = parse_number(r);
    if (const auto* i = std::get_if<std::int64_t>(&number)) {
      ints.push_back(*i);
    } else {
      floats.push_back(std::get<double>(number));
    }
  } while (r.take(","));
  r.expect("]");
  if (static_cast<int>(!ints.empty()) + static_cast<int>(!floats.empty()) + static_cast<int>(!strings.empty()) != 1) {
    r.error("a list holds integers, floats or strings, one kind of them");
  }
  if (!ints.empty()) return ints;
  if (!floats.empty()) return floats;
  return strings;
}

AttrValue parse_value(Reader& r, const LargeConstants& large) {
  if (r.peek() == '"') return r.string();
  if (r.peek() == '[') return parse_list(r);
  if (r.take_word("tensor")) return parse_tensor(r, large).tensor;
  if (r.take_word("type")) return parse_type(r);
  if (r.take_word("tensors")) {
    std::vector<Tensor> tensors;
    r.expect("[");
    while (!r.take("]")) {
      if (!tensors.empty()) r.expect(",");
      tensors.push_back(parse_tensor(r, large).tensor);
    }
    return tensors;
  }
  const auto empty = [&](auto list) -> AttrValue {
    r.expect("[");
    r.expect("]");
    return list;
  };
  if (r.take_word("ints")) return empty(std::vector<std::int64_t>());
  if (r.take_word("floats")) return empty(std::vector<double>());
  if (r.take_word("strings")) return empty(std::vector<std::string>());
  return parse_number(r);
}

// ---- graphs ----

class GraphParser {
 public:
  GraphParser(Reader& reader, const LargeConstants& large, int depth) : r_(reader), large_(large), depth_(depth) {}

  Graph parse() {
    if (depth_ > kDeepest) r_.error("graphs are nested deeper than {}", kDeepest);
    if (!r_.take_word("graph")) r_.error("expected 'graph'");
    graph_.name = r_.peek() == '(' ? std::string() : r_.name();
    r_.expect("(");
    for (bool first = true; !r_.take(")"); first = false) {
      if (!first) r_.expect(",");
      parse_input();
    }
    r_.expect("{");
    while (!r_.take_word("return")) parse_line();
    if (r_.peek() == '%') {
      do parse_output();
      while (r_.take(","));
    }
    r_.expect("}");
    for (std::size_t i = 0; i < graph_.value_count(); ++i) {
      const auto id = static_cast<ValueId>(i);
      if (!has_producer(id)) r_.error("nothing produces '{}'", shown(graph_.value(id).name));
    }
    return std::move(graph_);
  }

 private:
  /// A value by its name; one that has not been seen will be defined further down.
  ValueId value(const std::string& name) {
    const auto at = names_.find(name);
    return at != names_.end() ? at->second : names_.emplace(name, graph_.add_value(name)).first->second;
  }

  ValueId parse_reference() {
    if (r_.take("_")) return kNone;
    r_.expect("%");
    return value(r_.name());
  }

  void parse_input() {
    r_.expect("%");
    const std::string name = r_.name();
    const ValueId id = graph_.add_input(name);
    if (!names_.emplace(name, id).second) r_.error("two inputs are named '{}'", shown(name));
    ValueDef& input = graph_.value(id);
    if (r_.take(":")) {
      input.declared = parse_type(r_);
      input.declared->name = name;
      const std::optional<Shape> shape = fixed_shape(*input.declared);
      if (input.declared->kind == ValueInfo::Kind::tensor && input.declared->dtype != DType::undefined && shape) {
        input.fact = Fact(input.declared->dtype, *shape);
      }
    }
    if (r_.take_word("fact")) input.fact = parse_fact(r_);
    if (r_.take("=")) {
      input.default_value = parse_tensor(r_, large_).tensor;
      if (input.declared) input.declared->required = false;
    }
  }

  void parse_output() {
    const ValueId id = parse_reference();
    if (id == kNone) r_.error("an output has a name");
    graph_.outputs.push_back(id);
    if (!r_.take(":")) return;
    graph_.value(id).declared = parse_type(r_);
    graph_.value(id).declared->name = graph_.value(id).name;
  }

  void parse_line() {
    Node node;
    if (r_.peek() == '%' || r_.peek() == '_') {
      do node.outputs.push_back(parse_reference());
      while (r_.take(","));
      r_.expect("=");
      if (node.outputs.size() == 1 && node.outputs[0] != kNone && r_.at_word("constant"))
        return parse_constant(node.outputs[0]);
    }
    parse_node(std::move(node));
  }

  bool has_producer(ValueId id) const {
    const ValueDef& value = graph_.value(id);
    const bool is_input = std::find(graph_.inputs.begin(), graph_.inputs.end(), id) != graph_.inputs.end();
    return is_input || value.producer != kNone || value.is_constant();
  }

  void check_new(ValueId id) {
    if (has_producer(id)) r_.error("two producers of '{}'", shown(graph_.value(id).name));
  }

  void parse_constant(ValueId id) {
    check_new(id);
    r_.take_word("constant");
    TypedTensor constant = parse_tensor(r_, large_);
    ValueDef& value = graph_.value(id);
    value.fact = Fact(constant.tensor.dtype(), constant.tensor.shape());
    value.fact->layout = constant.layout;
    value.constant = std::move(constant.tensor);
  }

  void parse_node(Node node) {
    std::string op = r_.name();
    std::string domain;
    if (r_.take("::")) {
      domain = std::move(op);
      op = r_.name();
    }
    node.op = find_operator(op, domain);
    if (!node.op) r_.error("there is no operator '{}'", shown(op));
    r_.expect("(");
    for (bool first = true; !r_.take(")"); first = false) {
      if (!first) r_.expect(",");
      node.inputs.push_back(parse_reference());
    }
    if (r_.take("{")) {  // attributes, or the subgraphs of a node that has neither attributes nor a name
      if (r_.at_word("graph") && !node.op->subgraphs.empty()) {
        parse_subgraphs(node);
      } else {
        parse_attributes(node.attributes);
      }
    }
    if (r_.take_word("captures")) {
      const std::int64_t captures = r_.integer();
      if (captures < 0 || captures > static_cast<std::int64_t>(node.inputs.size())) r_.error("{} captures", captures);
      node.captures = static_cast<int>(captures);
    }
    if (r_.take("@")) node.name = r_.name();
    if (!node.op->subgraphs.empty() && node.subgraphs.empty()) {
      r_.expect("{");
      parse_subgraphs(node);
    }
    if (r_.take(":")) parse_facts(node);
    for (ValueId id : node.outputs) {
      if (id != kNone) check_new(id);
    }
    try {
      graph_.add_node(std::move(node));
    } catch (const Failure& failure) {
      r_.error("{}", failure.error.message);
    }
  }

  void parse_attributes(Attributes& attributes) {
    for (bool first = true; !r_.take("}"); first = false) {
      if (!first) r_.expect(",");
      std::string name = r_.name();
      r_.expect("=");
      attributes.set(std::move(name), parse_value(r_, large_));
    }
  }

  void parse_subgraphs(Node& node) {
    while (!r_.take("}")) {
      node.subgraphs.push_back(std::make_unique<Graph>(GraphParser(r_, large_, depth_ + 1).parse()));
    }
  }

  void parse_facts(const Node& node) {
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (i > 0) r_.expect(",");
      if (r_.take("_")) continue;
      const Fact fact = parse_fact(r_);
      if (node.outputs[i] != kNone) graph_.value(node.outputs[i]).fact = fact;
    }
  }

  Reader& r_;
  const LargeConstants& large_;
  int depth_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> names_;
};

}  // namespace

Graph parse_text(std::string_view text, const LargeConstants& large) {
  Reader reader(text);
  Graph graph = GraphParser(reader, large, 0).parse();
  if (reader.peek() != 0) reader.error("expected the end");
  return graph;
}

}  // namespace lathe::ops
