// Decodes the structural messages of ONNX. Field numbers are those of onnx.proto.
#include "frontends/onnx/proto.h"

#include <algorithm>

#include "frontends/onnx/wire.h"
#include "ops/ir/failure.h"

namespace lathe::frontends::onnx {
namespace {

std::pair<std::string_view, std::int64_t> parse_opset(std::string_view bytes) {
  std::pair<std::string_view, std::int64_t> opset;
  Message m(bytes, "OperatorSetIdProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        opset.first = normal_domain(m.bytes());
        break;
      case 2:
        opset.second = m.integer();
        break;
      default:
        m.skip();
    }
  }
  return opset;
}

/// Looked up for every node: so there must be few.
void add_opset(Opsets& opsets, std::string_view bytes) {
  constexpr std::size_t kMost = 256;
  if (opsets.size() == kMost) fail(ErrorCode::limit_exceeded, "more than {} opsets are imported", kMost);
  opsets.push_back(parse_opset(bytes));
}

NodeProto parse_node(std::string_view bytes) {
  NodeProto node;
  Message m(bytes, "NodeProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        node.inputs.push_back(m.bytes());
        break;
      case 2:
        node.outputs.push_back(m.bytes());
        break;
      case 3:
        node.name = m.bytes();
        break;
      case 4:
        node.op_type = m.bytes();
        break;
      case 5:
        node.attributes.push_back(m.bytes());
        break;
      case 7:
        node.domain = normal_domain(m.bytes());
        break;
      case 8:
        node.overload = m.bytes();
        break;
      default:
        m.skip();
    }
  }
  return node;
}

DType parse_dtype(std::int64_t code) {
  if (code < 0 || code >= DType::kCount) fail(ErrorCode::unsupported, "data type {} is not known here", code);
  return static_cast<DType::Code>(code);
}

std::vector<Dim> parse_shape(std::string_view bytes) {
  std::vector<Dim> dims;
  Message m(bytes, "TensorShapeProto");
  while (m.next()) {
    if (m.field() != 1) {
      m.skip();
      continue;
    }
    Dim dim;
    Message d(m.bytes(), "TensorShapeProto.Dimension");
    while (d.next()) {
      switch (d.field()) {
        case 1:
          dim.extent = d.integer();
          break;
        case 2:
          dim.symbol = d.bytes();
          break;
        default:
          d.skip();
      }
    }
    if (dim.extent < 0) dim.extent = -1;  // exporters write -1 for an open dim
    dims.push_back(std::move(dim));
    if (dims.size() > Shape::kMaxRank) {
      fail(ErrorCode::unsupported, "a declared shape has more than {} dims", Shape::kMaxRank);
    }
  }
  return dims;
}

void parse_tensor_type(std::string_view bytes, ValueInfo& info) {
  Message m(bytes, "TypeProto.Tensor");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        info.dtype = parse_dtype(m.integer());
        break;
      case 2:
        info.dims = parse_shape(m.bytes());
        break;
      default:
        m.skip();
    }
  }
}

void parse_type_into(std::string_view bytes, ValueInfo& info, const Budget& budget, int depth);

/// The element of a sequence or optional, the value of a map.
void parse_element(std::string_view bytes, int field, ValueInfo& info, const Budget& budget, int depth) {
  Message m(bytes, "TypeProto");
  while (m.next()) {
    if (m.field() == field) {
      parse_type_into(m.bytes(), info, budget, depth + 1);
    } else {
      m.skip();
    }
  }
}

void parse_type_into(std::string_view bytes, ValueInfo& info, const Budget& budget, int depth) {
  budget.check_nesting(depth, "a type");
  Message m(bytes, "TypeProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
      case 8:  // a sparse tensor is a tensor here
        info.kind = ValueInfo::Kind::tensor;
        parse_tensor_type(m.bytes(), info);
        break;
      case 4:
        parse_element(m.bytes(), 1, info, budget, depth);
        info.kind = ValueInfo::Kind::sequence;
        break;
      case 5:
        parse_element(m.bytes(), 2, info, budget, depth);
        info.kind = ValueInfo::Kind::map;
        break;
      case 9:
        parse_element(m.bytes(), 1, info, budget, depth);
        info.kind =
            info.kind == ValueInfo::Kind::sequence ? ValueInfo::Kind::optional_sequence : ValueInfo::Kind::optional;
        break;
      default:
        m.skip();
    }
  }
}

}  // namespace

std::string_view normal_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

std::int64_t opset_of(const Opsets& opsets, std::string_view domain) {
  std::int64_t version = 0;
  for (const auto& [d, v] : opsets) {
    if (d == domain) version = std::max(version, v);
  }
  return version;
}

ValueInfo parse_type(std::string_view message, const Budget& budget) {
  ValueInfo info;
  parse_type_into(message, info, budget, 0);
  return info;
}

