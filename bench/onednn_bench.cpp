// oneDNN cut over Lathe's thread pool, beside oneDNN on its own OpenMP threads: the same work, the same layouts. And
// its maxima beside compiled loops.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <vector>

#include "jit/jit.h"
#include "runtime/backends/onednn/onednn.h"
#include "runtime/thread_pool.h"
#include "tests/jit/kernels.h"

extern "C" void omp_set_num_threads(int);

namespace lathe {
namespace {

using namespace onednn;

std::vector<float> filled(const Operand& operand) {
  return std::vector<float>(static_cast<std::size_t>(operand.dims.elements()), 0.5F);
}

/// Runs `body` until the benchmark has enough, and reports the quickest call too: on a shared machine it says more.
template <class Body>
void measure(benchmark::State& state, Body body) {
  using Clock = std::chrono::steady_clock;
  Clock::duration least = Clock::duration::max();
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    body();
    least = std::min(least, Clock::now() - start);
  }
  state.counters["min_us"] = std::chrono::duration<double, std::micro>(least).count();
}

template <class Spec, class Make>
void on_our_pool(benchmark::State& state, Spec spec, Make make, const Operand& src, const Operand& weights) {
  const int threads = static_cast<int>(state.range(0));
  spec.parts = threads;
  const Made made = make(spec);
  if (!made.primitive) return state.SkipWithError(made.declined.c_str());
  const std::vector<float> x = filled(src);
  const std::vector<float> w = filled(weights);
  std::vector<float> y = filled(spec.dst);
  std::vector<char> packed(made.primitive->weights_bytes());
  const bool packs = !made.primitive->weights_format().empty();
  if (packs && !made.primitive->pack_weights(w.data(), packed.data())) return state.SkipWithError("packing failed");
  std::vector<std::vector<char>> scratch(static_cast<std::size_t>(threads));
  std::vector<void*> pointers;
  for (auto& s : scratch) pointers.push_back((s.resize(made.primitive->scratch_bytes()), s.data()));
  const Buffers buffers{x.data(), packs ? static_cast<const void*>(packed.data()) : w.data(), nullptr, y.data(),
                        nullptr};
  const auto pool = make_thread_pool(threads);
  const RunScope run(*pool);
  measure(state, [&] {
    if (made.primitive->execute(buffers, pointers.data(), *pool) != 0) state.SkipWithError("oneDNN failed");
  });
  state.SetLabel(made.primitive->name() + " in " + std::to_string(made.primitive->parts()));
}

dnnl::memory::desc describe(const Operand& operand) {
  return {{operand.dims.begin(), operand.dims.end()},
          dnnl::memory::data_type::f32,
          dnnl::memory::dims(operand.strides.begin(), operand.strides.end())};
}

template <class Primitive, class Desc>
void on_openmp(benchmark::State& state, const Desc& desc) {
  const dnnl::engine engine = desc.get_engine();
  dnnl::stream stream(engine);
  const Primitive primitive(desc);
  const dnnl::memory src(desc.src_desc(), engine);
  const dnnl::memory weights(desc.weights_desc(), engine);
  const dnnl::memory dst(desc.dst_desc(), engine);
  const dnnl::memory scratch(desc.scratchpad_desc(), engine);
  measure(state, [&] {
    primitive.execute(
        stream,
        {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}, {DNNL_ARG_SCRATCHPAD, scratch}});
  });
  state.SetLabel(desc.impl_info_str());
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

ConvSpec conv(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t kernel, std::int64_t stride,
              std::int64_t groups) {
  ConvSpec spec;
  const std::int64_t pad = kernel / 2;
  const std::int64_t result = (size + 2 * pad - kernel) / stride + 1;
  spec.src.dims = {1, in, size, size};
  spec.src.strides = channels_last(spec.src.dims);
  spec.weights.dims = {out, in / groups, kernel, kernel};
  spec.weights.strides = row_major(spec.weights.dims);
  spec.dst.dims = {1, out, result, result};
  spec.dst.strides = channels_last(spec.dst.dims);
  spec.groups = groups;
  spec.strides = {stride, stride};
  spec.dilations = {1, 1};
  spec.pads_begin = {pad, pad};
  return spec;
}

void conv_openmp(benchmark::State& state, const ConvSpec& spec) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::memory::dims weights(spec.weights.dims.begin(), spec.weights.dims.end());
  if (spec.groups > 1) {
    weights[0] /= spec.groups;
    weights.insert(weights.begin(), spec.groups);
  }
  const dnnl::memory::desc w(weights, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any);
  const dnnl::memory::dims strides(spec.strides.begin(), spec.strides.end());
  const dnnl::memory::dims pads(spec.pads_begin.begin(), spec.pads_begin.end());
  on_openmp<dnnl::convolution_forward>(
      state, dnnl::convolution_forward::primitive_desc(engine, dnnl::prop_kind::forward_inference,
                                                       dnnl::algorithm::convolution_direct, describe(spec.src), w,
                                                       describe(spec.dst), strides, pads, pads, user_scratchpad()));
}

