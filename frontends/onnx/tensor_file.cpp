// Reads values from the messages of onnx-data.proto, and writes tensors.
#include "frontends/onnx/tensor_file.h"

#include <protozero/pbf_writer.hpp>

#include "frontends/onnx/tensor.h"
#include "frontends/onnx/wire.h"
#include "ops/ir/failure.h"

namespace lathe::frontends::onnx {
namespace {

/// SequenceProto.DataType and OptionalProto.DataType.
enum class ElementKind : std::uint8_t {
  undefined = 0,
  tensor = 1,
  sparse_tensor = 2,
  sequence = 3,
  map = 4,
  optional = 5
};

class ValueReader {
 public:
  explicit ValueReader(const LoadLimits& limits) : budget_(limits) {}

  NamedValue read(std::string_view message, ElementKind kind, int depth = 0) {
    budget_.check_nesting(depth, "a value");
    switch (kind) {
      case ElementKind::tensor:
        return named(read_tensor(message, nullptr, budget_));
      case ElementKind::sparse_tensor:
        return named(read_sparse_tensor(message, nullptr, budget_));
      case ElementKind::sequence:
        return read_sequence(message, depth);
      case ElementKind::map:
        return read_map(message, depth);
      case ElementKind::optional:
        return read_optional(message, depth);
      case ElementKind::undefined:
        break;
    }
    fail(ErrorCode::invalid_model, "a value of unknown kind");
  }

 private:
  static NamedValue named(NamedTensor t) { return {std::string(t.name), Value(std::move(t.tensor))}; }

  NamedValue read_sequence(std::string_view message, int depth) {
    Sequence sequence;
    NamedValue result = read_elements(message, "SequenceProto", [&](ElementKind kind, std::string_view element) {
      budget_.take_bytes(sizeof(Value), "a sequence");
      sequence.push_back(read(element, kind, depth + 1).value);
    });
    result.value = std::move(sequence);
    return result;
  }

  NamedValue read_optional(std::string_view message, int depth) {
    Optional optional;
    NamedValue result = read_elements(message, "OptionalProto", [&](ElementKind kind, std::string_view element) {
      optional.value = std::make_shared<Value>(read(element, kind, depth + 1).value);
    });
    result.value = std::move(optional);
    return result;
  }

  /// SequenceProto and OptionalProto: the name is field 1, and each kind of element has the same field in both.
  template <class Take>
  NamedValue read_elements(std::string_view message, const char* type, Take&& take) {
    NamedValue result;
    Message m(message, type);
    while (m.next()) {
      ElementKind kind = ElementKind::undefined;
      switch (m.field()) {
        case 1:
          result.name = m.bytes();
          continue;
        case 3:
          kind = ElementKind::tensor;
          break;
        case 4:
          kind = ElementKind::sparse_tensor;
          break;
        case 5:
          kind = ElementKind::sequence;
          break;
        case 6:
          kind = ElementKind::map;
          break;
        case 7:
          kind = ElementKind::optional;
          break;
        default:
          m.skip();
          continue;
      }
      take(kind, m.bytes());
    }
    return result;
  }

  NamedValue read_map(std::string_view message, int depth) {
    NamedValue result;
    std::vector<std::int64_t> integers;
    std::vector<std::string_view> strings;
    NamedValue values;
    values.value = Sequence();
    Message m(message, "MapProto");
    while (m.next()) {
      switch (m.field()) {
        case 1:
          result.name = m.bytes();
          break;
        case 3:
          m.integers(integers);
          break;
        case 4:
          strings.push_back(m.bytes());
          break;
        case 5:
          values = read(m.bytes(), ElementKind::sequence, depth + 1);
          break;
        default:
          m.skip();
      }
    }
    const Sequence& elements = values.value.sequence();
    const std::size_t keys = strings.empty() ? integers.size() : strings.size();
    if (keys != elements.size() || (!strings.empty() && !integers.empty())) {
      fail(ErrorCode::invalid_model, "a map has {} keys and {} values", keys, elements.size());
    }
    Map map;
    for (std::size_t i = 0; i < keys; ++i) {
      if (strings.empty()) {
        map.emplace(integers[i], elements[i]);
      } else {
        map.emplace(std::string(strings[i]), elements[i]);
      }
    }
    result.value = std::move(map);
    return result;
  }

  Budget budget_;
};

ElementKind element_kind(ValueInfo::Kind kind) {
  switch (kind) {
    case ValueInfo::Kind::tensor:
      return ElementKind::tensor;
    case ValueInfo::Kind::sequence:
      return ElementKind::sequence;
    case ValueInfo::Kind::map:
      return ElementKind::map;
    case ValueInfo::Kind::optional:
    case ValueInfo::Kind::optional_sequence:
      return ElementKind::optional;
  }
  return ElementKind::undefined;
}

}  // namespace

NamedValue read_value_proto(std::span<const std::byte> bytes, ValueInfo::Kind kind) {
  return ValueReader(LoadLimits())
      .read({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, element_kind(kind));
}

std::vector<std::byte> write_tensor_proto(const Tensor& tensor, const std::string& name) {
  std::string out;
  protozero::pbf_writer w(out);
  w.add_packed_int64(1, tensor.shape().begin(), tensor.shape().end());
  w.add_int32(2, tensor.dtype());
  if (tensor.dtype() == DType::string) {
    for (const std::string& s : tensor.view<std::string>()) w.add_bytes(6, s);
  }
  w.add_string(8, name);
  if (tensor.dtype() != DType::string) w.add_bytes(9, static_cast<const char*>(tensor.data()), tensor.bytes());
  const auto* begin = reinterpret_cast<const std::byte*>(out.data());
  return {begin, begin + out.size()};
}

}  // namespace lathe::frontends::onnx
