// Damages protobuf messages as a hostile or broken writer would: fields dropped, doubled, swapped, numbers and bytes
// changed.
#pragma once

#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <random>
#include <string>
#include <vector>

namespace lathe::tests {

/// A field of a message without a schema: bytes that parse as a message count as one.
struct ProtoField {
  std::uint32_t number = 0;
  protozero::pbf_wire_type type = protozero::pbf_wire_type::varint;
  std::uint64_t scalar = 0;
  std::string bytes;
  std::vector<ProtoField> fields;  ///< of a nested message
};

inline bool parse_proto(const std::string& bytes, std::vector<ProtoField>& fields, int depth = 0) {
  constexpr int kDeepest = 12;
  try {
    protozero::pbf_reader reader(bytes);
    while (reader.next()) {
      ProtoField field;
      field.number = reader.tag();
      field.type = reader.wire_type();
      switch (field.type) {
        case protozero::pbf_wire_type::varint:
          field.scalar = reader.get_uint64();
          break;
        case protozero::pbf_wire_type::fixed32:
          field.scalar = reader.get_fixed32();
          break;
        case protozero::pbf_wire_type::fixed64:
          field.scalar = reader.get_fixed64();
          break;
        default:
          field.bytes = reader.get_string();
          if (depth < kDeepest && !field.bytes.empty() && !parse_proto(field.bytes, field.fields, depth + 1))
            field.fields.clear();
      }
      fields.push_back(std::move(field));
    }
  } catch (const protozero::exception&) {
    return false;
  }
  return true;
}

inline std::string write_proto(const std::vector<ProtoField>& fields) {
  std::string bytes;
  protozero::pbf_writer w(bytes);
  for (const ProtoField& field : fields) {
    switch (field.type) {
      case protozero::pbf_wire_type::varint:
        w.add_uint64(field.number, field.scalar);
        break;
      case protozero::pbf_wire_type::fixed32:
        w.add_fixed32(field.number, static_cast<std::uint32_t>(field.scalar));
        break;
      case protozero::pbf_wire_type::fixed64:
        w.add_fixed64(field.number, field.scalar);
        break;
      default:
        w.add_bytes(field.number, field.fields.empty() ? field.bytes : write_proto(field.fields));
    }
  }
  return bytes;
}

class ProtoMutator {
 public:
  explicit ProtoMutator(std::uint32_t seed) : random_(seed) {}

  /// A damaged copy: half of them field by field, half byte by byte.
  std::string mutate(const std::string& message) {
    std::vector<ProtoField> fields;
    if (below(2) == 0 && parse_proto(message, fields) && !fields.empty()) {
      for (std::uint32_t i = 0, n = 1 + below(3); i < n && !fields.empty(); ++i) change_somewhere(fields);
      return write_proto(fields);
    }
    std::string bytes = message;
    for (std::uint32_t i = 0, n = 1 + below(4); i < n && !bytes.empty(); ++i) change_bytes(bytes);
    return bytes;
  }

  std::uint32_t below(std::size_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

 private:
  void change_somewhere(std::vector<ProtoField>& fields) {
    std::vector<ProtoField>* at = &fields;
    for (;;) {  // walk down at random
      ProtoField& field = (*at)[below(at->size())];
      if (field.fields.empty() || below(5) == 0) break;
      at = &field.fields;
    }
    change_one(*at);
  }

  void change_one(std::vector<ProtoField>& fields) {
    const std::size_t i = below(fields.size());
    constexpr std::uint64_t kNumbers[] = {
        0, 1, 2, 127, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, std::uint64_t{1} << 40};
    switch (below(7)) {
      case 0:
        fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case 1:
        fields.push_back(fields[i]);
        break;
      case 2:
        std::swap(fields[i], fields[below(fields.size())]);
        break;
      case 3:
        fields[i].number = 1 + below(25);
        break;
      case 4:
        fields[i].scalar = kNumbers[below(std::size(kNumbers))];
        break;
      case 5: {  // the content of another field
        const ProtoField other = fields[below(fields.size())];
        fields[i].bytes = other.bytes;
        fields[i].fields = other.fields;
        break;
      }
      default:
        if (!fields[i].bytes.empty()) {
          change_bytes(fields[i].bytes);
          fields[i].fields.clear();
        }
    }
  }

  void change_bytes(std::string& bytes) {
    const std::size_t i = below(bytes.size());
    switch (below(4)) {
      case 0:
        bytes[i] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << below(8)));
        break;
      case 2:
        bytes.resize(i);
        break;
      default:
        bytes.insert(i, 1 + below(8), static_cast<char>(below(256)));
    }
  }

  std::mt19937 random_;
};

}  // namespace lathe::tests
