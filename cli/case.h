// A test case in ONNX's form: a folder with model.onnx and test_data_set_*/input_*.pb, output_*.pb.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"

namespace lathe::cli {

enum class Outcome : char { passed = 'p', failed = 'f', skipped = 's' };

struct Verdict {
  Outcome outcome = Outcome::passed;
  std::string reason;  ///< unless passed
};

/// The folders of all cases in or under `roots`, in order of their names; throws where a root does not exist.
std::vector<std::filesystem::path> find_cases(const std::vector<std::string>& roots);

/// Runs all data sets of a case. Whatever goes wrong is in the verdict.
Verdict run_case(const std::filesystem::path& folder, const EngineOptions& options, bool skip_unsupported);

}  // namespace lathe::cli
