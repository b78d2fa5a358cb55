// What is done to bytes, and to fields.
#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>

namespace lathe::fuzz {
namespace {

constexpr std::int64_t kNumbers[] = {0,         1,         2,         3,         4,         7,           16,
                                     64,        1000,      -1,        -2,        -3,        INT32_MAX,   INT32_MIN,
                                     INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 32, 1LL << 40, (1LL << 62), 100'000'000};
constexpr float kReals[] = {0.0F, -0.0F, 1.0F, -1.0F, 1e30F, -1e30F, 1e-40F, 0.5F};
constexpr const char* kAttributes[] = {"axis",
                                       "axes",
                                       "keepdims",
                                       "perm",
                                       "to",
                                       "pads",
                                       "strides",
                                       "dilations",
                                       "group",
                                       "kernel_shape",
                                       "mode",
                                       "ceil_mode",
                                       "auto_pad",
                                       "largest",
                                       "sorted",
                                       "k",
                                       "epsilon",
                                       "alpha",
                                       "beta",
                                       "transA",
                                       "transB",
                                       "direction",
                                       "hidden_size",
                                       "block_size",
                                       "num_heads",
                                       "allowzero",
                                       "batch_dims",
                                       "equation",
                                       "exclusive",
                                       "reverse",
                                       "noop_with_empty_axes",
                                       "storage_order",
                                       "count_include_pad",
                                       "output_padding",
                                       "output_shape",
                                       "start",
                                       "end",
                                       "num_outputs",
                                       "split"};
constexpr const char* kTexts[] = {"SAME_UPPER", "VALID", "NOTSET",     "constant",      "reflect", "edge",      "wrap",
                                  "linear",     "cubic", "nearest",    "bidirectional", "reverse", "ij,jk->ik", "i->",
                                  "...",        "add",   "asymmetric", "half_pixel",    "floor",   "float",     ""};

/// Every field of a tree, with what it stands in.
struct Place {
  OnnxField* parent;
  std::size_t index;
  [[nodiscard]] OnnxField& field() const { return parent->fields[index]; }
};

void collect(OnnxField& message, std::vector<Place>& places) {
  for (std::size_t i = 0; i < message.fields.size(); ++i) {
    places.push_back({&message, i});
    collect(message.fields[i], places);
  }
}

template <class Wanted>
std::vector<Place> places_where(OnnxField& model, Wanted&& wanted) {
  std::vector<Place> all;
  collect(model, all);
  std::erase_if(all, [&](const Place& place) { return !wanted(place); });
  return all;
}

std::vector<Place> of_kind(OnnxField& model, Kind kind) {
  return places_where(model, [&](const Place& place) { return place.field().kind == kind; });
}

class FieldMutator {
 public:
  FieldMutator(OnnxField& model, const std::string& other, const std::vector<std::string>& operators, Random& random)
      : model_(model), other_(other), operators_(operators), random_(random) {}

  void mutate() {
    using Change = void (FieldMutator::*)();
    constexpr Change kChanges[] = {&FieldMutator::drop,
                                   &FieldMutator::duplicate,
                                   &FieldMutator::swap,
                                   &FieldMutator::number,
                                   &FieldMutator::integer,
                                   &FieldMutator::integer,
                                   &FieldMutator::real,
                                   &FieldMutator::text,
                                   &FieldMutator::op_type,
                                   &FieldMutator::op_type,
                                   &FieldMutator::rewire,
                                   &FieldMutator::rewire,
                                   &FieldMutator::input_shape,
                                   &FieldMutator::input_shape,
                                   &FieldMutator::input_dtype,
                                   &FieldMutator::attribute,
                                   &FieldMutator::attribute,
                                   &FieldMutator::attribute_value,
                                   &FieldMutator::attribute_value,
                                   &FieldMutator::tensor,
                                   &FieldMutator::tensor,
                                   &FieldMutator::nest,
                                   &FieldMutator::insert_node,
                                   &FieldMutator::graft,
                                   &FieldMutator::raw_data};
    (this->*kChanges[random_.below(std::size(kChanges))])();
  }

