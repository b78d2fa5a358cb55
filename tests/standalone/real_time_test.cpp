// Prepared sessions allocate nothing and make no system call: malloc is replaced in the whole process, and the kernel
// kills the one that calls it.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "tests/support/real_models.h"

// glibc's own entry points, beneath the ones that are replaced here.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

std::atomic<bool> counting = false;
std::atomic<int> allocations = 0;

void count() noexcept {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#define LATHE_REPLACES extern "C" __attribute__((visibility("default")))
LATHE_REPLACES void* malloc(std::size_t size) noexcept {
  count();
  return __libc_malloc(size);
}
LATHE_REPLACES void* calloc(std::size_t n, std::size_t size) noexcept {
  count();
  return __libc_calloc(n, size);
}
LATHE_REPLACES void* realloc(void* memory, std::size_t size) noexcept {
  count();
  return __libc_realloc(memory, size);
}
LATHE_REPLACES void* memalign(std::size_t alignment, std::size_t size) noexcept {
  count();
  return __libc_memalign(alignment, size);
}
LATHE_REPLACES void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  count();
  return __libc_memalign(alignment, size);
}
LATHE_REPLACES int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}
LATHE_REPLACES void free(void* memory) noexcept {
  if (memory) count();
  __libc_free(memory);
}

namespace lathe::tests {
namespace {

constexpr int kRuns = 10'000;

/// A session of a model with its stored inputs bound, and outputs of the stored shapes.
struct Prepared {
  Sample sample;
  std::vector<Tensor> outputs;
  Session session;

  explicit Prepared(const std::string& model)
      : sample(stored_sample(model)), session(Engine::load(model_path(model), {.threads = 1}).session()) {
    for (const tools::NamedTensor& t : sample.inputs) session.bind_input(t.name, t.tensor);
    for (const tools::NamedTensor& t : sample.outputs) {
      outputs.emplace_back(t.tensor.dtype(), t.tensor.shape());
      session.bind_output(t.name, outputs.back());
    }
    session.prepare({.real_time = true});
  }
};

class RealTime : public testing::TestWithParam<const char*> {};

TEST_P(RealTime, RunsAllocateNothing) {
  Prepared prepared(GetParam());
  bool ok = true;
  allocations = 0;
  counting = true;
  for (int i = 0; i < kRuns; ++i) ok = ok && prepared.session.try_run().ok();
  counting = false;
  EXPECT_TRUE(ok);
  EXPECT_EQ(allocations, 0);
  for (std::size_t i = 0; i < prepared.outputs.size(); ++i) {
    const tools::NamedTensor& expected = prepared.sample.outputs[i];
    EXPECT_EQ(difference(GetParam(), expected.name, prepared.outputs[i], expected.tensor), std::nullopt);
  }
}

constexpr int kRefused = 99;  ///< the sandbox could not be entered
constexpr int kFailed = 98;   ///< a run failed

/// Ends the process with the number of the system call that was tried, as far as an exit status can say it.
void on_system_call(int, siginfo_t* info, void*) { _exit(100 + info->si_syscall % 100); }

/// From here on this thread may only exit and return from the signal that anything else raises.
bool forbid_system_calls() {
  struct sigaction action = {};
  action.sa_sigaction = on_system_call;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Ends the process; with status 0 where 10,000 runs made no system call.
[[noreturn]] void run_without_system_calls(const char* model) {
  Prepared prepared(model);
  if (!forbid_system_calls()) _exit(kRefused);
  for (int i = 0; i < kRuns; ++i) {
    if (!prepared.session.try_run().ok()) _exit(kFailed);
  }
  _exit(0);
}

TEST_P(RealTime, RunsMakeNoSystemCall) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      run_without_system_calls(GetParam());
    } catch (const std::exception& error) {
      const std::string text = std::string(error.what()) + "\n";
      static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
      _exit(97);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0)
      << "97: see above, 98: a run failed, 99: no sandbox, 100 + n: system call n (mod 100)";
}

TEST(SystemCalls, AreCaught) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!forbid_system_calls()) _exit(kRefused);
    static_cast<void>(getppid());
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 100 + SYS_getppid % 100);
}

TEST(Allocations, AreCounted) {
  allocations = 0;
  counting = true;
  std::free(std::malloc(10));
  delete new int(3);  // NOLINT: made to be counted
  counting = false;
  EXPECT_GE(allocations, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, RealTime, testing::Values("rl-ppo-g1", "surface-mlp"),
                         [](const auto& test) { return test_name(test.param); });

}  // namespace
}  // namespace lathe::tests
