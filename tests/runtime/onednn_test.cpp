// oneDNN primitives against plain loops: every parameter, every post-op, any number of parts, a host left as it was.
#include "runtime/backends/onednn/onednn.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/thread_pool.h"

namespace lathe::onednn {
namespace {

using Kind = PostOp::Kind;

/// Calls `body(index)` for each index of `dims`, row-major.
template <class Body>
void for_each(const Shape& dims, Body body) {
  if (std::any_of(dims.begin(), dims.end(), [](std::int64_t d) { return d == 0; })) return;
  Shape index = Shape::filled(dims.rank(), 0);
  for (;;) {
    body(index);
    int d = dims.rank() - 1;
    while (d >= 0 && ++index[d] == dims[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

std::size_t at(const Operand& operand, const Shape& index) {
  std::int64_t offset = 0;
  for (int d = 0; d < operand.dims.rank(); ++d) {
    if (operand.dims[d] != 1) offset += index[d] * operand.strides[d];
  }
  return static_cast<std::size_t>(offset);
}

std::size_t extent_of(const Operand& operand) {
  std::int64_t last = 0;
  for (int d = 0; d < operand.dims.rank(); ++d) last += (operand.dims[d] - 1) * operand.strides[d];
  return static_cast<std::size_t>(last + 1);
}

template <class T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& v : values) {
    if constexpr (std::is_floating_point_v<T>) {
      v = std::uniform_real_distribution<T>(-1, 1)(random);
    } else {
      v = static_cast<T>(
          std::uniform_int_distribution<int>(std::numeric_limits<T>::min(), std::numeric_limits<T>::max())(random));
    }
  }
  return values;
}

double apply(const PostOp& op, double x, double y) {
  const double a = op.alpha;
  const double b = op.beta;
  switch (op.kind) {
    case Kind::relu:
      return x > 0 ? x : a * x;
    case Kind::elu:
      return x > 0 ? x : a * std::expm1(x);
    case Kind::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Kind::tanh:
      return std::tanh(x);
    case Kind::swish:
      return x / (1 + std::exp(-a * x));
    case Kind::hardswish:
      return x * std::clamp(a * x + b, 0.0, 1.0);
    case Kind::hardsigmoid:
      return std::clamp(a * x + b, 0.0, 1.0);
    case Kind::clip:
      return std::clamp(x, a, b);
    case Kind::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Kind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Kind::mish:
      return x * std::tanh(std::log1p(std::exp(x)));
    case Kind::softplus:
      return std::log1p(std::exp(a * x)) / a;
    case Kind::abs:
      return std::abs(x);
    case Kind::exp:
      return std::exp(x);
    case Kind::sqrt:
      return std::sqrt(x);
    case Kind::square:
      return x * x;
    case Kind::linear:
      return a * x + b;
    case Kind::add:
      return x + y;
    case Kind::sub:
      return x - y;
    case Kind::mul:
      return x * y;
    case Kind::div:
      return x / y;
    case Kind::min:
      return std::min(x, y);
    case Kind::max:
      return std::max(x, y);
  }
  return x;
}

std::vector<std::vector<float>> random_operands(const std::vector<PostOp>& post_ops) {
  std::vector<std::vector<float>> operands;
  for (const PostOp& op : post_ops) {
    if (!has_operand(op.kind)) continue;
    operands.push_back(random_values<float>(extent_of(op.operand), 77));
    for (float& v : operands.back()) v = std::copysign(std::abs(v) + 0.5F, v);  // away from 0, for division
  }
  return operands;
}

double apply_all(const std::vector<PostOp>& post_ops, const std::vector<std::vector<float>>& operands, double x,
                 const Shape& index) {
  std::size_t next = 0;
  for (const PostOp& op : post_ops) {
    const double y = has_operand(op.kind) ? operands[next++][at(op.operand, index)] : 0;
    x = apply(op, x, y);
  }
  return x;
}

struct Inputs {
  const void* src;
  const void* weights;
  const float* bias;
  const std::vector<std::vector<float>>* operands;
};

/// Packs the weights, runs the primitive on `threads` threads; the result, untouched places NaN.
template <class T>
std::vector<T> run(const Primitive& primitive, const Inputs& in, const Operand& dst, int threads) {
  std::vector<char> packed(primitive.weights_bytes());
  const void* weights = in.weights;
  if (!primitive.weights_format().empty()) {
    EXPECT_TRUE(primitive.pack_weights(weights, packed.data()));
    weights = packed.data();
  }
  const auto pool = make_thread_pool(threads);
  std::vector<std::vector<char>> scratch(static_cast<std::size_t>(threads));
  std::vector<void*> scratch_of;
  for (auto& s : scratch) {
    s.resize(primitive.scratch_bytes());
    scratch_of.push_back(s.data());
  }
  std::vector<const void*> operands;
  for (const auto& o : *in.operands) operands.push_back(o.data());
  std::vector<T> out(extent_of(dst), std::numeric_limits<T>::quiet_NaN());
  const Buffers buffers{in.src, weights, in.bias, out.data(), operands.data()};
  EXPECT_EQ(primitive.execute(buffers, scratch_of.data(), *pool), 0);
  return out;
}

/// Compares with what `expected(index)` gives, at 1, 2 and 3 parts, and the bits between these where `same_bits`.
template <class T, class Spec, class Make, class Expected>
void check_parts(Spec spec, Make make, const Inputs& in, Expected expected, bool cuts, bool same_bits) {
  std::vector<double> wanted;
  for_each(spec.dst.dims, [&](const Shape& index) { wanted.push_back(expected(index)); });
  std::vector<T> first;
  for (const int parts : {1, 2, 3}) {
    spec.parts = parts;
    const Made made = make(spec);
    ASSERT_TRUE(made.primitive) << made.declined;
    SCOPED_TRACE(made.primitive->name() + " in " + std::to_string(made.primitive->parts()) + " parts of " +
                 std::to_string(parts));
    if (cuts) {
      EXPECT_GE(made.primitive->parts(), parts);
    }
    const std::vector<T> out = run<T>(*made.primitive, in, spec.dst, parts);
    int wrong = 0;
    std::size_t next = 0;
    for_each(spec.dst.dims, [&](const Shape& index) {
      const double want = wanted[next++];
      const auto got = static_cast<double>(out[at(spec.dst, index)]);
      const bool good = std::is_integral_v<T> ? got == want : std::abs(got - want) <= 2e-5 + 2e-5 * std::abs(want);
      if (!good && ++wrong < 5) ADD_FAILURE() << index.to_string() << ": " << got << ", expected " << want;
    });
    EXPECT_EQ(wrong, 0);
    if (first.empty()) first = out;
    if (same_bits) {
      EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(T)), 0) << "bits differ from one part's";
    }
  }
}

// ---- matmul ----

Operand dense(DType dtype, const Shape& dims) { return {dtype, dims, row_major(dims)}; }
Operand transposed(DType dtype, const Shape& dims) {
  const int rank = dims.rank();
  Shape swapped = dims;
  std::swap(swapped[rank - 1], swapped[rank - 2]);
  Shape strides = row_major(swapped);
  std::swap(strides[rank - 1], strides[rank - 2]);
  return {dtype, dims, strides};
}

template <class A, class B, class C>
void check_matmul(const MatMulSpec& spec, bool cuts = true) {
  const std::vector<A> a = random_values<A>(extent_of(spec.a), 1);
  const std::vector<B> b = random_values<B>(extent_of(spec.b), 2);
  const int rank = spec.dst.dims.rank();
  const auto bias = random_values<float>(static_cast<std::size_t>(spec.dst.dims[rank - 1]), 3);
  const auto operands = random_operands(spec.post_ops);
  const Inputs in{a.data(), b.data(), spec.bias ? bias.data() : nullptr, &operands};
  check_parts<C>(
      spec, make_matmul, in,
      [&](const Shape& index) {
        double sum = spec.bias ? static_cast<double>(bias[static_cast<std::size_t>(index[rank - 1])]) : 0;
        Shape ia = index;
        Shape ib = index;
        for (std::int64_t k = 0; k < spec.a.dims[rank - 1]; ++k) {
          ia[rank - 1] = ib[rank - 2] = k;
          sum += static_cast<double>(a[at(spec.a, ia)]) * static_cast<double>(b[at(spec.b, ib)]);
        }
        return apply_all(spec.post_ops, operands, sum, index);
      },
      cuts, spec.dst.dims[rank - 1] >= 3 * 64 || (rank > 2 && spec.b.dims[rank - 3] > 1));
}

MatMulSpec matmul_f32(const Shape& a, const Shape& b, const Shape& dst) {
  MatMulSpec spec;
  spec.a = dense(DType::f32, a);
  spec.b = dense(DType::f32, b);
  spec.dst = dense(DType::f32, dst);
  return spec;
}

TEST(OneDnnMatMul, SizesConstantWeightsAndBias) {
  const Shape sizes[] = {{24, 1, 40}, {33, 17, 21}, {126, 64, 96}, {30, 512, 7}, {64, 300, 129}};
  for (const Shape& mkn : sizes) {
    for (const bool constant : {false, true}) {
      for (const bool bias : {false, true}) {
        SCOPED_TRACE(mkn.to_string());
        MatMulSpec spec = matmul_f32({mkn[0], mkn[1]}, {mkn[1], mkn[2]}, {mkn[0], mkn[2]});
        spec.constant_b = constant;
        spec.bias = bias;
        check_matmul<float, float, float>(spec);
      }
    }
  }
}

TEST(OneDnnMatMul, FewRowsAreCutOverColumns) {
  for (const std::int64_t rows : {1, 2, 5}) {
    MatMulSpec spec = matmul_f32({rows, 100}, {100, 200}, {rows, 200});
    spec.constant_b = true;
    spec.bias = true;
    spec.post_ops = {{.kind = Kind::relu}};
    // With AVX-512 oneDNN wants 64 or 128 columns plain where few rows are multiplied: then rows are cut, if there are.
    check_matmul<float, float, float>(spec, /*cuts=*/rows != 2);
  }
}

TEST(OneDnnMatMul, TransposedOperands) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      MatMulSpec spec = matmul_f32({40, 30}, {30, 50}, {40, 50});
      if (ta) spec.a = transposed(DType::f32, {40, 30});
      if (tb) spec.b = transposed(DType::f32, {30, 50});
      // The rows of a part of a transposed matrix lie apart, which not all of oneDNN's implementations take.
      check_matmul<float, float, float>(spec, !ta);
      spec.constant_b = true;
      check_matmul<float, float, float>(spec, !ta);
    }
  }
}

