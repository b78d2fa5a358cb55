// The folders that CMake was told of, which the environment may overrule.
#include "tests/support/paths.h"

#include <cstdlib>

namespace lathe::tests {
namespace {

std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

std::string models_dir() { return from_environment("LATHE_MODELS", LATHE_MODELS); }
std::string cases_dir() { return from_environment("LATHE_CASES", LATHE_CASES); }
std::string source_dir() { return LATHE_SOURCE_DIR; }
std::string data_dir() { return source_dir() + "/tests/data"; }
std::string binary_dir() { return LATHE_BINARY_DIR; }
std::string python() { return from_environment("LATHE_VENV", LATHE_VENV) + "/bin/python"; }

}  // namespace lathe::tests
