// Fills tensors of every dtype, and chooses extents for open dims.
#include "tests/fuzz/inputs.h"

#include <cstring>
#include <limits>
#include <map>

namespace lathe::fuzz {
namespace {

constexpr std::size_t kLargestInput = std::size_t{4} << 20;

double random_number(Random& random, bool extremes) {
  constexpr double kExtremes[] = {0.0,
                                  -1.0,
                                  1e30,
                                  -1e30,
                                  std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  1e-42,
                                  2147483648.0};
  if (extremes && random.one_in(16)) return kExtremes[random.below(std::size(kExtremes))];
  return random.unit() * 4 - 2;
}

std::int64_t random_integer(Random& random, bool extremes) {
  constexpr std::int64_t kExtremes[] = {-1, -100, 127, 255, 1 << 20, INT32_MIN, INT64_MAX, INT64_MIN};
  if (extremes && random.one_in(16)) return kExtremes[random.below(std::size(kExtremes))];
  return static_cast<std::int64_t>(random.below(extremes ? 4 : 2));
}

}  // namespace

Tensor random_tensor(DType dtype, const Shape& shape, Random& random, bool extremes) {
  if (dtype == DType::undefined) dtype = DType::f32;
  Tensor t(dtype, shape);
  const std::int64_t n = t.size();
  if (dtype == DType::f32) {
    for (float& v : t.mutable_view<float>()) v = static_cast<float>(random_number(random, extremes));
  } else if (dtype == DType::f64) {
    for (double& v : t.mutable_view<double>()) v = random_number(random, extremes);
  } else if (dtype == DType::i64) {
    for (std::int64_t& v : t.mutable_view<std::int64_t>()) v = random_integer(random, extremes);
  } else if (dtype == DType::i32) {
    for (std::int32_t& v : t.mutable_view<std::int32_t>())
      v = static_cast<std::int32_t>(random_integer(random, extremes));
  } else if (dtype == DType::boolean) {
    auto* bytes = static_cast<std::uint8_t*>(t.mutable_data());
    for (std::int64_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(random.below(2));
  } else if (dtype == DType::string) {
    constexpr const char* kTexts[] = {"", "a", "lathe", "42", "\xff\xfe"};
    for (std::string& v : t.mutable_view<std::string>()) v = kTexts[random.below(std::size(kTexts))];
  } else {
    auto* bytes = static_cast<std::uint8_t*>(t.mutable_data());
    for (std::size_t i = 0; i < t.bytes(); ++i) bytes[i] = static_cast<std::uint8_t>(random.below(256));
  }
  return t;
}

Inputs random_inputs(const Engine& engine, Random& random) {
  std::map<std::string, std::int64_t> symbols;
  Inputs inputs;
  for (const ValueInfo& input : engine.inputs()) {
    if (!input.required && random.one_in(2)) continue;
    Shape shape;
    for (const Dim& dim : input.dims.value_or(std::vector<Dim>(random.below(4)))) {
      std::int64_t extent = dim.extent;
      if (extent < 0) {
        extent = static_cast<std::int64_t>(1 + random.below(3));
        if (!dim.symbol.empty()) extent = symbols.try_emplace(dim.symbol, extent).first->second;
      }
      shape.push_back(extent);
    }
    if (Tensor::byte_size(input.dtype == DType::undefined ? DType(DType::f32) : input.dtype, shape) > kLargestInput) {
      shape = Shape::filled(shape.rank(), 1);
    }
    const Tensor tensor = random_tensor(input.dtype, shape, random, true);
    switch (input.kind) {
      case ValueInfo::Kind::tensor:
        inputs.add(input.name, tensor);
        break;
      case ValueInfo::Kind::sequence:
        inputs.add(input.name, Sequence(random.below(3), tensor));
        break;
      case ValueInfo::Kind::optional:
        inputs.add(input.name, random.one_in(2) ? Optional{} : Optional{std::make_shared<Value>(tensor)});
        break;
      case ValueInfo::Kind::optional_sequence:
        inputs.add(input.name, Optional{std::make_shared<Value>(Sequence{tensor})});
        break;
      case ValueInfo::Kind::map:
        inputs.add(input.name, Map{});
    }
  }
  return inputs;
}

}  // namespace lathe::fuzz
