// Random values: uniform and normal tensors, Bernoulli and Multinomial. With a seed every run gives the same values.
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "ops/plain.h"

namespace lathe::ops {
namespace {

/// splitmix64 (S. Vigna): every seed gives a full-period sequence of its own.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  /// In [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Mean 0, deviation 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

Generator generator(const OpView& op) {
  if (op.has_attr("seed")) return Generator(std::bit_cast<std::uint64_t>(op.f("seed")));
  static std::atomic<std::uint64_t> next{std::random_device{}()};
  return Generator(next.fetch_add(0x5851f42d4c957f2dULL));
}

DType stated_dtype(const OpView& op, DType otherwise) {
  if (!op.has_attr("dtype")) return otherwise;
  const std::int64_t code = op.i("dtype");
  op.require(code > 0 && code < DType::kCount, "dtype {} is no known dtype", code);
  return static_cast<DType::Code>(code);
}

template <class Draw>
void fill(KernelContext& ctx, const Draw& draw) {
  Tensor values(DType::f64, ctx.out(0).shape());
  std::int64_t i = 0;
  for (double& v : values.mutable_view<double>()) v = draw(i++);
  assign(ctx.out(0), values);
}

// ---- RandomUniform, RandomNormal and their …Like forms ----

#define LATHE_UNIFORM \
  {"dtype", AttrKind::integer}, {"high", 1.0}, {"low", 0.0}, { "seed", AttrKind::number }
#define LATHE_NORMAL \
  {"dtype", AttrKind::integer}, {"mean", 0.0}, {"scale", 1.0}, { "seed", AttrKind::number }
constexpr Attribute kUniformAttributes[] = {LATHE_UNIFORM, {"shape", AttrKind::integers, Attribute::kRequired}};
constexpr Attribute kNormalAttributes[] = {LATHE_NORMAL, {"shape", AttrKind::integers, Attribute::kRequired}};
constexpr Attribute kUniformLikeAttributes[] = {LATHE_UNIFORM};
constexpr Attribute kNormalLikeAttributes[] = {LATHE_NORMAL};
#undef LATHE_UNIFORM
#undef LATHE_NORMAL

Facts checked(const OpView& op, DType dtype, const Shape& shape) {
  op.require(dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16,
             "dtype must be f16, bf16, f32 or f64, got {}", dtype);
  return {Fact(dtype, shape)};
}

Facts infer_random(const OpView& op) {
  const auto dims = op.attr_ints("shape");
  op.require(dims.size() <= Shape::kMaxRank, "shape must have at most {} dims, got {}", Shape::kMaxRank, dims.size());
  return checked(op, stated_dtype(op, DType::f32), Shape(dims));
}

Facts infer_random_like(const OpView& op) { return checked(op, stated_dtype(op, op.in(0).dtype), op.in(0).shape); }

void kernel_uniform(KernelContext& ctx) {
  Generator g = generator(ctx.op());
  const double low = ctx.op().f("low"), high = ctx.op().f("high");
  fill(ctx, [&](std::int64_t) { return low + (high - low) * g.uniform(); });
}

void kernel_normal(KernelContext& ctx) {
  Generator g = generator(ctx.op());
  const double mean = ctx.op().f("mean"), scale = ctx.op().f("scale");
  fill(ctx, [&](std::int64_t) { return mean + scale * g.normal(); });
}

// ---- Bernoulli: 1 with the probability that x says ----

constexpr Attribute kBernoulliAttributes[] = {{"dtype", AttrKind::integer}, {"seed", AttrKind::number}};

Facts infer_bernoulli(const OpView& op) {
  const DType dtype = stated_dtype(op, op.in(0).dtype);
  op.require(dtype != DType::string && !dtype.is_complex(), "dtype must be of real numbers or bool, got {}", dtype);
  return {Fact(dtype, op.in(0).shape)};
}

void kernel_bernoulli(KernelContext& ctx) {
  Generator g = generator(ctx.op());
  fill(ctx, [&](std::int64_t i) { return g.uniform() < ctx.in(0).number(i) ? 1.0 : 0.0; });
}

// ---- Multinomial: classes drawn by unnormalized log probabilities [batch, classes] ----

constexpr Attribute kMultinomialAttributes[] = {
    {"dtype", AttrKind::integer}, {"sample_size", 1}, {"seed", AttrKind::number}};

Facts infer_multinomial(const OpView& op) {
  const Fact& x = op.in(0);
  op.require(x.dtype.is_float() && x.rank() == 2 && x.shape[1] > 0,
             "x must be floating point of shape batch x classes, got {}", x.to_string());
  const DType dtype = stated_dtype(op, DType::i32);
  op.require(dtype == DType::i32 || dtype == DType::i64, "dtype must be i32 or i64, got {}", dtype);
  op.require(op.i("sample_size") >= 0, "sample_size must not be negative, got {}", op.i("sample_size"));
  return {Fact(dtype, {x.shape[0], op.i("sample_size")})};
}

void kernel_multinomial(KernelContext& ctx) {
  Generator g = generator(ctx.op());
  const Tensor x = ctx.in(0).cast(DType::f64);
  const auto logits = x.view<double>();
  const std::int64_t classes = x.shape()[1], samples = ctx.op().i("sample_size");
  std::vector<double> sums(static_cast<std::size_t>(classes));
  fill(ctx, [&](std::int64_t i) {
    const double* row = logits.data() + i / samples * classes;
    if (i % samples == 0) {
      const double most = *std::max_element(row, row + classes);
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sums[static_cast<std::size_t>(c)] = sum += std::exp(row[c] - most);
    }
    const auto drawn = std::upper_bound(sums.begin(), sums.end(), g.uniform() * sums.back()) - sums.begin();
    return static_cast<double>(std::min<std::int64_t>(drawn, classes - 1));
  });
}

}  // namespace

extern const OpDef op_random_uniform;
constinit const OpDef op_random_uniform = {.name = "RandomUniform",
                                           .inputs = 0,
                                           .attributes = kUniformAttributes,
                                           .forms = 22,
                                           .impure = true,
                                           .infer = infer_random,
                                           .kernel = kernel_uniform};

extern const OpDef op_random_normal;
constinit const OpDef op_random_normal = {.name = "RandomNormal",
                                          .inputs = 0,
                                          .attributes = kNormalAttributes,
                                          .forms = 22,
                                          .impure = true,
                                          .infer = infer_random,
                                          .kernel = kernel_normal};

extern const OpDef op_random_uniform_like;
constinit const OpDef op_random_uniform_like = {.name = "RandomUniformLike",
                                                .attributes = kUniformLikeAttributes,
                                                .forms = 22,
                                                .takes = kAny,
                                                .impure = true,
                                                .infer = infer_random_like,
                                                .kernel = kernel_uniform};

extern const OpDef op_random_normal_like;
constinit const OpDef op_random_normal_like = {.name = "RandomNormalLike",
                                               .attributes = kNormalLikeAttributes,
                                               .forms = 22,
                                               .takes = kAny,
                                               .impure = true,
                                               .infer = infer_random_like,
                                               .kernel = kernel_normal};

extern const OpDef op_bernoulli;
constinit const OpDef op_bernoulli = {.name = "Bernoulli",
                                      .attributes = kBernoulliAttributes,
                                      .forms = {15, 22},
                                      .takes = kFloats,
                                      .impure = true,
                                      .infer = infer_bernoulli,
                                      .kernel = kernel_bernoulli};

extern const OpDef op_multinomial;
constinit const OpDef op_multinomial = {.name = "Multinomial",
                                        .attributes = kMultinomialAttributes,
                                        .forms = {7, 22},
                                        .takes = kFloats,
                                        .impure = true,
                                        .infer = infer_multinomial,
                                        .kernel = kernel_multinomial};

}  // namespace lathe::ops