TEST(OneDnnMatMul, StridedRows) {
  MatMulSpec spec = matmul_f32({40, 30}, {30, 50}, {40, 50});
  spec.a.strides = {90, 1};  // a third of a fused query-key-value projection
  spec.dst.strides = {64, 1};
  check_matmul<float, float, float>(spec);
}

TEST(OneDnnMatMul, BatchesAndTheirBroadcasts) {
  const auto f32 = DType::f32;
  for (const std::int64_t batch : {2, 3, 7}) {
    check_matmul<float, float, float>(matmul_f32({batch, 20, 16}, {batch, 16, 24}, {batch, 20, 24}), false);
    check_matmul<float, float, float>(matmul_f32({1, 20, 16}, {batch, 16, 24}, {batch, 20, 24}), false);
    check_matmul<float, float, float>(matmul_f32({batch, 20, 16}, {1, 16, 24}, {batch, 20, 24}));
    MatMulSpec heads = matmul_f32({1, batch, 32, 16}, {1, batch, 16, 32}, {1, batch, 32, 32});
    heads.a.strides = {1, 16, batch * 16, 1};  // [1, T, H, D] seen as [1, H, T, D]
    heads.b.strides = {1, 16, 1, batch * 16};
    heads.post_ops = {{.kind = Kind::linear, .alpha = 0.25F},
                      {.kind = Kind::add, .operand = dense(f32, {1, 1, 32, 32})}};
    check_matmul<float, float, float>(heads, batch > 2);
  }
  MatMulSpec folded = matmul_f32({2, 3, 8, 16}, {1, 1, 16, 24}, {2, 3, 8, 24});
  folded.post_ops = {{.kind = Kind::add, .operand = dense(f32, {2, 3, 8, 24})},
                     {.kind = Kind::mul, .operand = dense(f32, {1, 1, 1, 24})}};
  folded.constant_b = true;
  check_matmul<float, float, float>(folded);
}

