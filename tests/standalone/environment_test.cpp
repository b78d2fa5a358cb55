// What environment variables switch: passes, names for perf, code for gdb. And what options say goes before them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <lathe/tools.h>

#include "tests/support/engine_of.h"

// The list of code that gdb reads, in its documented form ("JIT Compilation Interface" of its manual).
extern "C" {
struct jit_code_entry {
  jit_code_entry* next;
  jit_code_entry* prev;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action;
  jit_code_entry* relevant;
  jit_code_entry* first;
};
extern jit_descriptor __jit_debug_descriptor;  // NOLINT(bugprone-reserved-identifier)
}

namespace lathe::tests {
namespace {

/// A variable of the environment while this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

bool switched_off(const Engine& engine, const std::string& pass) {
  for (const tools::PassRecord& record : unwrap(tools::try_passes(engine))) {
    if (record.name == pass) return record.switched_off;
  }
  ADD_FAILURE() << "no pass " << pass;
  return false;
}

TEST(Environment, SwitchesPassesUnlessTheOptionsDo) {
  const Variable passes("LATHE_PASSES", "-eliminate_common");
  EXPECT_TRUE(switched_off(engine_of(scale_and_shift()), "eliminate_common"));
  const Engine stated = engine_of(scale_and_shift(), {.threads = 1, .passes = "-fold_constant"});
  EXPECT_FALSE(switched_off(stated, "eliminate_common"));
  EXPECT_TRUE(switched_off(stated, "fold_constant"));
}

TEST(Environment, AWrongSwitchNamesItsVariable) {
  const Variable passes("LATHE_PASSES", "-no_such_pass");
  const Result<Engine> engine = try_engine_of(onnx::model(scale_and_shift()));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(engine.error().message.find("LATHE_PASSES: '-no_such_pass' switches off no pass"), std::string::npos)
      << engine.error().message;
}

/// Enough elements that they are worth compiling.
void run_once(const Engine& engine) { static_cast<void>(engine.run({{"x", Tensor(DType::f32, {1000})}})); }

TEST(Environment, AndOptionsNameKernelsForPerf) {
  const std::filesystem::path map = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  std::filesystem::remove(map);
  run_once(engine_of(scale_and_shift()));
  EXPECT_FALSE(std::filesystem::exists(map)) << "written though nobody asked";
  const auto expect_names = [&] {
    std::ifstream file(map);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::filesystem::remove(map);
    EXPECT_NE(text.find("lathe_"), std::string::npos) << text;
  };
  {
    const Variable perf("LATHE_PERF_MAP", "1");
    run_once(engine_of(scale_and_shift()));
  }
  expect_names();
  run_once(engine_of(scale_and_shift(), {.threads = 1, .perf_map = true}));
  expect_names();
}

TEST(Environment, AndOptionsShowKernelsToGdb) {
  const jit_code_entry* const before = __jit_debug_descriptor.first;
  const Engine plain = engine_of(scale_and_shift());
  run_once(plain);
  EXPECT_EQ(__jit_debug_descriptor.first, before);
  const auto expect_object = [](const jit_code_entry* entry) {
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(std::string(entry->symfile_addr + 1, 3), "ELF");
    EXPECT_GT(entry->symfile_size, 0U);
  };
  const auto with_variable = [] {
    const Variable gdb("LATHE_GDB", "1");
    return engine_of(scale_and_shift());
  };
  const Engine by_variable = with_variable();
  run_once(by_variable);
  const jit_code_entry* const first = __jit_debug_descriptor.first;
  EXPECT_NE(first, before);
  expect_object(first);
  const Engine by_option =
      engine_of(scale_and_shift(), {.threads = 1, .code_level = CodeLevel::standard, .gdb = true});  // code of its own
  run_once(by_option);
  EXPECT_NE(__jit_debug_descriptor.first, first) << "nothing was put in front";
  expect_object(__jit_debug_descriptor.first);
}

}  // namespace
}  // namespace lathe::tests