 private:
  template <class T, std::size_t N>
  const T& pick(const T (&values)[N]) {
    return values[random_.below(N)];
  }
  Place* any(std::vector<Place>& places) { return places.empty() ? nullptr : &places[random_.below(places.size())]; }
  std::int64_t some_number(std::int64_t near) {
    if (random_.one_in(3)) return static_cast<std::int64_t>(static_cast<std::uint64_t>(near) + random_.below(5) - 2);
    // Small numbers often: they are what gets past the first check.
    return random_.one_in(2) ? static_cast<std::int64_t>(random_.below(6)) - 1 : pick(kNumbers);
  }

  void drop() {
    std::vector<Place> places;
    collect(model_, places);
    if (Place* p = any(places))
      p->parent->fields.erase(p->parent->fields.begin() + static_cast<std::ptrdiff_t>(p->index));
  }
  void duplicate() {
    std::vector<Place> places;
    collect(model_, places);
    if (Place* p = any(places)) p->parent->fields.push_back(OnnxField(p->field()));
  }
  void swap() {
    std::vector<Place> places;
    collect(model_, places);
    if (Place* p = any(places)) std::swap(p->field(), p->parent->fields[random_.below(p->parent->fields.size())]);
  }
  void number() {
    std::vector<Place> places;
    collect(model_, places);
    if (Place* p = any(places)) p->field().number = static_cast<std::uint32_t>(1 + random_.below(25));
  }
  void integer() {
    std::vector<Place> places = of_kind(model_, Kind::integer);
    if (Place* p = any(places)) {
      OnnxField& f = p->field();
      f.scalar = static_cast<std::uint64_t>(some_number(static_cast<std::int64_t>(f.scalar)));
    }
  }
  void real() {
    std::vector<Place> places = of_kind(model_, Kind::real);
    if (Place* p = any(places)) p->field().scalar = std::bit_cast<std::uint32_t>(pick(kReals));
  }
  void text() {
    std::vector<Place> places = of_kind(model_, Kind::text);
    Place* p = any(places);
    if (!p) return;
    const Place* from = any(places);
    p->field().bytes = random_.one_in(4) ? std::string(pick(kTexts)) : from->field().bytes;
  }
  void op_type() {
    std::vector<Place> places = places_where(
        model_, [](const Place& p) { return p.parent->kind == Kind::node && p.field().number == on::kNodeOp; });
    if (Place* p = any(places)) p->field().bytes = operators_[random_.below(operators_.size())];
  }

  std::string any_value() {
    std::vector<Place> places = places_where(model_, [](const Place& p) {
      const OnnxField& f = p.field();
      return f.kind == Kind::text && ((p.parent->kind == Kind::node && f.number <= on::kNodeOutput) ||
                                      (p.parent->kind == Kind::tensor && f.number == on::kTensorName) ||
                                      (p.parent->kind == Kind::value_info && f.number == 1));
    });
    const Place* p = any(places);
    return p ? p->field().bytes : std::string();
  }
  void rewire() {
    std::vector<Place> places = places_where(
        model_, [](const Place& p) { return p.parent->kind == Kind::node && p.field().number == on::kNodeInput; });
    Place* p = any(places);
    if (!p) return;
    const std::string name = random_.one_in(8) ? std::string() : any_value();
    if (random_.one_in(4)) {
      p->parent->add_text(on::kNodeInput, name);
    } else {
      p->field().bytes = name;
    }
  }
  void input_shape() {
    std::vector<Place> places = of_kind(model_, Kind::shape);
    Place* p = any(places);
    if (!p) return;
    OnnxField& shape = p->field();
    const std::size_t what = random_.below(6);
    if (what == 0 || shape.fields.empty()) {
      shape.add_message(1, Kind::dim).add_integer(1, static_cast<std::int64_t>(random_.below(4)));
    } else if (what == 1) {
      shape.fields.erase(shape.fields.begin() + static_cast<std::ptrdiff_t>(random_.below(shape.fields.size())));
    } else {
      OnnxField& dim = shape.fields[random_.below(shape.fields.size())];
      dim.fields.clear();
      dim.kind = Kind::dim;
      if (what == 2) {
        dim.add_text(2, "m");
      } else {
        dim.add_integer(1, what == 3 ? some_number(1) : static_cast<std::int64_t>(random_.below(5)));
      }
    }
  }
  void input_dtype() {
    std::vector<Place> places = places_where(model_, [](const Place& p) {
      return p.field().kind == Kind::integer && p.parent->kind == Kind::tensor_type && p.field().number == 1;
    });
    if (Place* p = any(places)) p->field().scalar = random_.below(28);
  }

