// The inputs of a run, from files, or seeded random values.
#include "cli/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <random>

#include <lathe/tools.h>

#include "cli/command.h"
#include "cli/progress.h"

namespace lathe::cli {
namespace {

Shape parse_shape(std::string_view text, std::string_view argument) {
  Shape shape;
  if (text == "scalar") return shape;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    std::int64_t extent = -1;
    const auto [next, error] = std::from_chars(at, end, extent);
    if (error != std::errc() || extent < 0 || shape.rank() == Shape::kMaxRank) break;
    shape.push_back(extent);
    if (next == end) return shape;
    if (*next != 'x' && *next != ',') break;
    at = next + 1;
  }
  throw UsageError(fmt::format("--shape {}: expected NAME=1x3x224x224, of at most {} dims, or NAME=scalar", argument,
                               Shape::kMaxRank));
}

/// What the arguments say of each input.
class Arguments {
 public:
  explicit Arguments(const Engine& engine) : engine_(engine) {}

  /// Notes that `argument` gives the input of that name.
  const ValueInfo& give(std::string_view name, const std::string& argument) {
    const ValueInfo& input = declared(engine_.inputs(), name, "input", argument);
    const auto [earlier, first] = given_.emplace(input.name, argument);
    if (!first)
      throw UsageError(fmt::format("input '{}' is given twice: {} and {}", input.name, earlier->second, argument));
    return input;
  }
  /// The same for NAME=REST. Names and REST may hold '=': NAME is the longest name of an input that fits. Without one,
  /// `whole` says whether all of the text can be the REST of a model's only input.
  std::pair<const ValueInfo&, std::string> split(const std::string& text, const std::string& option, bool whole) {
    const std::string argument = option + " " + text;
    const ValueInfo* longest = nullptr;
    for (const ValueInfo& input : engine_.inputs()) {
      const bool fits = text.starts_with(input.name + "=");
      if (fits && (!longest || input.name.size() > longest->name.size())) longest = &input;
    }
    if (longest) return {give(longest->name, argument), text.substr(longest->name.size() + 1)};
    const std::size_t equals = text.find('=');
    if (engine_.inputs().size() == 1 && (equals == std::string::npos || whole))
      return {give(engine_.inputs()[0].name, argument), text};
    if (equals != std::string::npos) return {give(text.substr(0, equals), argument), ""};  // refuses
    throw UsageError(fmt::format("{}: the model has {} inputs, so the name is needed: {} NAME={}", argument,
                                 engine_.inputs().size(), option, text));
  }

 private:
  const Engine& engine_;
  std::map<std::string, std::string> given_;
};

/// The extents of named dims, as far as decided.
class Symbols {
 public:
  void learn(const ValueInfo& info, const Shape& shape) {
    if (!info.dims || static_cast<int>(info.dims->size()) != shape.rank()) return;
    for (int i = 0; i < shape.rank(); ++i) {
      const Dim& dim = (*info.dims)[static_cast<std::size_t>(i)];
      if (!dim.symbol.empty()) extents_.emplace(dim.symbol, shape[i]);
    }
  }
  /// The declared shape with open dims filled in, and what was chosen for them.
  Shape resolve(const ValueInfo& info, std::vector<std::string>& chosen) {
    Shape shape;
    if (!info.dims)
      throw UsageError(
          fmt::format("the model does not say the shape of input '{}'; give --shape '{}=…'", info.name, info.name));
    for (const Dim& dim : *info.dims) {
      if (dim.extent >= 0) {
        shape.push_back(dim.extent);
        continue;
      }
      const auto known = dim.symbol.empty() ? extents_.end() : extents_.find(dim.symbol);
      shape.push_back(known != extents_.end() ? known->second : 1);
      if (known == extents_.end()) chosen.push_back(dim.symbol.empty() ? "?" : dim.symbol);
    }
    return shape;
  }

 private:
  std::map<std::string, std::int64_t> extents_;
};

std::map<std::string, Shape> parse_shapes(Arguments& arguments, const std::vector<std::string>& texts) {
  std::map<std::string, Shape> shapes;
  for (const std::string& argument : texts) {
    const auto [info, text] = arguments.split(argument, "--shape", false);
    const Shape shape = parse_shape(text, argument);
    if (info.kind != ValueInfo::Kind::tensor || !info.admits(shape))
      throw UsageError(fmt::format("--shape {}: input '{}' must be {}", argument, info.name, info.to_string()));
    shapes[info.name] = shape;
  }
  return shapes;
}

std::map<std::string, Tensor> read_given(Arguments& arguments, const InputArguments& options) {
  std::map<std::string, Tensor> given;
  if (!options.archive.empty()) {
    for (tools::NamedTensor& t : tools::read_npz(options.archive)) {
      given[arguments.give(t.name, "--inputs " + options.archive).name] = std::move(t.tensor);
    }
  }
  for (const std::string& argument : options.files) {
    std::error_code error;
    const auto [info, path] = arguments.split(argument, "--input", std::filesystem::exists(argument, error));
    given[info.name] = tools::read_npy(path);
  }
  return given;
}

std::string note(const ValueInfo& info, const Tensor& tensor, std::uint64_t seed,
                 const std::vector<std::string>& chosen) {
  std::string text = fmt::format("input '{}' was not given: random {}[{}], seed {}", printable(info.name),
                                 tensor.dtype().name(), fmt::join(tensor.shape().dims(), ","), seed);
  if (!chosen.empty())
    text += fmt::format(" (open dims {} set to 1)", printable(fmt::format("{}", fmt::join(chosen, ", "))));
  return text;
}

/// A random tensor for an input.
Tensor make_up(const ValueInfo& info, const Shape& shape, std::uint64_t seed) {
  try {
    return random_tensor(info.dtype, shape, seed);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(
        fmt::format("input '{}': no memory for {}[{}]", info.name, info.dtype.name(), fmt::join(shape.dims(), ",")));
  }
}

}  // namespace

