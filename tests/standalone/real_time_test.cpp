// Prepared sessions allocate nothing, take no lock, fault no page and make no system call: malloc and the locks are
// replaced in the whole process, and the kernel kills the one that calls it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "custom_operators_page.h"
#include "ops/ir/op.h"
#include "tests/support/engine_of.h"
#include "tests/support/paths.h"
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
std::atomic<int> locks = 0;

void count(std::atomic<int>& what = allocations) noexcept {
  if (counting.load(std::memory_order_relaxed)) what.fetch_add(1, std::memory_order_relaxed);
}

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
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
LATHE_REPLACES int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto kNext = next<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  count(locks);
  return kNext(mutex);
}
LATHE_REPLACES int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static const auto kNext = next<int (*)(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  count(locks);
  return kNext(lock);
}

namespace lathe::tests {
namespace {

/// What 10 batches of runs did: all allocations and locks, and the page faults of the calmest batch, since the kernel
/// may take a page away at any time.
struct Costs {
  int allocations = 0;
  int locks = 0;
  long faults = 0;
  bool ok = true;
};

long page_faults() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

Costs costs_of(Session& session, int runs) {
  Costs costs;
  allocations = locks = 0;
  for (int batch = 0; batch < 10; ++batch) {
    const long before = page_faults();
    counting = true;
    for (int i = 0; i < runs / 10; ++i) costs.ok = costs.ok && session.try_run().ok();
    counting = false;
    const long faults = page_faults() - before;
    costs.faults = batch == 0 ? faults : std::min(costs.faults, faults);
  }
  costs.allocations = allocations;
  costs.locks = locks;
  return costs;
}

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

struct Case {
  const char* model;
  int runs;
};

class RealTime : public testing::TestWithParam<Case> {};

TEST_P(RealTime, RunsAllocateNothing) {
  Prepared prepared(GetParam().model);
  const Costs costs = costs_of(prepared.session, GetParam().runs);
  EXPECT_TRUE(costs.ok);
  EXPECT_EQ(costs.allocations, 0);
  EXPECT_EQ(costs.locks, 0);
  EXPECT_EQ(costs.faults, 0);
  for (std::size_t i = 0; i < prepared.outputs.size(); ++i) {
    const tools::NamedTensor& expected = prepared.sample.outputs[i];
    EXPECT_EQ(difference(GetParam().model, expected.name, prepared.outputs[i], expected.tensor), std::nullopt);
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

/// Ends the process; with status 0 where no run made a system call.
[[noreturn]] void run_without_system_calls(const Case& c) {
  Prepared prepared(c.model);
  if (!forbid_system_calls()) _exit(kRefused);
  for (int i = 0; i < c.runs; ++i) {
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

TEST(Locks, AreCounted) {
  std::mutex mutex;
  locks = 0;
  counting = true;
  { const std::lock_guard lock(mutex); }
  counting = false;
  EXPECT_EQ(locks, 1);
}

// name-encoder is a bidirectional GRU in 53 nodes, tashkeel-int8 has three quantized LSTMs, nmr-gnn 568 nodes with
// ScatterElements, ppocr-cls and oww-embedding are convolutional, surface-tree is a tree ensemble.
INSTANTIATE_TEST_SUITE_P(Models, RealTime,
                         testing::Values(Case{"rl-ppo-g1", 10'000}, Case{"surface-mlp", 10'000},
                                         Case{"surface-tree", 10'000}, Case{"name-encoder", 10'000},
                                         Case{"nmr-gnn", 2'000}, Case{"ppocr-cls", 1'000}, Case{"tashkeel-int8", 200},
                                         Case{"oww-embedding", 200}),
                         [](const auto& test) { return test_name(test.param.model); });

// ---- every plain kernel that says so ----

namespace fs = std::filesystem;

std::vector<Tensor> tensors_of(const fs::path& data, const std::string& kind, std::size_t count) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    const fs::path file = data / (kind + "_" + std::to_string(i) + ".pb");
    const auto value = tools::try_read_onnx_value(file.string(), ValueInfo::Kind::tensor);
    tensors.push_back(value.ok() ? (*value).value.tensor() : Tensor());
  }
  return tensors;
}

/// Runs a model prepared for real time, if it complies, and adds the plain kernels in it to `seen`.
void expect_real_time(const Engine& engine, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                      const std::string& what, std::set<std::string>& seen) {
  Session session = engine.session();
  Shapes shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !session.try_bind_input(engine.inputs()[i].name, inputs[i]).ok()) return;
    shapes.push_back({engine.inputs()[i].name, inputs[i].shape()});
  }
  std::vector<Tensor> results;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!outputs[o].defined()) return;
    results.emplace_back(outputs[o].dtype(), outputs[o].shape());
    if (!session.try_bind_output(engine.outputs()[o].name, results.back()).ok()) return;
  }
  if (!session.try_prepare({.real_time = true}).ok()) return;
  const Costs costs = costs_of(session, 20);
  EXPECT_TRUE(costs.ok) << what;
  EXPECT_EQ(costs.allocations, 0) << what;
  for (const tools::StepRecord& step : tools::explain(engine, shapes, true).steps) {
    if (step.backend == "plain") seen.insert(step.kernel);
  }
}

