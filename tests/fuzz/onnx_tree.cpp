// The schema of ONNX as far as it matters here, reading and writing of its messages.
#include "tests/fuzz/onnx_tree.h"

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

namespace lathe::fuzz {
namespace {

struct Rule {
  Kind parent;
  std::uint32_t number;
  Kind child;
};

// clang-format off
constexpr Rule kSchema[] = {
    {Kind::model, 1, Kind::integer}, {Kind::model, 2, Kind::text}, {Kind::model, 3, Kind::text},
    {Kind::model, 4, Kind::text}, {Kind::model, 5, Kind::integer}, {Kind::model, 6, Kind::text},
    {Kind::model, 7, Kind::graph}, {Kind::model, 8, Kind::opset}, {Kind::model, 14, Kind::entry},
    {Kind::model, 25, Kind::function},
    {Kind::graph, 1, Kind::node}, {Kind::graph, 2, Kind::text}, {Kind::graph, 5, Kind::tensor},
    {Kind::graph, 10, Kind::text}, {Kind::graph, 11, Kind::value_info}, {Kind::graph, 12, Kind::value_info},
    {Kind::graph, 13, Kind::value_info},
    {Kind::node, 1, Kind::text}, {Kind::node, 2, Kind::text}, {Kind::node, 3, Kind::text}, {Kind::node, 4, Kind::text},
    {Kind::node, 5, Kind::attribute}, {Kind::node, 6, Kind::text}, {Kind::node, 7, Kind::text},
    {Kind::attribute, 1, Kind::text}, {Kind::attribute, 2, Kind::real}, {Kind::attribute, 3, Kind::integer},
    {Kind::attribute, 4, Kind::bytes}, {Kind::attribute, 5, Kind::tensor}, {Kind::attribute, 6, Kind::graph},
    {Kind::attribute, 7, Kind::real}, {Kind::attribute, 8, Kind::integer}, {Kind::attribute, 9, Kind::bytes},
    {Kind::attribute, 10, Kind::tensor}, {Kind::attribute, 11, Kind::graph}, {Kind::attribute, 13, Kind::text},
    {Kind::attribute, 14, Kind::type}, {Kind::attribute, 15, Kind::type}, {Kind::attribute, 20, Kind::integer},
    {Kind::attribute, 21, Kind::text},
    {Kind::tensor, 1, Kind::integer}, {Kind::tensor, 2, Kind::integer}, {Kind::tensor, 4, Kind::real},
    {Kind::tensor, 5, Kind::integer}, {Kind::tensor, 6, Kind::bytes}, {Kind::tensor, 7, Kind::integer},
    {Kind::tensor, 8, Kind::text}, {Kind::tensor, 9, Kind::bytes}, {Kind::tensor, 11, Kind::integer},
    {Kind::tensor, 12, Kind::text}, {Kind::tensor, 13, Kind::entry}, {Kind::tensor, 14, Kind::integer},
    {Kind::value_info, 1, Kind::text}, {Kind::value_info, 2, Kind::type}, {Kind::value_info, 3, Kind::text},
    {Kind::type, 1, Kind::tensor_type}, {Kind::type, 4, Kind::element_type}, {Kind::type, 9, Kind::element_type},
    {Kind::element_type, 1, Kind::type},
    {Kind::tensor_type, 1, Kind::integer}, {Kind::tensor_type, 2, Kind::shape},
    {Kind::shape, 1, Kind::dim},
    {Kind::dim, 1, Kind::integer}, {Kind::dim, 2, Kind::text}, {Kind::dim, 3, Kind::text},
    {Kind::opset, 1, Kind::text}, {Kind::opset, 2, Kind::integer},
    {Kind::function, 1, Kind::text}, {Kind::function, 4, Kind::text}, {Kind::function, 5, Kind::text},
    {Kind::function, 6, Kind::text}, {Kind::function, 7, Kind::node}, {Kind::function, 9, Kind::opset},
    {Kind::function, 10, Kind::text}, {Kind::function, 11, Kind::attribute}, {Kind::function, 12, Kind::value_info},
    {Kind::entry, 1, Kind::text}, {Kind::entry, 2, Kind::text},
};
// clang-format on

void parse_into(OnnxField& message, std::string_view bytes) {
  protozero::pbf_reader reader(bytes.data(), bytes.size());
  while (reader.next()) {
    OnnxField field;
    field.number = reader.tag();
    field.kind = kind_of(message.kind, field.number);
    field.wire = static_cast<int>(reader.wire_type());
    if (reader.wire_type() == protozero::pbf_wire_type::varint) {
      field.scalar = reader.get_uint64();
    } else if (reader.wire_type() == protozero::pbf_wire_type::fixed32) {
      field.scalar = reader.get_fixed32();
    } else if (reader.wire_type() == protozero::pbf_wire_type::fixed64) {
      field.scalar = reader.get_fixed64();
    } else if (field.kind == Kind::integer) {
      for (const std::uint64_t v : reader.get_packed_uint64()) {
        field.wire = static_cast<int>(protozero::pbf_wire_type::varint);
        field.scalar = v;
        message.fields.push_back(field);
      }
      continue;
    } else if (field.kind == Kind::real) {
      for (const std::uint32_t v : reader.get_packed_fixed32()) {
        field.wire = static_cast<int>(protozero::pbf_wire_type::fixed32);
        field.scalar = v;
        message.fields.push_back(field);
      }
      continue;
    } else {
      const protozero::data_view view = reader.get_view();
      if (field.is_message()) {
        parse_into(field, {view.data(), view.size()});
      } else {
        field.bytes.assign(view.data(), view.size());
      }
    }
    message.fields.push_back(std::move(field));
  }
}

}  // namespace

Kind kind_of(Kind parent, std::uint32_t number) {
  for (const Rule& rule : kSchema) {
    if (rule.parent == parent && rule.number == number) return rule.child;
  }
  return Kind::other;
}

OnnxField parse_onnx(const std::string& bytes) {
  OnnxField model;
  model.kind = Kind::model;
  parse_into(model, bytes);
  return model;
}

std::string write_onnx(const OnnxField& message) {
  std::string bytes;
  protozero::pbf_writer w(bytes);
  const std::vector<OnnxField>& fields = message.fields;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const OnnxField& field = fields[i];
    std::size_t end = i + 1;
    while (end < fields.size() && fields[end].number == field.number && fields[end].wire == field.wire) ++end;
    if (field.wire == 0 && end > i + 1) {
      std::vector<std::uint64_t> run;
      for (; i < end; ++i) run.push_back(fields[i].scalar);
      --i;
      w.add_packed_uint64(field.number, run.begin(), run.end());
    } else if (field.wire == 5 && end > i + 1) {
      std::vector<std::uint32_t> run;
      for (; i < end; ++i) run.push_back(static_cast<std::uint32_t>(fields[i].scalar));
      --i;
      w.add_packed_fixed32(field.number, run.begin(), run.end());
    } else if (field.wire == 0) {
      w.add_uint64(field.number, field.scalar);
    } else if (field.wire == 5) {
      w.add_fixed32(field.number, static_cast<std::uint32_t>(field.scalar));
    } else if (field.wire == 1) {
      w.add_fixed64(field.number, field.scalar);
    } else {
      w.add_bytes(field.number, field.is_message() ? write_onnx(field) : field.bytes);
    }
  }
  return bytes;
}

