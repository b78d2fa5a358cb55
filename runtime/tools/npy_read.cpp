// Reads NumPy's .npy: a short text header (dtype, memory order, shape), then the elements.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>

#include "ops/ir/failure.h"
#include "runtime/tools/npy.h"

namespace lathe::runtime {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  char order = '|';  // '<', '>' or '|'
  char kind = 0;     // NumPy's letter: b, i, u, f, c, U, S
  std::int64_t size = 0;
  bool fortran = false;
  Shape shape;
};

/// The header's Python dictionary: string keys, and strings, booleans and tuples of integers as values.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Header parse() {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        descr = true;
        set_descr(quoted());
      } else if (key == "fortran_order") {
        order = true;
        header_.fortran = boolean();
      } else if (key == "shape") {
        shape = true;
        tuple();
      } else {
        bad("unknown key in the header");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) bad("text behind the header");
    if (!descr || !order || !shape) bad("the header lacks descr, fortran_order or shape");
    return header_;
  }

 private:
  [[noreturn]] void bad(std::string_view what) const {
    fail(ErrorCode::invalid_argument, "{} is not a .npy file that can be read: {}", where_, what);
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) bad(fmt::format("expected '{}' at character {} of the header", c, at_));
  }
  std::string_view quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : 0;
    if (quote != '\'' && quote != '"') bad("structured dtypes are not supported");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) bad("a string in the header does not end");
    const std::string_view s = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return s;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    bad("fortran_order is neither True nor False");
  }
  std::int64_t integer() {
    skip();
    std::int64_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (value > (INT64_MAX - 9) / 10) bad("a dim is too large");
      value = value * 10 + (text_[at_] - '0');
    }
    if (at_ == begin) bad("expected a number in the shape");
    return value;
  }
  void tuple() {
    expect('(');
    while (!accept(')')) {
      if (header_.shape.rank() == Shape::kMaxRank) bad(fmt::format("more than {} dims", Shape::kMaxRank));
      header_.shape.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }
  void set_descr(std::string_view descr) {
    if (descr.size() < 2) bad(fmt::format("unknown dtype '{}'", shown(descr)));
    std::size_t at = 0;
    if (std::string_view("<>|=").find(descr[0]) != std::string_view::npos) header_.order = descr[at++];
    header_.kind = descr[at++];
    if (header_.kind == 'O') bad("arrays of Python objects cannot be read; save strings as a unicode array");
    const std::string_view digits = descr.substr(at);
    if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string_view::npos) {
      bad(fmt::format("unknown dtype '{}'", shown(descr)));
    }
    for (char c : digits) header_.size = header_.size * 10 + (c - '0');
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  Header header_;
};

DType dtype_of_header(const Header& h) {
  struct Known {
    char kind;
    std::int64_t size;
    DType dtype;
  };
  static constexpr Known kKnown[] = {
      {'b', 1, DType::boolean}, {'i', 1, DType::i8},  {'i', 2, DType::i16}, {'i', 4, DType::i32},  {'i', 8, DType::i64},
      {'u', 1, DType::u8},      {'u', 2, DType::u16}, {'u', 4, DType::u32}, {'u', 8, DType::u64},  {'f', 2, DType::f16},
      {'f', 4, DType::f32},     {'f', 8, DType::f64}, {'c', 8, DType::c64}, {'c', 16, DType::c128}};
  if (h.kind == 'U' || h.kind == 'S') return DType::string;
  for (const Known& known : kKnown) {
    if (known.kind == h.kind && known.size == h.size) return known.dtype;
  }
  return DType::undefined;
}

