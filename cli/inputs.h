// The inputs of a run, from files, or seeded random values where none are given.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <lathe/lathe.h>

namespace lathe::cli {

/// --inputs, --input, --shape, --seed.
struct InputArguments {
  std::string archive;
  std::vector<std::string> files;
  std::vector<std::string> shapes;
  std::uint64_t seed = 1;

  void add_to(CLI::App& command);
  void add_shapes_to(CLI::App& command);
};

struct CollectedInputs {
  std::vector<NamedValue> values;
  std::vector<std::string> notes;  ///< a sentence for each input that was made up
};

/// The input or output (`what`) of that name; where there is none, a UsageError that names `argument` and those there
/// are.
const ValueInfo& declared(const std::vector<ValueInfo>& all, std::string_view name, std::string_view what,
                          std::string_view argument);

/// Reads what is given and makes up the rest: a dim's name has one extent in all inputs, taken from what is given,
/// else 1. Throws where a name, shape or file does not fit or an input is given twice.
CollectedInputs collect_inputs(const Engine& engine, const InputArguments& arguments);

/// The shapes of all tensor inputs, by the same rules. `notes` says which dims were chosen.
Shapes collect_shapes(const Engine& engine, const std::vector<std::string>& shapes, std::vector<std::string>& notes);

/// A tensor of seeded random values: floats in [-1, 1), integers 0 and 1, booleans, strings "a".
Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed);

}  // namespace lathe::cli