/// Whether a declined 8-bit primitive was declined rightly.
bool cpu_lacks_vnni(const std::string& reason) {
  std::ifstream cpu("/proc/cpuinfo");
  const std::string flags((std::istreambuf_iterator<char>(cpu)), {});
  return reason == "without VNNI oneDNN's 8-bit products saturate" && flags.find("vnni") == std::string::npos;
}

TEST(OneDnnMatMul, EightBit) {
  for (const DType a : {DType::u8, DType::i8}) {
    MatMulSpec spec = matmul_f32({40, 300}, {300, 70}, {40, 70});
    spec.a.dtype = a;
    spec.b.dtype = DType::i8;
    spec.dst.dtype = DType::i32;
    spec.constant_b = true;
    const Made made = make_matmul(spec);
    if (!made.primitive) {
      EXPECT_TRUE(cpu_lacks_vnni(made.declined)) << made.declined;
      continue;
    }
    if (a == DType::u8) check_matmul<std::uint8_t, std::int8_t, std::int32_t>(spec);
    if (a == DType::i8) check_matmul<std::int8_t, std::int8_t, std::int32_t>(spec);
  }
}

TEST(OneDnnMatMul, DeclinesWithAReason) {
  MatMulSpec spec = matmul_f32({4, 5}, {5, 6}, {4, 6});
  spec.a.dtype = DType::f64;
  EXPECT_EQ(make_matmul(spec).declined, "oneDNN is not used for f64 x f32 -> f32");
  EXPECT_EQ(make_matmul(matmul_f32({0, 5}, {5, 6}, {0, 6})).declined, "the result is empty");
  EXPECT_EQ(make_matmul(matmul_f32({4, 0}, {0, 6}, {4, 6})).declined, "the sum has no terms");
}

