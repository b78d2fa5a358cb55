// Writes NumPy's .npy, version 1 or 2, little endian and row-major.
#include <algorithm>
#include <cstring>
#include <string>

#include "ops/ir/failure.h"
#include "runtime/tools/npy.h"

namespace lathe::runtime {
namespace {

/// UTF-8 to code points; what is not UTF-8 becomes U+FFFD, byte by byte.
std::u32string code_points(std::string_view s) {
  std::u32string out;
  for (std::size_t i = 0; i < s.size();) {
    const auto first = static_cast<unsigned char>(s[i]);
    const std::size_t length = first < 0x80                    ? 1
                               : first >= 0xF0 && first < 0xF5 ? 4
                               : first >= 0xE0                 ? 3
                               : first >= 0xC2                 ? 2
                                                               : 0;
    char32_t c = length == 1 ? first : first & (0x7FU >> length);
    bool good = length > 0 && first < 0xF5 && i + length <= s.size();
    for (std::size_t k = 1; good && k < length; ++k) {
      const auto next = static_cast<unsigned char>(s[i + k]);
      good = (next & 0xC0) == 0x80;
      c = (c << 6) | (next & 0x3FU);
    }
    out += good ? c : U'\xFFFD';
    i += good ? length : 1;
  }
  return out;
}

std::string descr_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return "|b1";
    case DType::i8:
      return "|i1";
    case DType::u8:
      return "|u1";
    case DType::i16:
      return "<i2";
    case DType::u16:
      return "<u2";
    case DType::i32:
      return "<i4";
    case DType::u32:
      return "<u4";
    case DType::i64:
      return "<i8";
    case DType::u64:
      return "<u8";
    case DType::f16:
      return "<f2";
    case DType::f32:
      return "<f4";
    case DType::f64:
      return "<f8";
    case DType::c64:
      return "<c8";
    case DType::c128:
      return "<c16";
    default:
      return {};
  }
}

/// The narrowest dtype of NumPy's that holds all values of `dtype`.
DType widened(DType dtype) {
  if (dtype == DType::bf16 || dtype.is_float8() || dtype == DType::f4e2m1) return DType::f32;
  if (dtype == DType::i4 || dtype == DType::i2) return DType::i8;
  if (dtype == DType::u4 || dtype == DType::u2) return DType::u8;
  return dtype;
}

std::vector<std::byte> header(const std::string& descr, const Shape& shape) {
  std::string dims;
  for (std::int64_t d : shape) dims += fmt::format("{}, ", d);
  if (shape.rank() > 1) dims.resize(dims.size() - 2);
  if (shape.rank() == 1) dims.pop_back();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string all = std::string("\x93NUMPY\x01", 7) + '\0';
  all += static_cast<char>(text.size() & 0xFF);
  all += static_cast<char>(text.size() >> 8);
  all += text;
  std::vector<std::byte> bytes(all.size());
  std::memcpy(bytes.data(), all.data(), all.size());
  return bytes;
}

std::vector<std::byte> format_strings(const Tensor& tensor) {
  std::vector<std::u32string> texts;
  std::size_t longest = 1;
  for (const std::string& s : tensor.view<std::string>()) {
    texts.push_back(code_points(s));
    longest = std::max(longest, texts.back().size());
  }
  std::vector<std::byte> bytes = header(fmt::format("<U{}", longest), tensor.shape());
  std::size_t at = bytes.size();
  bytes.resize(at + texts.size() * longest * 4);
  for (const std::u32string& text : texts) {
    if (!text.empty()) std::memcpy(bytes.data() + at, text.data(), text.size() * 4);
    at += longest * 4;
  }
  return bytes;
}

}  // namespace

std::vector<std::byte> format_npy(const Tensor& tensor) {
  if (!tensor.defined()) fail(ErrorCode::invalid_argument, "a tensor that is not defined cannot be written as .npy");
  if (tensor.dtype() == DType::string) return format_strings(tensor);
  const DType wide = widened(tensor.dtype());
  const Tensor t = wide == tensor.dtype() ? tensor : tensor.cast(wide);
  std::vector<std::byte> bytes = header(descr_of(wide), t.shape());
  const std::size_t at = bytes.size();
  bytes.resize(at + t.bytes());
  if (t.bytes() > 0) std::memcpy(bytes.data() + at, t.data(), t.bytes());
  return bytes;
}

}  // namespace lathe::runtime
