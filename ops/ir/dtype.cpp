// The short names of the dtypes, and of sets of them.
#include <lathe/dtype.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "ops/ir/dtypes.h"

namespace lathe {
namespace {

constexpr std::array<std::string_view, DType::kCount> kNames = {
    "undefined",  "f32",    "u8",         "i8",  "u16", "i16",    "i32",    "i64",  "string",
    "bool",       "f16",    "f64",        "u32", "u64", "c64",    "c128",   "bf16", "f8e4m3fn",
    "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "u4",  "i4",  "f4e2m1", "f8e8m0", "u2",   "i2"};

constexpr DType kByKind[] = {
    DType::f16,        DType::bf16,    DType::f32,    DType::f64, DType::f8e4m3fn, DType::f8e4m3fnuz, DType::f8e5m2,
    DType::f8e5m2fnuz, DType::f8e8m0,  DType::f4e2m1, DType::i8,  DType::i16,      DType::i32,        DType::i64,
    DType::i4,         DType::i2,      DType::u8,     DType::u16, DType::u32,      DType::u64,        DType::u4,
    DType::u2,         DType::boolean, DType::string, DType::c64, DType::c128};

}  // namespace

std::string_view DType::name() const { return kNames[code_]; }

DType DType::from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Code>(i);
  }
  return undefined;
}

std::string ops::DTypes::to_string() const {
  if (*this == kAny) return "a tensor";
  constexpr int kFew = 6;
  if (const DTypes others = kAny - *this; !(others == DTypes()) && others.count() <= kFew)
    return "anything but " + others.to_string();
  std::vector<std::string_view> names;
  for (const DType d : kByKind) {
    if (contains(d)) names.push_back(d.name());
  }
  if (names.size() < 2) return names.empty() ? "nothing" : std::string(names[0]);
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

}  // namespace lathe
