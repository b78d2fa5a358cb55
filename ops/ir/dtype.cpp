// The short names of the dtypes.
#include <lathe/dtype.h>

#include <array>

namespace lathe {
namespace {

constexpr std::array<std::string_view, DType::kCount> kNames = {
    "undefined",  "f32",    "u8",         "i8",  "u16", "i16",    "i32",    "i64",  "string",
    "bool",       "f16",    "f64",        "u32", "u64", "c64",    "c128",   "bf16", "f8e4m3fn",
    "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "u4",  "i4",  "f4e2m1", "f8e8m0", "u2",   "i2"};

}  // namespace

std::string_view DType::name() const { return kNames[code_]; }

DType DType::from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Code>(i);
  }
  return undefined;
}

}  // namespace lathe