void expect_case_is_real_time(const fs::path& folder, std::set<std::string>& seen) {
  const auto engine = Engine::try_load((folder / "model.onnx").string(), {.threads = 1});
  if (!engine.ok()) return;
  const fs::path data = folder / "test_data_set_0";
  expect_real_time(*engine, tensors_of(data, "input", engine->inputs().size()),
                   tensors_of(data, "output", engine->outputs().size()), folder.filename().string(), seen);
}

/// The same for one node of one input and constants.
void expect_node_is_real_time(const std::string& op, std::vector<onnx::Bytes> attributes, const Tensor& x,
                              const std::vector<onnx::Ints>& constants, const std::vector<Tensor>& outputs,
                              std::set<std::string>& seen, const std::string& domain = "") {
  const auto dims = [](const Tensor& t) { return std::vector<onnx::DimSpec>(t.shape().begin(), t.shape().end()); };
  onnx::GraphSpec graph{.nodes = {{op, {"x"}, {}, std::move(attributes), "node", domain}},
                        .inputs = {onnx::value("x", x.dtype(), dims(x))}};
  for (const onnx::Ints& c : constants) {
    graph.nodes[0].inputs.push_back("c" + std::to_string(graph.initializers.size()));
    graph.initializers.push_back(onnx::tensor(graph.nodes[0].inputs.back(), {static_cast<int>(c.size())}, c));
  }
  for (const Tensor& y : outputs) {
    graph.nodes[0].outputs.push_back("y" + std::to_string(graph.outputs.size()));
    graph.outputs.push_back(onnx::value(graph.nodes[0].outputs.back(), y.dtype(), dims(y)));
  }
  expect_real_time(engine_of({.graph = graph, .opsets = {onnx::opset("ai.onnx.ml", 4)}}), {x}, outputs, op, seen);
}

TEST(PlainKernels, TakeNothingFromTheHeapWhereTheySayIt) {
  std::set<std::string> seen;
  const std::string begins[] = {
      "scatter",   "linear_attention", "gru",           "lstm",     "simple_rnn",  "rnn",      "cum",
      "maxunpool", "tensorscatter",    "convtranspose", "edge_pad", "reflect_pad", "wrap_pad", "ai_onnx_ml"};
  for (const fs::directory_entry& entry : fs::directory_iterator(cases_dir() + "/node")) {
    const std::string name = entry.path().filename().string();
    for (const std::string& begin : begins) {
      if (name.starts_with("test_" + begin)) expect_case_is_real_time(entry.path(), seen);
    }
  }
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const onnx::Bytes coefficients = onnx::attr("coefficients", std::vector<float>{1, 2, 3, 4});
  constexpr const char* kMl = "ai.onnx.ml";
  expect_node_is_real_time("LinearRegressor", {coefficients, onnx::attr("targets", 2)}, x, {}, {x}, seen, kMl);
  expect_node_is_real_time("LinearClassifier", {coefficients, onnx::attr("classlabels_ints", onnx::Ints{5, 6})}, x, {},
                           {Tensor(DType::i64, {2}), x}, seen, kMl);
  expect_node_is_real_time("OneHotEncoder", {onnx::attr("cats_int64s", onnx::Ints{1, 2})},
                           Tensor::from<std::int64_t>({1, 2, 1, 2}, {2, 2}), {}, {Tensor(DType::f32, {2, 2, 2})}, seen,
                           kMl);
  for (const DType dtype : {DType(DType::f32), DType(DType::f16)}) {
    expect_node_is_real_time("TopK", {}, Tensor(dtype, {3, 40}), {{4}},
                             {Tensor(dtype, {3, 4}), Tensor(DType::i64, {3, 4})}, seen);
    expect_node_is_real_time("Pad", {onnx::attr("mode", "edge")}, Tensor(dtype, {2, 2}), {{1, 0, 0, 3}},
                             {Tensor(dtype, {3, 5})}, seen);
    expect_node_is_real_time("CumSum", {}, Tensor(dtype, {4}), {{0}}, {Tensor(dtype, {4})}, seen);
  }
  for (const char* model : {"tashkeel-int8", "surface-tree"}) {
    const Engine engine = Engine::load(model_path(model), {.threads = 1});
    for (const tools::StepRecord& step : tools::explain(engine, shapes_of(stored_sample(model)), true).steps) {
      if (step.backend == "plain") seen.insert(step.kernel);  // run above
    }
  }
  for (const ops::OpDef* op : ops::all_operators()) {
    if (!op->real_time) continue;
    EXPECT_TRUE(seen.contains(std::string(op->name))) << op->name << " was in no model that ran";
  }
}

TEST(CustomOperators, TakeNothingFromTheHeapBesideTheirFunction) {
  register_operator(bucketize());
  const Engine engine = engine_of({.graph = {.nodes = {{"Bucketize", {"x", "edges"}, {"y"}, {}, "node", "com.example"}},
                                             .inputs = {onnx::value("x", DType::f32, {4})},
                                             .outputs = {onnx::value("y", DType::i64, {4})},
                                             .initializers = {onnx::tensor("edges", {2}, std::vector<float>{1, 2})}},
                                   .opsets = {onnx::opset("com.example", 1)}});
  std::set<std::string> seen;
  expect_real_time(engine, {Tensor::from<float>({0, 1, 2, 3}, {4})}, {Tensor(DType::i64, {4})}, "Bucketize", seen);
  EXPECT_TRUE(seen.contains("Bucketize")) << "it was not prepared for real time";
}

}  // namespace
}  // namespace lathe::tests
