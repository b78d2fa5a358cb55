// Values as a line of text, and as the tensors of an archive.
#include "cli/show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command.h"

namespace lathe::cli {
namespace {

std::string element(const Tensor& tensor, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  switch (tensor.dtype()) {
    case DType::string:
      return "\"" + printable(tensor.view<std::string>()[at]) + "\"";
    case DType::boolean:
      return tensor.integer(i) ? "true" : "false";
    case DType::c64:
      return fmt::format("{:.5g}{:+.5g}j", tensor.view<std::complex<float>>()[at].real(),
                         tensor.view<std::complex<float>>()[at].imag());
    case DType::c128:
      return fmt::format("{:.5g}{:+.5g}j", tensor.view<std::complex<double>>()[at].real(),
                         tensor.view<std::complex<double>>()[at].imag());
    default:
      return tensor.dtype().is_float() ? fmt::format("{:.5g}", tensor.number(i)) : fmt::format("{}", tensor.integer(i));
  }
}

std::string tensor_summary(const Tensor& tensor) {
  constexpr std::int64_t kShown = 6;
  if (!tensor.defined()) return "absent";
  std::string text = fmt::format("{}[{}] ", tensor.dtype().name(), fmt::join(tensor.shape().dims(), ","));
  const std::int64_t n = tensor.size();
  for (std::int64_t i = 0; i < std::min(n, kShown); ++i) text += " " + element(tensor, i);
  if (n > kShown + 1) text += " …";
  if (n > kShown) text += " " + element(tensor, n - 1);
  return text;
}

std::string key_text(const Map::key_type& key) {
  const auto* number = std::get_if<std::int64_t>(&key);
  return number ? std::to_string(*number) : printable(std::get<std::string>(key));
}

}  // namespace

std::string summary(const Value& value) {
  if (value.is_sequence()) {
    std::string text = fmt::format("sequence of {}", value.sequence().size());
    if (!value.sequence().empty())
      text += ": " + summary(value.sequence().front()) + (value.sequence().size() > 1 ? ", …" : "");
    return text;
  }
  if (value.is_optional())
    return value.optional().value ? "optional " + summary(*value.optional().value) : "optional, absent";
  if (value.is_map()) {
    std::string text = fmt::format("map of {}", value.map().size());
    if (!value.map().empty())
      text += ": " + key_text(value.map().begin()->first) + " → " + summary(value.map().begin()->second) + ", …";
    return text;
  }
  return tensor_summary(value.tensor());
}

void flatten(const std::string& name, const Value& value, std::vector<tools::NamedTensor>& out) {
  if (value.is_sequence()) {
    for (std::size_t i = 0; i < value.sequence().size(); ++i)
      flatten(fmt::format("{}.{}", name, i), value.sequence()[i], out);
  } else if (value.is_map()) {
    for (const auto& [key, part] : value.map()) flatten(name + "." + key_text(key), part, out);
  } else if (value.is_optional()) {
    if (value.optional().value) flatten(name, *value.optional().value, out);
  } else if (value.tensor().defined()) {
    out.push_back({name, value.tensor()});
  }
}

namespace {

/// Code points: what a terminal shows as columns, near enough.
std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - columns(row[i]) + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace lathe::cli
