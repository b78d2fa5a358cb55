// The 16 real models: their stored inputs and outputs, further shapes run by ONNX Runtime, and the rule by which an
// output is right.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lathe/lathe.h>
#include <lathe/tools.h>

namespace lathe::tests {

/// The models of tests/models.tsv.
std::vector<std::string> model_names();
std::string model_path(const std::string& name);
/// The name as a GoogleTest identifier: underscores for hyphens.
std::string test_name(std::string model);

/// Inputs and the outputs they give.
struct Sample {
  std::string what;  ///< "stored", "shape 0", …
  std::vector<tools::NamedTensor> inputs;
  std::vector<tools::NamedTensor> outputs;
};

/// What tests/data holds for a model. Throws Exception where a file is missing.
Sample stored_sample(const std::string& name);
/// What ONNX Runtime gives for the shapes of tests/support/run_model.py; made once per build folder.
std::vector<Sample> further_samples(const std::string& name);
/// A file beside those of further_samples(), which must have been called: "silero-vad.steps.npz".
std::vector<tools::NamedTensor> oracle_file(const std::string& file);

Inputs inputs_of(const Sample& sample);
Shapes shapes_of(const Sample& sample);

/// The first difference in words; nothing where `actual` is right: floats within 1e-4 of the largest absolute value
/// plus 1e-3 relative and 1e-7 (2e-2 of the largest for int8 models), all else equal. Of yolo-isbn the sorted scores
/// are compared, because its boxes tie.
std::optional<std::string> difference(const std::string& model, const std::string& output, const Tensor& actual,
                                      const Tensor& expected);
/// The same over all outputs of a sample.
std::optional<std::string> difference(const std::string& model, const Outputs& actual, const Sample& sample);

}  // namespace lathe::tests
