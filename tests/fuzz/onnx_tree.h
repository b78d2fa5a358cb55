// OnnxField: an ONNX file as a tree of fields that know what they are, so that it can be cut and damaged on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::fuzz {

enum class Kind : std::uint8_t {
  model,
  graph,
  node,
  attribute,
  tensor,
  value_info,
  type,
  tensor_type,
  element_type,  ///< the type inside a sequence or an optional
  shape,
  dim,
  opset,
  function,
  entry,
  text,
  bytes,
  integer,
  real,
  other,
};

struct OnnxField {
  std::uint32_t number = 0;
  Kind kind = Kind::other;
  int wire = 2;                     ///< protobuf's wire type
  std::uint64_t scalar = 0;         ///< of a number; a float's bits
  std::string bytes{};              ///< of text, bytes and what is not known
  std::vector<OnnxField> fields{};  ///< of a message

  [[nodiscard]] bool is_message() const { return kind <= Kind::entry; }
  [[nodiscard]] const OnnxField* find(std::uint32_t wanted) const;
  [[nodiscard]] std::string_view text(std::uint32_t wanted) const;
  [[nodiscard]] std::int64_t integer(std::uint32_t wanted) const;
  /// The texts or integers of a repeated field.
  [[nodiscard]] std::vector<std::string> texts(std::uint32_t wanted) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::uint32_t wanted) const;

  OnnxField& add(OnnxField field);
  OnnxField& add_message(std::uint32_t at, Kind what);
  void add_text(std::uint32_t at, std::string_view value);
  void add_bytes(std::uint32_t at, std::string_view value);
  void add_integer(std::uint32_t at, std::int64_t value);
};

/// Numbers of the fields that are used by name.
namespace on {
constexpr std::uint32_t kModelGraph = 7;
constexpr std::uint32_t kGraphNode = 1, kGraphInitializer = 5, kGraphInput = 11, kGraphOutput = 12, kGraphValue = 13;
constexpr std::uint32_t kNodeInput = 1, kNodeOutput = 2, kNodeName = 3, kNodeOp = 4, kNodeAttribute = 5;
constexpr std::uint32_t kAttributeName = 1, kAttributeInt = 3, kAttributeTensor = 5, kAttributeGraph = 6,
                        kAttributeInts = 8, kAttributeType = 20;
constexpr std::uint32_t kTensorDims = 1, kTensorType = 2, kTensorFloats = 4, kTensorInt32s = 5, kTensorInt64s = 7,
                        kTensorName = 8, kTensorRaw = 9;
}  // namespace on

/// What field `number` of a message is.
Kind kind_of(Kind parent, std::uint32_t number);
/// Packed numbers become one field each.
OnnxField parse_onnx(const std::string& bytes);
/// Runs of numbers are packed again.
std::string write_onnx(const OnnxField& message);

}  // namespace lathe::fuzz