std::string_view value_name(std::string_view message) {
  std::string_view name;
  Message m(message, "ValueInfoProto");
  while (m.next()) {
    if (m.field() == 1) {
      name = m.bytes();
    } else {
      m.skip();
    }
  }
  return name;
}

ValueInfo parse_value_info(std::string_view message, const Budget& budget) {
  ValueInfo info;
  std::string_view name;
  std::string_view type;
  Message m(message, "ValueInfoProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        name = m.bytes();
        break;
      case 2:
        type = m.bytes();
        break;
      default:
        m.skip();
    }
  }
  try {
    info = parse_type(type, budget);
  } catch (const Failure& failure) {
    fail(failure.error.code, "value '{}': {}", shown(name), failure.error.message);
  }
  info.name = name;
  return info;
}

AttributeProto parse_attribute(std::string_view message) {
  AttributeProto a;
  AttributeType found = AttributeType::undefined;  // by the field that is there: files before IR 2 state no type
  const auto holds = [&](AttributeType type) { found = type; };
  Message m(message, "AttributeProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        a.name = m.bytes();
        break;
      case 2:
        a.f = m.real(), holds(AttributeType::real);
        break;
      case 3:
        a.i = m.integer(), holds(AttributeType::integer);
        break;
      case 4:
        a.s = m.bytes(), holds(AttributeType::string);
        break;
      case 5:
        a.message = m.bytes(), holds(AttributeType::tensor);
        break;
      case 6:
        a.message = m.bytes(), holds(AttributeType::graph);
        break;
      case 7:
        m.reals(a.floats), holds(AttributeType::reals);
        break;
      case 8:
        m.integers(a.ints), holds(AttributeType::integers);
        break;
      case 9:
        a.strings.push_back(m.bytes()), holds(AttributeType::strings);
        break;
      case 10:
        a.messages.push_back(m.bytes()), holds(AttributeType::tensors);
        break;
      case 11:
        a.messages.push_back(m.bytes()), holds(AttributeType::graphs);
        break;
      case 14:
        a.message = m.bytes(), holds(AttributeType::type);
        break;
      case 20: {
        const std::int64_t type = m.integer();
        if (type < 0 || type > static_cast<std::int64_t>(AttributeType::types)) m.damaged("names no attribute type");
        a.type = static_cast<AttributeType>(type);
        break;
      }
      case 21:
        a.ref_attr_name = m.bytes();
        break;
      case 22:
        a.message = m.bytes(), holds(AttributeType::sparse_tensor);
        break;
      default:
        m.skip();
    }
  }
  if (a.type == AttributeType::undefined) a.type = found;
  const bool is_message = a.type == AttributeType::tensor || a.type == AttributeType::graph ||
                          a.type == AttributeType::sparse_tensor || a.type == AttributeType::type;
  if (is_message && found != a.type && a.ref_attr_name.empty()) {
    fail(ErrorCode::invalid_model, "attribute '{}' holds another type than it states", shown(a.name));
  }
  return a;
}

GraphProto parse_graph(std::string_view message, Budget& budget) {
  GraphProto graph;
  Message m(message, "GraphProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        budget.take_node();
        graph.nodes.push_back(parse_node(m.bytes()));
        break;
      case 2:
        graph.name = m.bytes();
        break;
      case 5:
        graph.initializers.push_back(m.bytes());
        break;
      case 11:
        graph.inputs.push_back(m.bytes());
        break;
      case 12:
        graph.outputs.push_back(m.bytes());
        break;
      case 13:
        graph.value_infos.push_back(m.bytes());
        break;
      case 15:
        graph.sparse_initializers.push_back(m.bytes());
        break;
      default:
        m.skip();
    }
  }
  return graph;
}

FunctionProto parse_function(std::string_view message) {
  FunctionProto f;
  Message m(message, "FunctionProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        f.name = m.bytes();
        break;
      case 4:
        f.inputs.push_back(m.bytes());
        break;
      case 5:
        f.outputs.push_back(m.bytes());
        break;
      case 6:
        f.attributes.push_back(m.bytes());
        break;
      case 7:
        f.nodes.push_back(parse_node(m.bytes()));
        break;
      case 9:
        add_opset(f.opsets, m.bytes());
        break;
      case 10:
        f.domain = normal_domain(m.bytes());
        break;
      case 11:
        f.attribute_protos.push_back(m.bytes());
        break;
      case 13:
        f.overload = m.bytes();
        break;
      default:
        m.skip();
    }
  }
  return f;
}

ModelProto parse_model(std::string_view message) {
  ModelProto model;
  Message m(message, "ModelProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        model.ir_version = m.integer();
        break;
      case 7:
        model.graph = m.bytes();
        break;
      case 8:
        add_opset(model.opsets, m.bytes());
        break;
      case 25:
        model.functions.push_back(m.bytes());
        break;
      default:
        m.skip();
    }
  }
  return model;
}

}  // namespace lathe::frontends::onnx
