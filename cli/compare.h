// Whether an output is what a test case expects.
#pragma once

#include <optional>
#include <string>

#include <lathe/lathe.h>

namespace lathe::cli {

/// How near numbers must be: |actual - expected| <= absolute + relative · |expected|.
struct Tolerance {
  double relative = 1e-3;
  double absolute = 1e-7;
  bool shape_only = false;  ///< dtypes and shapes only, for random values
};

/// Nothing where `actual` is right; else the first difference in words. Dtypes and shapes must be equal, NaNs and
/// infinities stand at the same places, strings, booleans and integers be equal; sequences, optionals and maps
/// likewise, part by part.
std::optional<std::string> difference(const Value& expected, const Value& actual, const Tolerance& tolerance);

}  // namespace lathe::cli
