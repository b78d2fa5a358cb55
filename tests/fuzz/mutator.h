// Damages ONNX files: half of the mutants byte by byte, half with an eye for what the fields mean.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/onnx_tree.h"
#include "tests/fuzz/random.h"

namespace lathe::fuzz {

/// A damaged copy of `model`; `other` lends parts. `operators` are names to choose from.
std::string mutate_bytes(std::string model, const std::string& other, Random& random);
std::string mutate_fields(const std::string& model, const std::string& other, const std::vector<std::string>& operators,
                          Random& random);

}  // namespace lathe::fuzz
