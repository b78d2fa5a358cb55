// Message: one protobuf message, field by field, over the file's own bytes; what does not fit the wire format is a
// Failure.
#pragma once

#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <string_view>
#include <vector>

#include "ops/ir/failure.h"

namespace lathe::frontends::onnx {

class Message {
 public:
  /// `kind` names the message in errors ("TensorProto") and must outlive it.
  Message(std::string_view bytes, const char* kind) : reader_(bytes.data(), bytes.size()), kind_(kind) {}

  /// Moves to the next field; false at the end.
  bool next() {
    return guard([&] { return reader_.next(); });
  }
  [[nodiscard]] int field() const { return static_cast<int>(reader_.tag()); }
  void skip() {
    guard([&] { return reader_.skip(), true; });
  }

  std::int64_t integer() {
    expect(protozero::pbf_wire_type::varint);
    return guard([&] { return reader_.get_int64(); });
  }
  float real() {
    expect(protozero::pbf_wire_type::fixed32);
    return guard([&] { return reader_.get_float(); });
  }
  /// A string, bytes or message field.
  std::string_view bytes() {
    expect(protozero::pbf_wire_type::length_delimited);
    const protozero::data_view view = guard([&] { return reader_.get_view(); });
    return {view.data(), view.size()};
  }
  /// A repeated scalar as it lies in the file: one packed run, or a single element. `packed` sees the elements' bytes.
  std::string_view scalars() {
    if (reader_.wire_type() == protozero::pbf_wire_type::length_delimited) return bytes();
    const char* begin = reader_.data().data();
    skip();
    return {begin, static_cast<std::size_t>(reader_.data().data() - begin)};
  }
  /// Appends a repeated varint field, packed or not.
  void integers(std::vector<std::int64_t>& out);
  /// Appends a repeated float field, packed or not.
  void reals(std::vector<double>& out);

  [[noreturn]] void damaged(const char* why) const {
    fail(ErrorCode::invalid_model, "damaged file: field {} of {} {}", field(), kind_, why);
  }

 private:
  template <class Fn>
  auto guard(Fn&& fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (const protozero::end_of_buffer_exception&) {
      damaged("ends too early");
    } catch (const protozero::exception& e) {
      damaged(e.what());
    }
  }
  void expect(protozero::pbf_wire_type type) const {
    if (reader_.wire_type() != type) damaged("has another wire type than its schema");
  }

  protozero::pbf_reader reader_;
  const char* kind_;
};

/// Calls fn(value) for each varint in `run`; Failure where one is cut off.
template <class Fn>
void for_each_varint(std::string_view run, const Message& message, Fn&& fn) {
  const char* at = run.data();
  const char* end = at + run.size();
  while (at != end) {
    std::uint64_t value = 0;
    try {
      value = protozero::decode_varint(&at, end);
    } catch (const protozero::exception&) {
      message.damaged("holds a damaged number");
    }
    fn(value);
  }
}

inline void Message::integers(std::vector<std::int64_t>& out) {
  for_each_varint(scalars(), *this, [&](std::uint64_t v) { out.push_back(static_cast<std::int64_t>(v)); });
}

inline void Message::reals(std::vector<double>& out) {
  const std::string_view run = scalars();
  if (run.size() % sizeof(float) != 0) damaged("holds a damaged number");
  for (std::size_t i = 0; i < run.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, run.data() + i, sizeof(float));
    out.push_back(value);
  }
}

}  // namespace lathe::frontends::onnx
