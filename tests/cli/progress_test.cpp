// Progress on a terminal: `lathe test` of a case without an end.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/support/engine_of.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lathe::cli {
namespace {

namespace fs = std::filesystem;
namespace onnx = tests::onnx;

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// Counts to 2⁶³.
void write_endless_case(const fs::path& folder) {
  write(folder / "model.onnx",
        onnx::model(tests::loop_model({{"Add", {"a", "x"}, {"b"}, {}, "add"}, tests::go_on()}, {1}, {1})));
  const fs::path set = folder / "test_data_set_0";
  fs::create_directory(set);
  write(set / "input_0.pb", onnx::tensor("trips", {}, onnx::Ints{std::numeric_limits<std::int64_t>::max()}));
  write(set / "input_1.pb", onnx::tensor("start", {1}, std::vector<float>{0}));
  write(set / "input_2.pb", onnx::tensor("x", {1}, std::vector<float>{1}));
  write(set / "output_0.pb", onnx::tensor("y", {1}, std::vector<float>{0}));
}

/// What the command writes to a terminal until `text` has come, or its end where it does not come.
std::string on_terminal(const std::vector<std::string>& arguments, const std::string& text) {
  const std::string program = tests::binary_dir() + "/bin/lathe";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::string seen;
  char buffer[256];
  while (seen.find(text) == std::string::npos) {
    const ssize_t n = ::read(terminal, buffer, sizeof buffer);  // an error where the other end is closed
    if (n <= 0) break;
    seen.append(buffer, static_cast<std::size_t>(n));
  }
  ::kill(-child, SIGKILL);  // its workers too
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  return seen;
}

TEST(ProgressOnATerminal, OneSlowCase) {
  const tests::TemporaryFolder folder;
  write_endless_case(folder.path());
  for (const char* how : {"--jobs=1", "--in-process"}) {
    const std::string seen = on_terminal({"test", folder.path().string(), how}, "0 of 1");
    EXPECT_NE(seen.find("0 of 1"), std::string::npos) << how << ": " << seen;
  }
}

}  // namespace
}  // namespace lathe::cli
