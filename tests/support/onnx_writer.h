// Writes small ONNX messages for tests, one function per message; each returns its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <utility>
#include <vector>

#include <lathe/dtype.h>

namespace lathe::tests::onnx {

using Bytes = std::string;  ///< a serialized message
using Names = std::vector<std::string>;
using Ints = std::vector<std::int64_t>;

template <class Fill>
Bytes message(Fill&& fill) {
  Bytes bytes;
  protozero::pbf_writer w(bytes);
  fill(w);
  return bytes;
}

// ---- attributes ----

inline Bytes attribute(const std::string& name, int type, const std::function<void(protozero::pbf_writer&)>& fill) {
  return message([&](auto& w) {
    w.add_string(1, name);
    w.add_int32(20, type);
    fill(w);
  });
}
inline Bytes attr(const std::string& name, float v) {
  return attribute(name, 1, [&](auto& w) { w.add_float(2, v); });
}
inline Bytes attr(const std::string& name, int v) {
  return attribute(name, 2, [&](auto& w) { w.add_int64(3, v); });
}
inline Bytes attr(const std::string& name, const char* v) {
  return attribute(name, 3, [&](auto& w) { w.add_bytes(4, v); });
}
inline Bytes attr(const std::string& name, const Ints& v) {
  return attribute(name, 7, [&](auto& w) { w.add_packed_int64(8, v.begin(), v.end()); });
}
inline Bytes attr(const std::string& name, const std::vector<float>& v) {
  return attribute(name, 6, [&](auto& w) { w.add_packed_float(7, v.begin(), v.end()); });
}
inline Bytes attr(const std::string& name, const Names& v) {
  return attribute(name, 8, [&](auto& w) {
    for (const std::string& s : v) w.add_bytes(9, s);
  });
}
inline Bytes attr_tensor(const std::string& name, const Bytes& tensor) {
  return attribute(name, 4, [&](auto& w) { w.add_message(5, tensor); });
}
inline Bytes attr_graph(const std::string& name, const Bytes& graph) {
  return attribute(name, 5, [&](auto& w) { w.add_message(6, graph); });
}
/// The attribute `name` of the node takes the value that the function's attribute `ref` has.
inline Bytes attr_ref(const std::string& name, int type, const std::string& ref) {
  return attribute(name, type, [&](auto& w) { w.add_string(21, ref); });
}

// ---- tensors ----

inline Bytes tensor_raw(const std::string& name, DType dtype, const Ints& dims, const std::string& raw) {
  return message([&](auto& w) {
    w.add_packed_int64(1, dims.begin(), dims.end());
    w.add_int32(2, dtype);
    w.add_string(8, name);
    w.add_bytes(9, raw);
  });
}
inline Bytes tensor(const std::string& name, const Ints& dims, const std::vector<float>& values) {
  return tensor_raw(name, DType::f32, dims,
                    {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}
inline Bytes tensor(const std::string& name, const Ints& dims, const Ints& values) {
  return tensor_raw(name, DType::i64, dims,
                    {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)});
}
/// Values in the field that ONNX stores narrow types in, packed or one by one.
inline Bytes tensor_int32(const std::string& name, DType dtype, const Ints& dims,
                          const std::vector<std::int32_t>& values, bool packed = true) {
  return message([&](auto& w) {
    for (std::int64_t d : dims) w.add_int64(1, d);
    w.add_int32(2, dtype);
    if (packed) {
      w.add_packed_int32(5, values.begin(), values.end());
    } else {
      for (std::int32_t v : values) w.add_int32(5, v);
    }
    w.add_string(8, name);
  });
}

// ---- graphs ----

/// A dim is written as a symbol where `symbol` is not empty.
struct DimSpec {
  std::int64_t extent = -1;
  std::string symbol;
  DimSpec(int e) : extent(e) {}          // NOLINT(google-explicit-constructor)
  DimSpec(const char* s) : symbol(s) {}  // NOLINT(google-explicit-constructor)
};

inline Bytes value(const std::string& name, DType dtype, const std::vector<DimSpec>& dims) {
  const Bytes shape = message([&](auto& w) {
    for (const DimSpec& d : dims) {
      w.add_message(1, message([&](auto& dim) {
                      if (d.symbol.empty()) {
                        dim.add_int64(1, d.extent);
                      } else {
                        dim.add_string(2, d.symbol);
                      }
                    }));
    }
  });
  const Bytes tensor_type = message([&](auto& w) {
    w.add_int32(1, dtype);
    w.add_message(2, shape);
  });
  return message([&](auto& w) {
    w.add_string(1, name);
    w.add_message(2, message([&](auto& type) { type.add_message(1, tensor_type); }));
  });
}

/// A tensor of any shape.
inline Bytes value(const std::string& name, DType dtype) {
  return message([&](auto& w) {
    w.add_string(1, name);
    w.add_message(2, message([&](auto& type) {
                    type.add_message(1, message([&](auto& tensor_type) { tensor_type.add_int32(1, dtype); }));
                  }));
  });
}

/// What holds tensors of any shape, by its field in TypeProto.
inline Bytes holder(protozero::pbf_tag_type field, const std::string& name, DType dtype) {
  const auto wrap = [](protozero::pbf_tag_type outer, const Bytes& inner) {
    return message([&](auto& w) { w.add_message(outer, inner); });
  };
  const Bytes element = wrap(1, message([&](auto& w) { w.add_int32(1, dtype); }));
  return message([&](auto& w) {
    w.add_string(1, name);
    w.add_message(2, wrap(field, wrap(1, element)));
  });
}
inline Bytes sequence(const std::string& name, DType dtype) { return holder(4, name, dtype); }
inline Bytes optional(const std::string& name, DType dtype) { return holder(9, name, dtype); }

struct NodeSpec {
  std::string op;
  Names inputs;
  Names outputs;
  std::vector<Bytes> attributes = {};
  std::string name = {};
  std::string domain = {};
};

inline Bytes node(const NodeSpec& spec) {
  return message([&](auto& w) {
    for (const std::string& s : spec.inputs) w.add_string(1, s);
    for (const std::string& s : spec.outputs) w.add_string(2, s);
    if (!spec.name.empty()) w.add_string(3, spec.name);
    w.add_string(4, spec.op);
    for (const Bytes& a : spec.attributes) w.add_message(5, a);
    if (!spec.domain.empty()) w.add_string(7, spec.domain);
  });
}

struct GraphSpec {
  std::vector<NodeSpec> nodes;
  std::vector<Bytes> inputs = {};   ///< value()
  std::vector<Bytes> outputs = {};  ///< value()
  std::vector<Bytes> initializers = {};
  std::vector<Bytes> sparse_initializers = {};
  std::vector<Bytes> value_infos = {};
  std::string name = "g";
};

inline Bytes graph(const GraphSpec& spec) {
  return message([&](auto& w) {
    for (const NodeSpec& n : spec.nodes) w.add_message(1, node(n));
    w.add_string(2, spec.name);
    for (const Bytes& b : spec.initializers) w.add_message(5, b);
    for (const Bytes& b : spec.inputs) w.add_message(11, b);
    for (const Bytes& b : spec.outputs) w.add_message(12, b);
    for (const Bytes& b : spec.value_infos) w.add_message(13, b);
    for (const Bytes& b : spec.sparse_initializers) w.add_message(15, b);
  });
}

inline Bytes opset(const std::string& domain, int version) {
  return message([&](auto& w) {
    w.add_string(1, domain);
    w.add_int64(2, version);
  });
}

struct FunctionSpec {
  std::string domain;
  std::string name;
  Names inputs;
  Names outputs;
  std::vector<NodeSpec> nodes;
  Names attributes = {};
  std::vector<Bytes> attribute_protos = {};  ///< with defaults
  int opset = 21;
};

inline Bytes function(const FunctionSpec& spec) {
  return message([&](auto& w) {
    w.add_string(1, spec.name);
    for (const std::string& s : spec.inputs) w.add_string(4, s);
    for (const std::string& s : spec.outputs) w.add_string(5, s);
    for (const std::string& s : spec.attributes) w.add_string(6, s);
    for (const NodeSpec& n : spec.nodes) w.add_message(7, node(n));
    w.add_message(9, onnx::opset("", spec.opset));
    w.add_message(9, onnx::opset(spec.domain, 1));
    w.add_string(10, spec.domain);
    for (const Bytes& a : spec.attribute_protos) w.add_message(11, a);
  });
}

struct ModelSpec {
  GraphSpec graph;
  int opset = 21;
  int ir = 10;
  std::vector<Bytes> functions = {};
  std::vector<Bytes> opsets = {};  ///< of further domains
};

inline Bytes model(const ModelSpec& spec) {
  return message([&](auto& w) {
    w.add_int64(1, spec.ir);
    w.add_message(7, graph(spec.graph));
    w.add_message(8, opset("", spec.opset));
    for (const Bytes& b : spec.opsets) w.add_message(8, b);
    for (const Bytes& b : spec.functions) w.add_message(25, b);
  });
}

}  // namespace lathe::tests::onnx
