// The operator table's lookup, schema checks, and OpView.
#include "ops/ir/op.h"

#include <algorithm>
#include <unordered_map>

namespace lathe::ops {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string_view>{}(key.first) * 31 + std::hash<std::string_view>{}(key.second);
  }
};

const Attribute* schema_of(const OpDef& op, std::string_view name) {
  for (const Attribute& a : op.attributes) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

bool fits(AttrKind kind, const AttrValue& value) {
  switch (kind) {
    case AttrKind::integer:
      return std::holds_alternative<std::int64_t>(value);
    case AttrKind::number:
      return std::holds_alternative<double>(value);
    case AttrKind::string:
      return std::holds_alternative<std::string>(value);
    case AttrKind::tensor:
      return std::holds_alternative<Tensor>(value);
    case AttrKind::integers:
      return std::holds_alternative<std::vector<std::int64_t>>(value);
    case AttrKind::numbers:
      return std::holds_alternative<std::vector<double>>(value);
    case AttrKind::strings:
      return std::holds_alternative<std::vector<std::string>>(value);
    case AttrKind::tensors:
      return std::holds_alternative<std::vector<Tensor>>(value);
    case AttrKind::type:
      return std::holds_alternative<ValueInfo>(value);
  }
  return false;
}

std::string_view kind_name(AttrKind kind) {
  constexpr std::string_view kNames[] = {"an integer", "a float", "a string", "a tensor", "integers",
                                         "floats",     "strings", "tensors",  "a type"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string bounds(const Arity& arity) {
  if (arity.least == arity.most) return fmt::format("{}", arity.least);
  if (arity.most >= Arity::kMany) return fmt::format("at least {}", arity.least);
  return fmt::format("{} to {}", arity.least, arity.most);
}

}  // namespace

OperatorName split_name(std::string_view name) {
  const std::size_t colons = name.find("::");
  if (colons == std::string_view::npos) return {"", name};
  return {name.substr(0, colons), name.substr(colons + 2)};
}

const OpDef* find_operator(std::string_view name, std::string_view domain) {
  static const auto* const kTable = [] {
    auto* table = new std::unordered_map<Key, const OpDef*, KeyHash>();
    for (const OpDef* op : all_operators()) table->emplace(Key{op->name, op->domain}, op);
    return table;
  }();
  if (domain == "ai.onnx") domain = "";
  const auto found = kTable->find({name, domain});
  return found == kTable->end() ? find_custom_operator(name, domain) : found->second;
}

std::string describe(const Node& node) {
  const std::string_view op = node.op ? node.op->name : "node";
  return node.name.empty() ? fmt::format("{}", op) : fmt::format("{} '{}'", op, shown(node.name));
}

void check_schema(const Node& node) {
  const OpDef& op = *node.op;
  const int inputs = static_cast<int>(node.formal_inputs());
  const int outputs = static_cast<int>(node.outputs.size());
  if (inputs < op.inputs.least || inputs > op.inputs.most) {
    fail(ErrorCode::invalid_model, "{}: {} inputs, expected {}", describe(node), inputs, bounds(op.inputs));
  }
  if (outputs < op.outputs.least || outputs > op.outputs.most) {
    fail(ErrorCode::invalid_model, "{}: {} outputs, expected {}", describe(node), outputs, bounds(op.outputs));
  }
  for (int i = 0; i < op.inputs.least && i < inputs; ++i) {
    if (node.inputs[static_cast<std::size_t>(i)] == kNone && op.inputs.most < Arity::kMany) {
      fail(ErrorCode::invalid_model, "{}: input {} is required", describe(node), i);
    }
  }
  for (const auto& [name, value] : node.attributes) {
    const Attribute* schema = schema_of(op, name);
    if (!schema) fail(ErrorCode::invalid_model, "{}: unknown attribute '{}'", describe(node), shown(name));
    if (!fits(schema->kind, value)) {
      fail(ErrorCode::invalid_model, "{}: attribute '{}' must be {}", describe(node), shown(name),
           kind_name(schema->kind));
    }
  }
  for (const Attribute& a : op.attributes) {
    if (a.required && !node.attributes.find(a.name)) {
      fail(ErrorCode::invalid_model, "{}: attribute '{}' is required", describe(node), a.name);
    }
  }
  if (node.subgraphs.size() != op.subgraphs.size()) {
    fail(ErrorCode::invalid_model, "{}: {} subgraphs, expected {}", describe(node), node.subgraphs.size(),
         op.subgraphs.size());
  }
}

const Fact& OpView::in(int i) const {
  if (!has(i)) error("input {} is missing", i);
  return *inputs_[static_cast<std::size_t>(i)];
}

const Tensor& OpView::known_integers(int i) const {
  const Tensor* t = value(i);
  if (!t) error("the value of input {} is not known", i);
  if (!t->dtype().is_integer()) error("input {} must hold integers, got {}", i, t->dtype());
  return *t;
}

std::vector<std::int64_t> OpView::ints(int i) const {
  const Tensor& t = known_integers(i);
  std::vector<std::int64_t> result(static_cast<std::size_t>(t.size()));
  for (std::size_t k = 0; k < result.size(); ++k) result[k] = t.integer(static_cast<std::int64_t>(k));
  return result;
}

bool OpView::has_attr(std::string_view name) const { return node_.attributes.find(name) != nullptr; }

std::int64_t OpView::i(std::string_view name) const {
  if (const AttrValue* v = node_.attributes.find(name)) return std::get<std::int64_t>(*v);
  const Attribute* schema = schema_of(op(), name);
  return schema ? schema->integer : 0;
}

double OpView::f(std::string_view name) const {
  if (const AttrValue* v = node_.attributes.find(name)) return std::get<double>(*v);
  const Attribute* schema = schema_of(op(), name);
  return schema ? schema->number : 0;
}

std::string_view OpView::s(std::string_view name) const {
  if (const AttrValue* v = node_.attributes.find(name)) return std::get<std::string>(*v);
  const Attribute* schema = schema_of(op(), name);
  return schema ? schema->string : std::string_view();
}

std::span<const std::int64_t> OpView::attr_ints(std::string_view name) const {
  const AttrValue* v = node_.attributes.find(name);
  return v ? std::span<const std::int64_t>(std::get<std::vector<std::int64_t>>(*v)) : std::span<const std::int64_t>();
}

std::span<const double> OpView::attr_floats(std::string_view name) const {
  const AttrValue* v = node_.attributes.find(name);
  return v ? std::span<const double>(std::get<std::vector<double>>(*v)) : std::span<const double>();
}

std::span<const std::string> OpView::attr_strings(std::string_view name) const {
  const AttrValue* v = node_.attributes.find(name);
  return v ? std::span<const std::string>(std::get<std::vector<std::string>>(*v)) : std::span<const std::string>();
}

const Tensor* OpView::attr_tensor(std::string_view name) const {
  const AttrValue* v = node_.attributes.find(name);
  return v ? &std::get<Tensor>(*v) : nullptr;
}

int OpView::axis(std::string_view name, int rank) const { return axis(i(name), rank, name); }

int OpView::axis(std::int64_t value, int rank, std::string_view what) const {
  require(value >= -rank && value < rank, "{} is {}, expected a value in [{}, {}) for rank {}", what, value, -rank,
          rank, rank);
  return static_cast<int>(value < 0 ? value + rank : value);
}

Shape OpView::broadcast(const Shape& a, const Shape& b) const {
  const int rank = std::max(a.rank(), b.rank());
  Shape out = Shape::filled(rank, 1);
  for (int d = 0; d < rank; ++d) {
    const int da = d - (rank - a.rank());
    const int db = d - (rank - b.rank());
    const std::int64_t ea = da < 0 ? 1 : a[da];
    const std::int64_t eb = db < 0 ? 1 : b[db];
    if (ea != eb && ea != 1 && eb != 1) error("shapes {} and {} do not broadcast", a, b);
    out[d] = ea == 1 ? eb : ea;
  }
  return out;
}

Shape OpView::broadcast_all() const {
  Shape out;
  for (int k = 0; k < inputs(); ++k) {
    if (has(k)) out = broadcast(out, in(k).shape);
  }
  return out;
}

void OpView::require_same_dtype(int a, int b) const {
  if (has(a) && has(b)) {
    require(in(a).dtype == in(b).dtype, "inputs {} and {} must have one dtype, got {} and {}", a, b, in(a).dtype,
            in(b).dtype);
  }
}

void OpView::error_text(std::string text) const {
  throw Failure(Error{ErrorCode::invalid_model, fmt::format("{}: {}", describe(node_), text)});
}

}  // namespace lathe::ops