  void fill_attribute(OnnxField& attribute) {
    switch (random_.below(5)) {
      case 0:
      case 1:
        attribute.add_integer(on::kAttributeInt, some_number(0));
        attribute.add_integer(on::kAttributeType, 2);
        break;
      case 2:
        attribute.add_bytes(4, pick(kTexts));
        attribute.add_integer(on::kAttributeType, 3);
        break;
      case 3: {
        OnnxField value;
        value.number = 2;
        value.kind = Kind::real;
        value.wire = 5;
        value.scalar = std::bit_cast<std::uint32_t>(pick(kReals));
        attribute.add(value);
        attribute.add_integer(on::kAttributeType, 1);
        break;
      }
      default:
        for (std::size_t i = 0, n = random_.below(7); i < n; ++i) {
          attribute.add_integer(on::kAttributeInts,
                                random_.one_in(4) ? some_number(1) : static_cast<int>(random_.below(4)));
        }
        attribute.add_integer(on::kAttributeType, 7);
    }
  }
  void attribute() {
    std::vector<Place> places = of_kind(model_, Kind::node);
    Place* p = any(places);
    if (!p) return;
    OnnxField& added = p->field().add_message(on::kNodeAttribute, Kind::attribute);
    added.add_text(on::kAttributeName, pick(kAttributes));
    fill_attribute(added);
  }
  void attribute_value() {
    std::vector<Place> places = places_where(model_, [](const Place& p) {
      return p.parent->kind == Kind::attribute && p.field().kind == Kind::integer &&
             p.field().number != on::kAttributeType;
    });
    Place* p = any(places);
    if (!p) return;
    OnnxField& value = p->field();
    if (value.number == on::kAttributeInts && random_.one_in(3)) {
      p->parent->fields.push_back(OnnxField(value));
    } else {
      value.scalar = static_cast<std::uint64_t>(some_number(static_cast<std::int64_t>(value.scalar)));
    }
  }