const ValueInfo& declared(const std::vector<ValueInfo>& all, std::string_view name, std::string_view what,
                          std::string_view argument) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const ValueInfo& i) { return i.name == name; });
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const ValueInfo& info : all) names.push_back("'" + info.name + "'");
  throw UsageError(fmt::format("{}: the model has no {} '{}'; it has {}", argument, what, name,
                               names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

void InputArguments::add_to(CLI::App& command) {
  command.add_option("--inputs", archive, "an .npz archive with tensors by input name")
      ->type_name("FILE.npz")
      ->check(not_empty());
  command.add_option("--input", files, "a tensor for one input; the name may be left out where there is one input")
      ->type_name("[NAME=]FILE.npy")
      ->allow_extra_args(false);
  add_shapes_to(command);
  command.add_option("--seed", seed, "of the random values for inputs that are not given")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{UINT32_MAX}))
      ->capture_default_str();
}

void InputArguments::add_shapes_to(CLI::App& command) {
  command.add_option("--shape", shapes, "the shape of an input that is not given; named dims carry over to the others")
      ->type_name("NAME=1x3x224x224")
      ->allow_extra_args(false);
}

Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  if (dtype == DType::string) {
    Tensor tensor(dtype, shape);
    for (std::string& s : tensor.mutable_view<std::string>()) s = "a";
    return tensor;
  }
  if (dtype.is_complex()) {
    Tensor tensor(dtype, shape);
    const auto fill = [&](auto span) {
      for (auto& x : span)
        x = {static_cast<float>(random() >> 40) * 0x1p-23F - 1, static_cast<float>(random() >> 40) * 0x1p-23F - 1};
    };
    fill(tensor.mutable_view<std::complex<float>>());
    fill(tensor.mutable_view<std::complex<double>>());
    return tensor;
  }
  Tensor tensor(DType::f32, shape);
  for (float& x : tensor.mutable_view<float>()) {
    x = dtype.is_float() ? static_cast<float>(random() >> 40) * 0x1p-23F - 1 : static_cast<float>(random() >> 63);
  }
  return dtype == DType::f32 ? tensor : tensor.cast(dtype);
}

CollectedInputs collect_inputs(const Engine& engine, const InputArguments& arguments) {
  const Progress progress("Reading inputs");
  Arguments all(engine);
  std::map<std::string, Tensor> given = read_given(all, arguments);
  const std::map<std::string, Shape> shapes = parse_shapes(all, arguments.shapes);
  Symbols symbols;
  for (const ValueInfo& info : engine.inputs()) {
    if (const auto it = given.find(info.name); it != given.end()) symbols.learn(info, it->second.shape());
    if (const auto it = shapes.find(info.name); it != shapes.end()) symbols.learn(info, it->second);
  }
  CollectedInputs collected;
  std::uint64_t seed = arguments.seed;
  for (const ValueInfo& info : engine.inputs()) {
    if (const auto it = given.find(info.name); it != given.end()) {
      collected.values.push_back({info.name, std::move(it->second)});
      continue;
    }
    const auto shape = shapes.find(info.name);
    const bool optional = info.kind == ValueInfo::Kind::optional || info.kind == ValueInfo::Kind::optional_sequence;
    if (optional || (!info.required && shape == shapes.end())) continue;
    if (info.kind != ValueInfo::Kind::tensor || info.dtype == DType::undefined) {
      throw UsageError(
          fmt::format("input '{}' ({}) must be given: values for it cannot be made up", info.name, info.to_string()));
    }
    std::vector<std::string> chosen;
    const Shape resolved = shape != shapes.end() ? shape->second : symbols.resolve(info, chosen);
    const Tensor tensor = make_up(info, resolved, seed++);
    collected.notes.push_back(note(info, tensor, seed - 1, chosen));
    collected.values.push_back({info.name, tensor});
  }
  return collected;
}

Shapes collect_shapes(const Engine& engine, const std::vector<std::string>& arguments,
                      std::vector<std::string>& notes) {
  Arguments all(engine);
  const std::map<std::string, Shape> given = parse_shapes(all, arguments);
  Symbols symbols;
  for (const ValueInfo& info : engine.inputs()) {
    if (const auto it = given.find(info.name); it != given.end()) symbols.learn(info, it->second);
  }
  Shapes shapes;
  for (const ValueInfo& info : engine.inputs()) {
    const auto it = given.find(info.name);
    if (info.kind != ValueInfo::Kind::tensor || (!info.required && it == given.end())) continue;
    std::vector<std::string> chosen;
    shapes.push_back({info.name, it != given.end() ? it->second : symbols.resolve(info, chosen)});
    if (!chosen.empty()) {
      notes.push_back(fmt::format("input '{}' has open dims ({}): taken as {}; --shape sets them", printable(info.name),
                                  printable(fmt::format("{}", fmt::join(chosen, ", "))),
                                  shapes.back().shape.to_string()));
    }
  }
  return shapes;
}

}  // namespace lathe::cli
