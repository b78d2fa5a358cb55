// Whether an output is what a test case expects.
#include "cli/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "cli/command.h"

namespace lathe::cli {
namespace {

using Verdict = std::optional<std::string>;

bool near(double expected, double actual, const Tolerance& t) {
  if (!std::isfinite(expected) || !std::isfinite(actual)) {
    return expected == actual || (std::isnan(expected) && std::isnan(actual));
  }
  return std::abs(actual - expected) <= t.absolute + t.relative * std::abs(expected);
}

std::string position(const Shape& shape, std::int64_t flat) {
  Shape index = shape;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return fmt::format("[{}]", fmt::join(index.dims(), ","));
}

/// The number of wrong elements and the first of them, given a test and a way to show one.
template <class Right, class Show>
Verdict elements(const Shape& shape, std::int64_t count, Right&& right, Show&& show) {
  std::int64_t wrong = 0, first = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    if (right(i)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return std::nullopt;
  return fmt::format("{} of {} elements differ, first at {}: {}", wrong, count, position(shape, first), show(first));
}

template <class T>
Verdict complex_difference(const Tensor& e, const Tensor& a, const Tolerance& t) {
  const auto expected = e.view<std::complex<T>>(), actual = a.view<std::complex<T>>();
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  return elements(
      e.shape(), e.size(),
      [&](std::int64_t i) {
        return near(expected[at(i)].real(), actual[at(i)].real(), t) &&
               near(expected[at(i)].imag(), actual[at(i)].imag(), t);
      },
      [&](std::int64_t i) {
        return fmt::format("expected {}{:+}j, got {}{:+}j", expected[at(i)].real(), expected[at(i)].imag(),
                           actual[at(i)].real(), actual[at(i)].imag());
      });
}

Verdict tensor_difference(const Tensor& e, const Tensor& a, const Tolerance& t) {
  if (e.dtype() != a.dtype()) return fmt::format("dtype {}, expected {}", a.dtype().name(), e.dtype().name());
  if (e.shape() != a.shape()) return fmt::format("shape {}, expected {}", a.shape().to_string(), e.shape().to_string());
  if (t.shape_only || !e.defined()) return std::nullopt;
  if (e.dtype() == DType::string) {
    const auto expected = e.view<std::string>(), actual = a.view<std::string>();
    return elements(
        e.shape(), e.size(),
        [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)] == actual[static_cast<std::size_t>(i)]; },
        [&](std::int64_t i) {
          return fmt::format("expected \"{}\", got \"{}\"", printable(expected[static_cast<std::size_t>(i)]),
                             printable(actual[static_cast<std::size_t>(i)]));
        });
  }
  if (e.dtype() == DType::c64) return complex_difference<float>(e, a, t);
  if (e.dtype() == DType::c128) return complex_difference<double>(e, a, t);
  if (e.dtype().is_float()) {
    return elements(
        e.shape(), e.size(), [&](std::int64_t i) { return near(e.number(i), a.number(i), t); },
        [&](std::int64_t i) { return fmt::format("expected {:.9g}, got {:.9g}", e.number(i), a.number(i)); });
  }
  const bool steps = t.absolute >= 1 && e.dtype().is_integer();
  return elements(
      e.shape(), e.size(),
      [&](std::int64_t i) {
        return e.integer(i) == a.integer(i) || (steps && std::abs(e.number(i) - a.number(i)) <= t.absolute);
      },
      [&](std::int64_t i) { return fmt::format("expected {}, got {}", e.integer(i), a.integer(i)); });
}

std::string_view kind_of(const Value& value) {
  return value.is_sequence() ? "sequence" : value.is_optional() ? "optional" : value.is_map() ? "map" : "tensor";
}

Verdict part(const std::string& where, Verdict verdict) {
  if (verdict) *verdict = where + ": " + *verdict;
  return verdict;
}

Verdict sequence_difference(const Sequence& e, const Sequence& a, const Tolerance& t) {
  if (e.size() != a.size()) return fmt::format("sequence of {}, expected {}", a.size(), e.size());
  for (std::size_t i = 0; i < e.size(); ++i) {
    if (Verdict v = difference(e[i], a[i], t)) return part(fmt::format("element {}", i), v);
  }
  return std::nullopt;
}

Verdict optional_difference(const Optional& e, const Optional& a, const Tolerance& t) {
  if (!e.value != !a.value)
    return fmt::format("{} optional, expected {}", a.value ? "a filled" : "an absent",
                       e.value ? "a filled one" : "an absent one");
  return e.value ? difference(*e.value, *a.value, t) : std::nullopt;
}

std::string key_text(const Map::key_type& key) {
  const auto* number = std::get_if<std::int64_t>(&key);
  return number ? fmt::format("key {}", *number) : fmt::format("key '{}'", printable(std::get<std::string>(key)));
}

Verdict map_difference(const Map& e, const Map& a, const Tolerance& t) {
  if (e.size() != a.size()) return fmt::format("map of {}, expected {}", a.size(), e.size());
  for (const auto& [key, value] : e) {
    const auto found = a.find(key);
    if (found == a.end()) return key_text(key) + " is missing";
    if (Verdict v = difference(value, found->second, t)) return part(key_text(key), v);
  }
  return std::nullopt;
}

}  // namespace

Verdict difference(const Value& expected, const Value& actual, const Tolerance& t) {
  if (kind_of(expected) != kind_of(actual))
    return fmt::format("a {}, expected a {}", kind_of(actual), kind_of(expected));
  if (expected.is_sequence()) return sequence_difference(expected.sequence(), actual.sequence(), t);
  if (expected.is_optional()) return optional_difference(expected.optional(), actual.optional(), t);
  if (expected.is_map()) return map_difference(expected.map(), actual.map(), t);
  return tensor_difference(expected.tensor(), actual.tensor(), t);
}

}  // namespace lathe::cli