  /// Another dtype or other dims, with as much data as they need.
  void tensor() {
    std::vector<Place> places = of_kind(model_, Kind::tensor);
    Place* p = any(places);
    if (!p) return;
    OnnxField& t = p->field();
    std::vector<std::int64_t> dims = t.integers(on::kTensorDims);
    std::int64_t dtype = t.integer(on::kTensorType);
    if (random_.one_in(4)) dtype = static_cast<std::int64_t>(1 + random_.below(26));
    if (dims.empty() || random_.one_in(4)) {
      dims.push_back(static_cast<std::int64_t>(random_.below(4)));
    } else if (random_.one_in(4)) {
      dims.pop_back();
    } else {
      dims[random_.below(dims.size())] = static_cast<std::int64_t>(random_.below(6));
    }
    std::int64_t elements = 1;
    for (const std::int64_t d : dims) elements *= d;
    if (elements < 0 || elements > 4096) return;
    const std::string name(t.text(on::kTensorName));
    t.fields.clear();
    for (const std::int64_t d : dims) t.add_integer(on::kTensorDims, d);
    t.add_integer(on::kTensorType, dtype);
    t.add_text(on::kTensorName, name);
    const bool wide = dtype == 7 || dtype == 11 || dtype == 13 || dtype == 14;
    std::string raw(static_cast<std::size_t>(elements) * (wide ? 8 : 4), '\0');
    for (std::size_t i = 0; i < raw.size(); i += wide ? 8 : 4) raw[i] = static_cast<char>(random_.below(5));
    if (dtype == 2 || dtype == 3 || dtype == 9) raw.resize(static_cast<std::size_t>(elements));
    t.add_bytes(on::kTensorRaw, raw);
  }
  void raw_data() {
    std::vector<Place> places = places_where(model_, [](const Place& p) {
      return p.parent->kind == Kind::tensor && !p.field().bytes.empty() && p.field().number == on::kTensorRaw;
    });
    Place* p = any(places);
    if (!p) return;
    std::string& raw = p->field().bytes;
    if (raw.size() >= 8 && random_.one_in(2)) {
      const std::int64_t v = some_number(1);
      const std::size_t at = random_.below(raw.size() / 8) * 8;
      for (std::size_t i = 0; i < 8; ++i) raw[at + i] = static_cast<char>(static_cast<std::uint64_t>(v) >> (8 * i));
    } else {
      raw[random_.below(raw.size())] = static_cast<char>(random_.below(256));
    }
  }

  /// A node moves into the branches of an If, or the graph becomes an attribute of one of its nodes.
  void nest() {
    std::vector<Place> places = places_where(
        model_, [](const Place& p) { return p.field().kind == Kind::node && p.parent->kind == Kind::graph; });
    Place* p = any(places);
    if (!p) return;
    OnnxField node = p->field();
    if (random_.one_in(4)) {
      OnnxField body = *p->parent;
      body.number = on::kAttributeGraph;
      OnnxField& attribute = p->field().add_message(on::kNodeAttribute, Kind::attribute);
      attribute.add_text(on::kAttributeName, random_.one_in(2) ? "body" : "then_branch");
      attribute.add(std::move(body));
      attribute.add_integer(on::kAttributeType, 5);
      return;
    }
    const bool loop = random_.one_in(2);
    const std::vector<std::string> outputs = node.texts(on::kNodeOutput);
    OnnxField body;
    body.number = on::kAttributeGraph;
    body.kind = Kind::graph;
    node.number = on::kGraphNode;
    std::erase_if(node.fields, [](const OnnxField& f) { return f.number == on::kNodeOutput; });
    std::vector<std::string> inner;
    for (const std::string& name : outputs) {
      inner.push_back(name + ".in");
      node.add_text(on::kNodeOutput, inner.back());
    }
    body.add(node);
    body.add_text(2, "body");
    if (loop) {
      body.add_message(on::kGraphInput, Kind::value_info).add_text(1, "i");
      body.add_message(on::kGraphInput, Kind::value_info).add_text(1, "go");
      body.add_message(on::kGraphOutput, Kind::value_info).add_text(1, "go");
    }
    for (const std::string& name : inner) body.add_message(on::kGraphOutput, Kind::value_info).add_text(1, name);
    OnnxField outer;
    outer.number = on::kGraphNode;
    outer.kind = Kind::node;
    add_constant(*p->parent, "fuzz.go", 9, std::string(1, static_cast<char>(random_.below(2))));
    if (loop) {
      std::string trips(8, '\0');
      trips[0] = static_cast<char>(random_.below(4));
      if (random_.one_in(6)) trips[7] = 0x3f;  // about 2^62 iterations
      add_constant(*p->parent, "fuzz.trips", 7, trips);
      outer.add_text(on::kNodeInput, "fuzz.trips");
    }
    outer.add_text(on::kNodeInput, "fuzz.go");
    for (const std::string& name : outputs) outer.add_text(on::kNodeOutput, name);
    outer.add_text(on::kNodeOp, loop ? "Loop" : "If");
    for (const char* name : {"then_branch", "else_branch"}) {
      OnnxField& attribute = outer.add_message(on::kNodeAttribute, Kind::attribute);
      attribute.add_text(on::kAttributeName, loop ? "body" : name);
      attribute.add(body);
      attribute.add_integer(on::kAttributeType, 5);
      if (loop) break;
    }
    p->field() = std::move(outer);
  }
  static void add_constant(OnnxField& graph, const std::string& name, int dtype, const std::string& raw) {
    OnnxField& t = graph.add_message(on::kGraphInitializer, Kind::tensor);
    t.add_integer(on::kTensorType, dtype);
    t.add_text(on::kTensorName, name);
    t.add_bytes(on::kTensorRaw, raw);
  }

