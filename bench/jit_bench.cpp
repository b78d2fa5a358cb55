// What the JIT's code costs to make and to run: pointwise, row and contraction kernels of the sizes that models have.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "jit/jit.h"
#include "jit/schedule.h"
#include "tests/jit/kernels.h"

namespace lathe::jit::testing {
namespace {

Compiler& compiler() {
  static const std::shared_ptr<Compiler> shared = Compiler::get();
  return *shared;
}

/// A kernel bound to memory of its own.
class Bound {
 public:
  Bound(const Kernel& kernel, int level) : kernel_(kernel), params_(loops::pack_params(kernel)) {
    const Kernel* one[] = {&kernel_};
    code_ = compiler().compile(one, {.code_level = level})[0];
    std::vector<std::int64_t> sizes(kernel.buffers.size(), 1);
    const auto grow = [&](const Access& access) {
      std::int64_t last = access.offset + 1;
      for (std::size_t d = 0; d < static_cast<std::size_t>(kernel.rank()); ++d) {
        last += access.strides[d] * (kernel.extents[d] - 1);
      }
      auto& size = sizes[static_cast<std::size_t>(access.buffer)];
      size = std::max(size, last);
    };
    for (const Access& load : kernel.loads) grow(load);
    for (const loops::Store& store : kernel.stores) grow(store.access);
    std::mt19937 random(1);
    for (std::size_t b = 0; b < sizes.size(); ++b) {
      const DType dtype = kernel.buffers[b].dtype;
      memory_.emplace_back(static_cast<std::size_t>(sizes[b] * element_bytes(dtype)) + 64);
      if (dtype != DType::f32) continue;
      std::normal_distribution<float> normal;
      auto* values = reinterpret_cast<float*>(memory_.back().data());
      for (std::int64_t i = 0; i < sizes[b]; ++i) values[i] = normal(random);
    }
    for (auto& m : memory_) buffers_.push_back(m.data());
    scratch_.resize(static_cast<std::size_t>(code_->scratch_bytes(kernel)) + 64);
    args_ = {buffers_.data(), params_.data(), 0, kernel.outer > 0 ? kernel.extents[0] : 1, scratch_.data(), &error_};
  }
  void run() { benchmark::DoNotOptimize(code_->fn(&args_)); }

 private:
  Kernel kernel_;
  std::vector<std::int64_t> params_;
  std::shared_ptr<const CompiledKernel> code_;
  std::vector<std::vector<char>> memory_;
  std::vector<void*> buffers_;
  std::vector<char> scratch_;
  loops::ErrorSlot error_;
  loops::KernelArgs args_{};
};

/// Runs a kernel; the rate is in elements, or multiply-adds, a second.
void run(benchmark::State& state, const Kernel& kernel) {
  Bound bound(kernel, static_cast<int>(state.range(0)));
  double points = 1;
  for (int d = 0; d < kernel.rank(); ++d) points *= static_cast<double>(kernel.extents[static_cast<std::size_t>(d)]);
  for (auto _ : state) bound.run();
  state.counters["points"] = benchmark::Counter(points, benchmark::Counter::kIsIterationInvariantRate);
}

/// Compiles `count` kernels at once, their structures made unique by a constant.
void compile(benchmark::State& state, Kernel (*make)(), int count) {
  const int level = static_cast<int>(state.range(0));
  double unique = 1;
  for (auto _ : state) {
    std::vector<Kernel> kernels;
    std::vector<const Kernel*> pointers;
    for (int i = 0; i < count; ++i) {
      kernels.push_back(make());
      Inst tag{.op = Op::constant, .dtype = DType::f32, .imm = unique++};
      kernels.back().insts.push_back(tag);
    }
    for (const Kernel& k : kernels) pointers.push_back(&k);
    benchmark::DoNotOptimize(compiler().compile(pointers, {.code_level = level}));
  }
  state.counters["ms_per_kernel"] =
      benchmark::Counter(count * 1e-3, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

#define LATHE_LEVELS ->ArgName("level")->Arg(0)->Arg(1)->Arg(2)

BENCHMARK_CAPTURE(run, copy_16k, unary(Op::abs, 16384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, gelu_tanh_128x384, gelu_tanh(128, 384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, exp_16k, unary(Op::exp, 16384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, erf_16k, unary(Op::erf, 16384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, log_16k, unary(Op::log, 16384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, sin_16k, unary(Op::sin, 16384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, softmax_32x384, softmax(32, 384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, layer_norm_32x384, layer_norm(32, 384)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, gemv_48x256, matmul(1, 48, 256, DType::f32, true)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, gemv_256x512, matmul(1, 256, 512)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, gemv_128x12, matmul(1, 128, 12)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, matmul_8x256x128, matmul(8, 256, 128)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, matmul_64x256x256, matmul(64, 256, 256)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, matmul_f64_64x256x256, matmul(64, 256, 256, DType::f64)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, transpose_512x512, transpose(512, 512)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, transpose_u8_512x512, transpose(512, 512, DType::u8)) LATHE_LEVELS;
BENCHMARK_CAPTURE(run, max_pool_56x56x64, max_pool(56, 56, 64)) LATHE_LEVELS;

Kernel compiled_gelu() { return gelu_tanh(128, 384); }
Kernel compiled_softmax() { return softmax(32, 384); }
Kernel compiled_norm() { return layer_norm(32, 384); }
Kernel compiled_gemv() { return matmul(1, 256, 512, DType::f32, true); }
Kernel compiled_matmul() { return matmul(64, 256, 256, DType::f32, true); }
Kernel compiled_pool() { return max_pool(56, 56, 64); }
Kernel compiled_transpose() { return transpose(64, 64); }

BENCHMARK_CAPTURE(compile, gelu, compiled_gelu, 16) LATHE_LEVELS;
BENCHMARK_CAPTURE(compile, softmax, compiled_softmax, 16) LATHE_LEVELS;
BENCHMARK_CAPTURE(compile, layer_norm, compiled_norm, 16) LATHE_LEVELS;
BENCHMARK_CAPTURE(compile, gemv, compiled_gemv, 16) LATHE_LEVELS;
BENCHMARK_CAPTURE(compile, matmul, compiled_matmul, 16) LATHE_LEVELS;
BENCHMARK_CAPTURE(compile, max_pool, compiled_pool, 16) LATHE_LEVELS;
BENCHMARK_CAPTURE(compile, transpose, compiled_transpose, 16) LATHE_LEVELS;

}  // namespace
}  // namespace lathe::jit::testing

BENCHMARK_MAIN();