const OnnxField* OnnxField::find(std::uint32_t wanted) const {
  for (const OnnxField& field : fields) {
    if (field.number == wanted) return &field;
  }
  return nullptr;
}

std::string_view OnnxField::text(std::uint32_t wanted) const {
  const OnnxField* field = find(wanted);
  return field ? std::string_view(field->bytes) : std::string_view();
}

std::int64_t OnnxField::integer(std::uint32_t wanted) const {
  const OnnxField* field = find(wanted);
  return field ? static_cast<std::int64_t>(field->scalar) : 0;
}

std::vector<std::string> OnnxField::texts(std::uint32_t wanted) const {
  std::vector<std::string> found;
  for (const OnnxField& field : fields) {
    if (field.number == wanted) found.push_back(field.bytes);
  }
  return found;
}

std::vector<std::int64_t> OnnxField::integers(std::uint32_t wanted) const {
  std::vector<std::int64_t> found;
  for (const OnnxField& field : fields) {
    if (field.number == wanted) found.push_back(static_cast<std::int64_t>(field.scalar));
  }
  return found;
}

OnnxField& OnnxField::add(OnnxField field) {
  fields.push_back(std::move(field));
  return fields.back();
}

OnnxField& OnnxField::add_message(std::uint32_t at, Kind what) { return add({.number = at, .kind = what}); }

void OnnxField::add_text(std::uint32_t at, std::string_view value) {
  add({.number = at, .kind = Kind::text, .bytes = std::string(value)});
}

void OnnxField::add_bytes(std::uint32_t at, std::string_view value) {
  add({.number = at, .kind = Kind::bytes, .bytes = std::string(value)});
}

void OnnxField::add_integer(std::uint32_t at, std::int64_t value) {
  add({.number = at, .kind = Kind::integer, .wire = 0, .scalar = static_cast<std::uint64_t>(value)});
}

}  // namespace lathe::fuzz