// ---- convolution ----

struct ConvCase {
  Shape src;      // [N, C, spatial…]
  Shape weights;  // as ONNX has them
  std::int64_t groups = 1;
  Shape strides, dilations, begin, end;
  bool transposed = false;
  bool channels_last = true;
  Shape output_padding{};
};

ConvSpec spec_of(const ConvCase& c) {
  ConvSpec spec;
  const int spatial = c.src.rank() - 2;
  Shape dst{c.src[0], c.transposed ? c.weights[1] * c.groups : c.weights[0]};
  for (int s = 0; s < spatial; ++s) {
    const std::int64_t reach = (c.weights[s + 2] - 1) * c.dilations[s] + 1;
    const std::int64_t extra = c.output_padding.empty() ? 0 : c.output_padding[s];
    dst.push_back(c.transposed ? (c.src[s + 2] - 1) * c.strides[s] + reach - c.begin[s] - c.end[s] + extra
                               : (c.src[s + 2] + c.begin[s] + c.end[s] - reach) / c.strides[s] + 1);
  }
  const auto strides = [&](const Shape& dims) { return c.channels_last ? channels_last(dims) : row_major(dims); };
  spec.src = {DType::f32, c.src, strides(c.src)};
  spec.weights = dense(DType::f32, c.weights);
  spec.dst = {DType::f32, dst, strides(dst)};
  spec.transposed = c.transposed;
  spec.groups = c.groups;
  spec.strides = c.strides;
  spec.dilations = c.dilations;
  spec.pads_begin = c.begin;
  return spec;
}

template <class S, class W>
double convolve(const ConvSpec& spec, const std::vector<S>& src, const std::vector<W>& weights, const Shape& index) {
  const int spatial = spec.src.dims.rank() - 2;
  const std::int64_t in_per_group = spec.src.dims[1] / spec.groups;
  const std::int64_t out_per_group = spec.dst.dims[1] / spec.groups;
  const std::int64_t group = index[1] / out_per_group;
  Shape taps = spec.weights.dims;
  taps[0] = in_per_group;
  taps[1] = 1;
  Shape is = index;
  Shape iw = taps;
  double sum = 0;
  for_each(taps, [&](const Shape& tap) {
    is[1] = group * in_per_group + tap[0];
    iw[0] = spec.transposed ? is[1] : index[1];
    iw[1] = spec.transposed ? index[1] % out_per_group : tap[0];
    for (int s = 0; s < spatial; ++s) iw[s + 2] = tap[s + 2];
    for (int s = 0; s < spatial; ++s) {
      std::int64_t x = 0;
      if (spec.transposed) {
        x = index[s + 2] + spec.pads_begin[s] - tap[s + 2] * spec.dilations[s];
        if (x % spec.strides[s] != 0) return;
        x /= spec.strides[s];
      } else {
        x = index[s + 2] * spec.strides[s] - spec.pads_begin[s] + tap[s + 2] * spec.dilations[s];
      }
      if (x < 0 || x >= spec.src.dims[s + 2]) return;
      is[s + 2] = x;
    }
    sum += static_cast<double>(src[at(spec.src, is)]) * static_cast<double>(weights[at(spec.weights, iw)]);
  });
  return sum;
}

