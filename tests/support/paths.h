// Where tests find what they read. An environment variable of the same name (LATHE_MODELS, …) wins over the build's
// own.
#pragma once

#include <string>

namespace lathe::tests {

std::string models_dir();  ///< LATHE_MODELS: <name>.onnx of tests/models.tsv
std::string cases_dir();   ///< LATHE_CASES: <kind>/<case>/ as tools/write_onnx_cases.py writes them
std::string data_dir();    ///< tests/data of the sources
std::string source_dir();
std::string binary_dir();  ///< the build folder; programs are in its bin/
std::string python();      ///< the interpreter of LATHE_VENV, with numpy, onnx and onnxruntime

}  // namespace lathe::tests