void append_utf8(std::string& out, std::uint32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string text_of(const std::byte* data, const Header& h) {
  std::string out;
  if (h.kind == 'S') {
    out.resize(static_cast<std::size_t>(h.size));
    std::memcpy(out.data(), data, out.size());
    while (!out.empty() && out.back() == '\0') out.pop_back();
    return out;
  }
  std::u32string units(static_cast<std::size_t>(h.size), U'\0');
  std::memcpy(units.data(), data, units.size() * 4);
  while (!units.empty() && units.back() == U'\0') units.pop_back();
  for (char32_t unit : units) append_utf8(out, h.order == '>' ? __builtin_bswap32(unit) : unit);
  return out;
}

/// Where the element at each row-major position lies in the file.
class Positions {
 public:
  explicit Positions(const Header& h) : shape_(h.shape), index_(Shape::filled(h.shape.rank(), 0)), stride_(index_) {
    std::int64_t step = 1;
    const int rank = shape_.rank();
    for (int i = 0; i < rank; ++i) {
      const int axis = h.fortran ? i : rank - 1 - i;
      stride_[axis] = step;
      step *= shape_[axis];
    }
  }
  [[nodiscard]] std::int64_t at() const { return at_; }
  void next() {
    for (int axis = shape_.rank() - 1; axis >= 0; --axis) {
      at_ += stride_[axis];
      if (++index_[axis] < shape_[axis]) return;
      at_ -= stride_[axis] * shape_[axis];
      index_[axis] = 0;
    }
  }

 private:
  Shape shape_;
  Shape index_;
  Shape stride_;
  std::int64_t at_ = 0;
};

void copy_element(std::byte* to, const std::byte* from, std::size_t size, std::size_t part, bool swap) {
  std::memcpy(to, from, size);
  if (!swap) return;
  for (std::size_t i = 0; i < size; i += part) std::reverse(to + i, to + i + part);
}

void fill_numbers(Tensor& tensor, const std::byte* data, const Header& h) {
  auto* out = static_cast<std::byte*>(tensor.mutable_data());
  const auto size = static_cast<std::size_t>(h.size);
  const bool swap = h.order == '>';
  if (!h.fortran && !swap) {
    if (tensor.bytes() > 0) std::memcpy(out, data, tensor.bytes());
  } else {
    Positions positions(h);
    for (std::int64_t i = 0; i < tensor.size(); ++i, positions.next()) {
      copy_element(out + static_cast<std::size_t>(i) * size, data + static_cast<std::size_t>(positions.at()) * size,
                   size, h.kind == 'c' ? size / 2 : size, swap);
    }
  }
  if (tensor.dtype() == DType::boolean) {
    for (std::size_t i = 0; i < tensor.bytes(); ++i) out[i] = std::byte{out[i] != std::byte{0}};
  }
}

void fill_strings(Tensor& tensor, const std::byte* data, const Header& h, std::size_t item) {
  Positions positions(h);
  for (std::string& s : tensor.mutable_view<std::string>()) {
    s = text_of(data + static_cast<std::size_t>(positions.at()) * item, h);
    positions.next();
  }
}

/// The header's text; `bytes` is left with the elements.
std::string_view take_header(std::span<const std::byte>& bytes, std::string_view where) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  if (bytes.size() < 10 || std::string_view(text, 6) != "\x93NUMPY") {
    fail(ErrorCode::invalid_argument, "{} is not a .npy file: it does not begin with NumPy's mark", where);
  }
  const int version = static_cast<int>(bytes[6]);
  if (version < 1 || version > 3) {
    fail(ErrorCode::invalid_argument, "{} is a .npy file of version {}; versions 1 to 3 are known", where, version);
  }
  const std::size_t width = version == 1 ? 2 : 4;
  const std::size_t begin = 8 + width;
  std::size_t length = 0;
  for (std::size_t i = 0; i < width && 8 + i < bytes.size(); ++i)
    length |= static_cast<std::size_t>(bytes[8 + i]) << (8 * i);
  if (bytes.size() < begin || length > bytes.size() - begin) {
    fail(ErrorCode::invalid_argument, "{} is cut short: its header of {} bytes does not fit in {} bytes", where, length,
         bytes.size());
  }
  bytes = bytes.subspan(begin + length);
  return {text + begin, length};
}

}  // namespace

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view where) {
  const Header h = HeaderParser(take_header(bytes, where), where).parse();
  const DType dtype = dtype_of_header(h);
  if (dtype == DType::undefined) {
    fail(ErrorCode::unsupported, "{} holds NumPy's dtype '{}{}', which has no counterpart here", where,
         shown({&h.kind, 1}), h.size);
  }
  const std::size_t item = static_cast<std::size_t>(h.size) * (h.kind == 'U' ? 4 : 1);
  const std::int64_t count = h.shape.elements();
  // An empty string type takes no bytes in the file, so the file's size bounds nothing.
  const bool fits = item == 0 ? bytes.empty() && count >= 0 && count <= 1 << 20
                              : bytes.size() % item == 0 && static_cast<std::int64_t>(bytes.size() / item) == count;
  if (!fits) {
    fail(ErrorCode::invalid_argument, "{} says shape {} of {} bytes an element, but holds {} bytes of elements", where,
         h.shape, item, bytes.size());
  }
  Tensor tensor(dtype, h.shape);
  if (count == 0) return tensor;
  if (dtype == DType::string) {
    fill_strings(tensor, bytes.data(), h, item);
  } else {
    fill_numbers(tensor, bytes.data(), h);
  }
  return tensor;
}

}  // namespace lathe::runtime