template <class S = float, class W = float, class D = float>
void check_convolution(const ConvSpec& spec, bool cuts = true) {
  const auto src = random_values<S>(extent_of(spec.src), 4);
  const auto weights = random_values<W>(extent_of(spec.weights), 5);
  const auto bias = random_values<float>(static_cast<std::size_t>(spec.dst.dims[1]), 6);
  const auto operands = random_operands(spec.post_ops);
  const Inputs in{src.data(), weights.data(), spec.bias ? bias.data() : nullptr, &operands};
  check_parts<D>(
      spec, make_convolution, in,
      [&](const Shape& index) {
        const double b = spec.bias ? static_cast<double>(bias[static_cast<std::size_t>(index[1])]) : 0;
        return apply_all(spec.post_ops, operands, convolve(spec, src, weights, index) + b, index);
      },
      cuts, !spec.transposed);
}

TEST(OneDnnConvolution, ChannelsLast) {
  const ConvCase cases[] = {
      {{1, 16, 14, 14}, {32, 16, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 16, 14, 14}, {32, 16, 1, 1}, 1, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {{1, 16, 14, 15}, {32, 16, 1, 1}, 1, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
      {{1, 3, 30, 30}, {16, 3, 3, 3}, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}},  // a first layer
      {{1, 3, 31, 29}, {16, 3, 7, 7}, 1, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
      {{1, 1, 28, 28}, {8, 1, 5, 5}, 1, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
      {{1, 5, 9, 9}, {7, 5, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},       // odd channels
      {{1, 20, 9, 9}, {30, 20, 3, 3}, 1, {1, 1}, {2, 2}, {2, 2}, {2, 2}},    // dilated
      {{1, 8, 12, 12}, {8, 8, 3, 2}, 1, {1, 2}, {2, 1}, {0, 1}, {2, 0}},     // asymmetric everything
      {{1, 8, 12, 12}, {8, 8, 3, 3}, 1, {3, 3}, {1, 1}, {1, 1}, {0, 0}},     // input rows left over
      {{1, 8, 6, 6}, {8, 8, 3, 3}, 1, {1, 1}, {1, 1}, {2, 2}, {2, 2}},       // padding wider than needed
      {{1, 24, 14, 14}, {24, 1, 3, 3}, 24, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  // depthwise
      {{1, 24, 15, 14}, {24, 1, 5, 5}, 24, {2, 2}, {1, 1}, {2, 2}, {2, 2}},
      {{1, 20, 9, 9}, {20, 1, 3, 3}, 20, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
      {{1, 32, 10, 10}, {32, 8, 3, 3}, 4, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  // groups
      {{1, 6, 9, 9}, {10, 3, 3, 3}, 2, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 8, 9, 9}, {16, 8, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}},  // batches
      {{5, 8, 9, 9}, {16, 8, 3, 3}, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 16, 40}, {24, 16, 3}, 1, {1}, {1}, {1}, {1}},  // 1D
      {{2, 16, 41}, {24, 16, 5}, 1, {2}, {2}, {4}, {3}},
      {{1, 8, 6, 7, 8}, {8, 8, 3, 3, 3}, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},  // 3D
      {{1, 4, 6, 7, 8}, {8, 4, 1, 3, 2}, 1, {1, 2, 1}, {1, 1, 2}, {0, 1, 1}, {0, 0, 1}},
  };
  for (const ConvCase& c : cases) {
    SCOPED_TRACE(c.src.to_string() + " by " + c.weights.to_string() + " groups " + std::to_string(c.groups));
    ConvSpec spec = spec_of(c);
    const bool cuts = c.src[0] == 1;
    check_convolution(spec, cuts);
    spec.bias = true;
    spec.post_ops = {{.kind = Kind::relu, .alpha = 0.1F},
                     {.kind = Kind::add, .operand = spec.dst},
                     {.kind = Kind::clip, .alpha = -1, .beta = 1}};
    check_convolution(spec, cuts);
  }
}

TEST(OneDnnConvolution, EightBit) {
  for (const DType dtype : {DType::u8, DType::i8}) {
    ConvSpec spec = spec_of({{1, 16, 14, 14}, {32, 16, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
    spec.src.dtype = dtype;
    spec.weights.dtype = DType::i8;
    spec.dst.dtype = DType::i32;
    const Made made = make_convolution(spec);
    if (!made.primitive) {
      EXPECT_TRUE(cpu_lacks_vnni(made.declined)) << made.declined;
      continue;
    }
    if (dtype == DType::u8) check_convolution<std::uint8_t, std::int8_t, std::int32_t>(spec);
    if (dtype == DType::i8) check_convolution<std::int8_t, std::int8_t, std::int32_t>(spec);
  }
}

TEST(OneDnnConvolution, RowMajor) {
  ConvSpec spec = spec_of({{2, 16, 14, 14}, {32, 16, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, false});
  spec.bias = true;
  check_convolution(spec, false);
}

TEST(OneDnnConvolution, Transposed) {
  const ConvCase cases[] = {
      {{1, 16, 10, 10}, {16, 24, 2, 2}, 1, {2, 2}, {1, 1}, {0, 0}, {0, 0}, true},
      {{1, 16, 10, 9}, {16, 24, 3, 3}, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true, true, {1, 1}},
      {{1, 16, 10, 9}, {16, 8, 4, 4}, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true},
      {{1, 16, 10, 9}, {16, 8, 3, 3}, 1, {1, 1}, {2, 2}, {0, 0}, {1, 0}, true},
      {{1, 8, 10, 9}, {8, 8, 2, 2}, 2, {2, 2}, {1, 1}, {0, 0}, {0, 0}, true},
      {{2, 8, 20}, {8, 16, 4}, 1, {2}, {1}, {1}, {1}, true},
      {{1, 8, 5, 6, 7}, {8, 8, 2, 2, 2}, 1, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, true},
  };
  for (const ConvCase& c : cases) {
    SCOPED_TRACE(c.src.to_string() + " by " + c.weights.to_string() + " groups " + std::to_string(c.groups));
    ConvSpec spec = spec_of(c);
    check_convolution(spec, false);
    spec.bias = true;
    spec.post_ops = {{.kind = Kind::relu}};
    check_convolution(spec, false);
  }
}

TEST(OneDnnConvolution, PostOps) {
  const ConvCase c{{1, 16, 10, 10}, {16, 16, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Operand full = spec_of(c).dst;
  const Operand channel = dense(DType::f32, {1, 16, 1, 1});
  const PostOp ops[] = {
      {.kind = Kind::relu},
      {.kind = Kind::relu, .alpha = 0.2F},
      {.kind = Kind::elu, .alpha = 0.7F},
      {.kind = Kind::sigmoid},
      {.kind = Kind::tanh},
      {.kind = Kind::swish, .alpha = 1},
      {.kind = Kind::swish, .alpha = 1.702F},
      {.kind = Kind::hardswish, .alpha = 1.0F / 6, .beta = 0.5F},
      {.kind = Kind::hardsigmoid, .alpha = 0.2F, .beta = 0.5F},
      {.kind = Kind::clip, .alpha = 0, .beta = 6},
      {.kind = Kind::gelu_erf},
      {.kind = Kind::gelu_tanh},
      {.kind = Kind::mish},
      {.kind = Kind::softplus, .alpha = 1},
      {.kind = Kind::abs},
      {.kind = Kind::square},
      {.kind = Kind::linear, .alpha = 3, .beta = -1},
      {.kind = Kind::add, .operand = full},
      {.kind = Kind::sub, .operand = full},
      {.kind = Kind::mul, .operand = full},
      {.kind = Kind::div, .operand = full},
      {.kind = Kind::min, .operand = full},
      {.kind = Kind::max, .operand = full},
      {.kind = Kind::add, .operand = channel},
      {.kind = Kind::mul, .operand = channel},
      {.kind = Kind::mul, .operand = dense(DType::f32, {1, 1, 1, 1})},
  };
  for (const PostOp& op : ops) {
    SCOPED_TRACE(static_cast<int>(op.kind));
    ConvSpec spec = spec_of(c);
    spec.post_ops = {op};
    check_convolution(spec);
    MatMulSpec matmul = matmul_f32({40, 24}, {24, 50}, {40, 50});
    PostOp flat = op;
    if (has_operand(op.kind)) flat.operand = dense(DType::f32, op.operand.dims[2] == 1 ? Shape{1, 50} : Shape{40, 50});
    matmul.post_ops = {flat};
    check_matmul<float, float, float>(matmul);
  }
  for (const Kind kind : {Kind::exp, Kind::sqrt}) {
    ConvSpec spec = spec_of(c);
    spec.post_ops = {{.kind = Kind::linear, .alpha = 0.125F}, {.kind = Kind::abs}, {.kind = kind}};
    check_convolution(spec);
  }
}

TEST(OneDnnConvolution, DeclinesWithAReason) {
  ConvSpec spec = spec_of({{1, 4, 5, 5}, {4, 4, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  ConvSpec half = spec;
  half.src.dtype = DType::f16;
  EXPECT_EQ(make_convolution(half).declined, "oneDNN is not used for f16 by f32 -> f32");
  ConvSpec mixed = spec;
  mixed.src.strides = row_major(mixed.src.dims);
  EXPECT_EQ(make_convolution(mixed).declined, "oneDNN has only its reference implementation");
  ConvSpec cropped = spec;
  cropped.pads_begin = {-1, 1};
  EXPECT_EQ(make_convolution(cropped).declined, "oneDNN has no negative padding");
}

// ---- pooling ----

struct PoolCase {
  Shape src;  // [N, C, spatial…]
  Shape kernel, strides, dilations, begin, end;
  bool ceil = false;
};

PoolSpec spec_of(const PoolCase& c, bool counts_padding) {
  PoolSpec spec;
  Shape dst{c.src[0], c.src[1]};
  for (int s = 0; s < c.kernel.rank(); ++s) {
    const std::int64_t span = (c.kernel[s] - 1) * c.dilations[s] + 1;
    const std::int64_t room = c.src[s + 2] + c.begin[s] + c.end[s] - span;
    dst.push_back((c.ceil ? (room + c.strides[s] - 1) / c.strides[s] : room / c.strides[s]) + 1);
  }
  spec.src = {DType::f32, c.src, channels_last(c.src)};
  spec.dst = {DType::f32, dst, channels_last(dst)};
  spec.kernel = c.kernel;
  spec.strides = c.strides;
  spec.dilations = c.dilations;
  spec.pads_begin = c.begin;
  spec.pads_end = c.end;
  spec.counts_padding = counts_padding;
  return spec;
}

double average(const PoolSpec& spec, const std::vector<float>& src, const Shape& index) {
  Shape is = index;
  double sum = 0;
  std::int64_t count = 0;
  for_each(spec.kernel, [&](const Shape& tap) {
    bool inside = true;
    for (int s = 0; s < spec.kernel.rank(); ++s) {
      is[s + 2] = index[s + 2] * spec.strides[s] - spec.pads_begin[s] + tap[s] * spec.dilations[s];
      inside = inside && is[s + 2] >= 0 && is[s + 2] < spec.src.dims[s + 2];
    }
    if (inside) sum += static_cast<double>(src[at(spec.src, is)]);
    count += static_cast<std::int64_t>(inside || spec.counts_padding);
  });
  return sum / static_cast<double>(count);
}

void check_pooling(const PoolSpec& spec, bool cuts) {
  const auto src = random_values<float>(extent_of(spec.src), 7);
  const auto operands = random_operands(spec.post_ops);
  check_parts<float>(
      spec, make_pooling, {src.data(), nullptr, nullptr, &operands},
      [&](const Shape& index) { return apply_all(spec.post_ops, operands, average(spec, src, index), index); }, cuts,
      true);
}

TEST(OneDnnPooling, Averages) {
  const PoolCase cases[] = {
      {{1, 16, 14, 14}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
      {{1, 16, 15, 13}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 20, 15, 13}, {3, 2}, {1, 3}, {1, 1}, {2, 0}, {0, 1}},  // asymmetric everything, odd channels
      {{3, 8, 9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {{2, 16, 33}, {4}, {2}, {1}, {1}, {1}},
      {{1, 16, 6, 7, 8}, {2, 2, 2}, {2, 1, 2}, {1, 1, 1}, {0, 1, 0}, {0, 0, 0}},
  };
  for (const PoolCase& c : cases) {
    SCOPED_TRACE(c.src.to_string() + " under " + c.kernel.to_string());
    for (const bool counts_padding : {false, true}) {
      PoolSpec spec = spec_of(c, counts_padding);
      check_pooling(spec, c.src[0] == 1);
      spec.post_ops = {{.kind = Kind::relu, .alpha = 0.1F}, {.kind = Kind::add, .operand = spec.dst}};
      check_pooling(spec, c.src[0] == 1);
    }
  }
  check_pooling(spec_of({{1, 16, 8, 8}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, true}, false), true);
}

TEST(OneDnnPooling, DeclinesWithAReason) {
  const PoolCase c{{1, 16, 8, 8}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {0, 0}, true};
  EXPECT_EQ(make_pooling(spec_of(c, true)).declined, "a window reaches beyond the padding");
  PoolCase wide = c;
  wide.begin = {3, 0};
  EXPECT_EQ(make_pooling(spec_of(wide, false)).declined, "a window would see padding only");
  PoolCase cropped = c;
  cropped.begin = {0, -1};
  EXPECT_EQ(make_pooling(spec_of(cropped, false)).declined, "oneDNN has no negative padding");
  PoolSpec half = spec_of(c, false);
  half.src.dtype = DType::f16;
  EXPECT_EQ(make_pooling(half).declined, "oneDNN is not used for averages of f16");
  PoolSpec rows = spec_of(c, false);
  rows.src.strides = row_major(rows.src.dims);
  EXPECT_EQ(make_pooling(rows).declined, "oneDNN has only its reference implementation");
}

// ---- a good guest ----

TEST(OneDnn, WeightFormatsAreEqualWhereWeightsCanBeShared) {
  ConvSpec small = spec_of({{1, 32, 14, 14}, {32, 32, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  ConvSpec large = spec_of({{2, 32, 20, 28}, {32, 32, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  const Made a = make_convolution(small);
  const Made b = make_convolution(large);
  ASSERT_TRUE(a.primitive && b.primitive);
  EXPECT_FALSE(a.primitive->weights_format().empty());
  EXPECT_EQ(a.primitive->weights_format(), b.primitive->weights_format());
  EXPECT_GE(a.primitive->weights_bytes(), 32 * 32 * 9 * sizeof(float));
  ConvSpec wider = spec_of({{1, 16, 14, 14}, {32, 16, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  EXPECT_NE(make_convolution(wider).primitive->weights_format(), a.primitive->weights_format());
  ConvSpec transposed = small;
  transposed.transposed = true;  // its weights lie the other way round
  EXPECT_NE(make_convolution(transposed).primitive->weights_format(), a.primitive->weights_format());
}

TEST(OneDnn, LeavesTheHostsOpenMpSettings) {
  // Of the OpenMP runtime that oneDNN has brought into this process.
  const auto get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  const auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  ASSERT_TRUE(get != nullptr && set != nullptr);
  const int before = get();
  for (const int threads : {1, 5}) {
    set(threads);
    MatMulSpec spec = matmul_f32({16, 8}, {8, 8}, {16, 8});
    const Made made = make_matmul(spec);
    EXPECT_EQ(get(), threads);
    const std::vector<float> a(16 * 8, 1);
    const std::vector<std::vector<float>> none;
    const auto out = run<float>(*made.primitive, {a.data(), a.data(), nullptr, &none}, spec.dst, 1);
    EXPECT_EQ(out[0], 8);
    EXPECT_EQ(get(), threads);
    ConvSpec conv = spec_of({{1, 4, 5, 5}, {4, 4, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
    const Made convolution = make_convolution(conv);
    std::vector<float> packed(convolution.primitive->weights_bytes() / sizeof(float));
    EXPECT_TRUE(convolution.primitive->pack_weights(std::vector<float>(144).data(), packed.data()));
    EXPECT_EQ(get(), threads);
  }
  set(before);
}

TEST(OneDnnThreads, OnePrimitiveServesManyThreads) {
  MatMulSpec spec = matmul_f32({64, 64}, {64, 64}, {64, 64});
  spec.parts = 2;
  const Made made = make_matmul(spec);
  const auto a = random_values<float>(64 * 64, 1);
  const std::vector<std::vector<float>> none;
  const Inputs in{a.data(), a.data(), nullptr, &none};
  const auto expected = run<float>(*made.primitive, in, spec.dst, 1);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        if (run<float>(*made.primitive, in, spec.dst, 2) != expected) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

std::int64_t resident_kib() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

TEST(OneDnnSlow, ThousandsOfShapesLeaveNoMemoryBehind) {
  const auto make_some = [](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      ConvSpec spec = spec_of({{1, 16, 8 + i % 40, 8 + i / 40}, {16, 16, 3, 3}, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
      ASSERT_TRUE(make_convolution(spec).primitive);
      ASSERT_TRUE(make_matmul(matmul_f32({i, 64}, {64, 32}, {i, 32})).primitive);
    }
  };
  make_some(1, 200);
  const std::int64_t before = resident_kib();
  make_some(201, 1000);
  EXPECT_LT(resident_kib() - before, 6 * 1024);
}

}  // namespace
}  // namespace lathe::onednn
