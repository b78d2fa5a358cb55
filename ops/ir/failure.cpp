// The names of error codes, and names out of files made safe to show.
#include "ops/ir/failure.h"

#include <cstddef>
#include <cstdint>

namespace lathe {
namespace {

constexpr std::size_t kLongestShown = 160;

/// Bytes of the well-formed UTF-8 sequence at the front of `text`, and its code point; 0 where there is none.
struct Sequence8 {
  std::size_t size = 0;
  std::uint32_t code_point = 0;
};

Sequence8 front_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return {};
  std::uint32_t code_point = lead & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code_point = (code_point << 6) | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < kSmallest[size] || code_point > 0x10ffff || surrogate) return {};
  return {size, code_point};
}

/// Controls, and marks that reorder the text around them.
bool harmful(std::uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_model:
      return "invalid_model";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::out_of_range:
      return "out_of_range";
    case ErrorCode::limit_exceeded:
      return "limit_exceeded";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::deadline_exceeded:
      return "deadline_exceeded";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

std::string shown(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    if (out.size() >= kLongestShown) return out + "…";
    const Sequence8 front = front_sequence(name);
    const std::size_t size = front.size == 0 ? 1 : front.size;
    if (front.size != 0 && !harmful(front.code_point)) {
      out += name.substr(0, size);
    } else {
      for (std::size_t i = 0; i < size; ++i) out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(name[i]));
    }
    name.remove_prefix(size);
  }
  return out;
}

}  // namespace lathe
