// The messages of an ONNX file, decoded one level at a time; strings and nested messages stay views of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <lathe/info.h>

#include "frontends/source.h"

namespace lathe::frontends::onnx {

/// AttributeProto.AttributeType.
enum class AttributeType : std::uint8_t {
  undefined = 0,
  real = 1,
  integer = 2,
  string = 3,
  tensor = 4,
  graph = 5,
  reals = 6,
  integers = 7,
  strings = 8,
  tensors = 9,
  graphs = 10,
  sparse_tensor = 11,
  sparse_tensors = 12,
  type = 13,
  types = 14,
};

struct AttributeProto {
  std::string_view name;
  std::string_view ref_attr_name;
  AttributeType type = AttributeType::undefined;
  float f = 0;
  std::int64_t i = 0;
  std::string_view s;
  std::string_view message;  ///< the tensor, graph, sparse tensor or type
  std::vector<double> floats;
  std::vector<std::int64_t> ints;
  std::vector<std::string_view> strings;
  std::vector<std::string_view> messages;  ///< tensors or graphs
};

struct NodeProto {
  std::vector<std::string_view> inputs;
  std::vector<std::string_view> outputs;
  std::string_view name;
  std::string_view op_type;
  std::string_view domain;
  std::string_view overload;
  std::vector<std::string_view> attributes;  ///< AttributeProto messages
};

struct GraphProto {
  std::string_view name;
  std::vector<NodeProto> nodes;
  std::vector<std::string_view> initializers;         ///< TensorProto messages
  std::vector<std::string_view> sparse_initializers;  ///< SparseTensorProto messages
  std::vector<std::string_view> inputs;               ///< ValueInfoProto messages, as are the next two
  std::vector<std::string_view> outputs;
  std::vector<std::string_view> value_infos;
};

using Opsets = std::vector<std::pair<std::string_view, std::int64_t>>;

/// The version of a domain's operators; 0 where none is stated.
std::int64_t opset_of(const Opsets& opsets, std::string_view domain);

struct FunctionProto {
  std::string_view name;
  std::string_view domain;
  std::string_view overload;
  std::vector<std::string_view> inputs;
  std::vector<std::string_view> outputs;
  std::vector<std::string_view> attributes;        ///< names without a default
  std::vector<std::string_view> attribute_protos;  ///< AttributeProto messages: those with one
  std::vector<NodeProto> nodes;
  Opsets opsets;
};

struct ModelProto {
  std::int64_t ir_version = 0;
  Opsets opsets;
  std::optional<std::string_view> graph;
  std::vector<std::string_view> functions;
};

/// "" for "ai.onnx", the domain itself otherwise.
std::string_view normal_domain(std::string_view domain);

ModelProto parse_model(std::string_view message);
GraphProto parse_graph(std::string_view message, Budget& budget);
FunctionProto parse_function(std::string_view message);
AttributeProto parse_attribute(std::string_view message);
/// The name of a ValueInfoProto, as a view of it.
std::string_view value_name(std::string_view message);
ValueInfo parse_value_info(std::string_view message, const Budget& budget);
/// A TypeProto; the name stays empty.
ValueInfo parse_type(std::string_view message, const Budget& budget);

}  // namespace lathe::frontends::onnx