MatMulSpec matmul(std::int64_t m, std::int64_t k, std::int64_t n) {
  MatMulSpec spec;
  spec.a = {DType::f32, {m, k}, {k, 1}};
  spec.b = {DType::f32, {k, n}, {n, 1}};
  spec.dst = {DType::f32, {m, n}, {n, 1}};
  spec.constant_b = true;
  return spec;
}

void matmul_openmp(benchmark::State& state, const MatMulSpec& spec) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc b({spec.b.dims[0], spec.b.dims[1]}, dnnl::memory::data_type::f32,
                             dnnl::memory::format_tag::any);
  on_openmp<dnnl::matmul>(
      state, dnnl::matmul::primitive_desc(engine, describe(spec.a), b, describe(spec.dst), user_scratchpad()));
}

/// 3x3 maxima at stride 2 over channels-last memory, on one thread.
void pool_onednn(benchmark::State& state, std::int64_t size, std::int64_t channels) {
  omp_set_num_threads(1);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const std::int64_t result = (size + 1) / 2;
  const auto image = [&](std::int64_t extent) {
    const Shape dims{1, channels, extent, extent};
    return describe({DType::f32, dims, channels_last(dims)});
  };
  const dnnl::pooling_forward::primitive_desc desc(engine, dnnl::prop_kind::forward_inference,
                                                   dnnl::algorithm::pooling_max, image(size), image(result), {2, 2},
                                                   {3, 3}, {0, 0}, {1, 1}, {1, 1}, user_scratchpad());
  const dnnl::pooling_forward primitive(desc);
  const dnnl::memory src(desc.src_desc(), engine), dst(desc.dst_desc(), engine),
      scratch(desc.scratchpad_desc(), engine);
  std::fill_n(static_cast<float*>(src.get_data_handle()), size * size * channels, 0.5F);
  measure(state, [&] {
    primitive.execute(stream, {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}, {DNNL_ARG_SCRATCHPAD, scratch}});
  });
  state.SetLabel(desc.impl_info_str());
}

void pool_loops(benchmark::State& state, std::int64_t size, std::int64_t channels) {
  const loops::Kernel kernel = jit::testing::max_pool(size, size, channels);
  const loops::Kernel* one[] = {&kernel};
  const std::shared_ptr<jit::Compiler> compiler = jit::Compiler::get();
  const auto code = compiler->compile(one)[0];
  std::vector<float> x(static_cast<std::size_t>(size * size * channels), 0.5F), y(x.size());
  void* buffers[] = {x.data(), y.data()};
  const std::vector<std::int64_t> params = loops::pack_params(kernel);
  std::vector<char> scratch(static_cast<std::size_t>(code->scratch_bytes(kernel)) + 64);
  loops::ErrorSlot error;
  const loops::KernelArgs args{buffers, params.data(), 0, kernel.extents[0], scratch.data(), &error};
  measure(state, [&] { benchmark::DoNotOptimize(code->fn(&args)); });
}

void add(const std::string& name, const ConvSpec& spec) {
  benchmark::RegisterBenchmark(
      (name + "/lathe").c_str(),
      [spec](benchmark::State& state) { on_our_pool(state, spec, make_convolution, spec.src, spec.weights); })
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime();
  benchmark::RegisterBenchmark((name + "/openmp").c_str(),
                               [spec](benchmark::State& state) { conv_openmp(state, spec); })
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime();
}

void add(const std::string& name, const MatMulSpec& spec) {
  benchmark::RegisterBenchmark(
      (name + "/lathe").c_str(),
      [spec](benchmark::State& state) { on_our_pool(state, spec, make_matmul, spec.a, spec.b); })
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime();
  benchmark::RegisterBenchmark((name + "/openmp").c_str(),
                               [spec](benchmark::State& state) { matmul_openmp(state, spec); })
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime();
}

}  // namespace
}  // namespace lathe

int main(int argc, char** argv) {
  using namespace lathe;
  add("conv_3x3_64_56", conv(64, 64, 56, 3, 1, 1));
  add("conv_3x3_256_14", conv(256, 256, 14, 3, 1, 1));
  add("conv_3x3_512_7", conv(512, 512, 7, 3, 1, 1));
  add("conv_1x1_64_128_56", conv(64, 128, 56, 1, 1, 1));
  add("depthwise_3x3_96_56", conv(96, 96, 56, 3, 1, 96));
  add("first_3_16_224", conv(3, 16, 224, 3, 2, 1));
  add("matmul_126x384x384", matmul(126, 384, 384));
  add("matmul_126x1536x384", matmul(126, 1536, 384));
  add("matmul_8x384x1536", matmul(8, 384, 1536));
  add("matmul_4096x64x64", matmul(4096, 64, 64));
  for (const auto& [size, channels] :
       {std::pair<std::int64_t, std::int64_t>{112, 64}, {56, 64}, {14, 256}, {10, 512}}) {
    const std::string name = "max_pool_3x3_" + std::to_string(channels) + "_" + std::to_string(size);
    benchmark::RegisterBenchmark(
        (name + "/loops").c_str(),
        [size = size, channels = channels](benchmark::State& state) { pool_loops(state, size, channels); });
    benchmark::RegisterBenchmark(
        (name + "/onednn").c_str(),
        [size = size, channels = channels](benchmark::State& state) { pool_onednn(state, size, channels); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