  /// A new node between a value and one of its consumers.
  void insert_node() {
    std::vector<Place> places = places_where(
        model_, [](const Place& p) { return p.field().kind == Kind::node && p.parent->kind == Kind::graph; });
    Place* p = any(places);
    if (!p) return;
    const std::string fresh = "fuzz." + std::to_string(random_.below(1000));
    OnnxField node;
    node.number = on::kGraphNode;
    node.kind = Kind::node;
    OnnxField* graph = p->parent;
    OnnxField& consumer = p->field();
    std::vector<OnnxField*> inputs;
    for (OnnxField& f : consumer.fields) {
      if (f.number == on::kNodeInput) inputs.push_back(&f);
    }
    if (inputs.empty()) return;
    OnnxField* input = inputs[random_.below(inputs.size())];
    node.add_text(on::kNodeInput, input->bytes);
    for (std::size_t i = 0, n = random_.below(3); i < n; ++i)
      node.add_text(on::kNodeInput, random_.one_in(2) ? input->bytes : any_value());
    node.add_text(on::kNodeOutput, fresh);
    node.add_text(on::kNodeOp, operators_[random_.below(operators_.size())]);
    input->bytes = fresh;
    graph->fields.insert(graph->fields.begin(), std::move(node));
  }

  /// A field of another model in place of one of the same kind.
  void graft() {
    std::vector<Place> places;
    collect(model_, places);
    Place* p = any(places);
    if (!p) return;
    OnnxField other = parse_onnx(other_);
    std::vector<Place> same = of_kind(other, p->field().kind);
    if (const Place* from = any(same)) {
      const std::uint32_t at = p->field().number;
      p->field() = OnnxField(from->field());
      p->field().number = at;
    }
  }

  OnnxField& model_;
  const std::string& other_;
  const std::vector<std::string>& operators_;
  Random& random_;
};

}  // namespace

std::string mutate_bytes(std::string model, const std::string& other, Random& random) {
  for (std::size_t i = 0, n = 1 + random.below(3); i < n && !model.empty(); ++i) {
    const std::size_t at = random.below(model.size());
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        model[at] = static_cast<char>(model[at] ^ (1 << random.below(8)));
        break;
      case 3:
      case 4:
        model[at] = static_cast<char>(random.below(256));
        break;
      case 5:
        if (random.one_in(3)) model.resize(at);
        break;
      case 6:
        model.insert(at, 1 + random.below(4), static_cast<char>(random.below(256)));
        break;
      default: {
        const std::size_t from = random.below(other.size());
        const std::size_t size = std::min(other.size() - from, 1 + random.below(32));
        model.replace(at, std::min(size, model.size() - at), other, from, size);
      }
    }
  }
  return model;
}

std::string mutate_fields(const std::string& model, const std::string& other, const std::vector<std::string>& operators,
                          Random& random) {
  OnnxField tree = parse_onnx(model);
  FieldMutator mutator(tree, other, operators, random);
  for (std::size_t i = 0, n = 1 + random.below(3); i < n; ++i) mutator.mutate();
  return write_onnx(tree);
}

}  // namespace lathe::fuzz
