// Signals: windows, mel filter banks, and the discrete Fourier transform of whole signals and of frames.
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/plain.h"

namespace lathe::ops {
namespace {

using Complex = std::complex<double>;

constexpr std::int64_t kMostSamples = std::int64_t{1} << 32;

/// The one integer that input i holds.
std::int64_t scalar_int(const OpView& op, int i, std::string_view what) {
  const std::vector<std::int64_t> values = op.ints(i);
  op.require(values.size() == 1, "{} must be one value, got {}", what, values.size());
  return values[0];
}

std::int64_t scalar_extent(const OpView& op, int i, std::string_view what, std::int64_t least) {
  const std::int64_t value = scalar_int(op, i, what);
  op.require(value >= least && value < kMostSamples, "{} must be between {} and {}, got {}", what, least,
             kMostSamples - 1, value);
  return value;
}

DType stated_dtype(const OpView& op) {
  const std::int64_t code = op.i("output_datatype");
  const DType dtype = code > 0 && code < DType::kCount ? DType(static_cast<DType::Code>(code)) : DType();
  op.require(dtype.is_float() || dtype.is_integer(), "output_datatype {} is no number type", code);
  return dtype;
}

// ---- windows: sums of cosines ----

constexpr Attribute kWindowAttributes[] = {{"output_datatype", 1}, {"periodic", 1}};

Facts infer_window(const OpView& op) { return {Fact(stated_dtype(op), {scalar_extent(op, 0, "size", 0)})}; }

/// a0 − a1 · cos φ + a2 · cos 2φ, with φ once around the window.
std::vector<ValueId> lower_window(const OpView& op, Builder& b, double a0, double a1, double a2) {
  const auto number = [&](double v) { return b.scalar(DType::f64, v); };
  const ValueId size = b.reshape(b.cast(op.id(0), DType::i64), std::vector<std::int64_t>{1});
  const ValueId length = b.sub(b.cast(size, DType::f64), number(op.i("periodic") != 0 ? 0 : 1));
  const ValueId around = b.mul(b.cast(b.counted(size), DType::f64), number(2 * std::numbers::pi));
  const ValueId angle =
      b.op("Where", {b.op("Greater", {length, number(0)}), b.div(around, length), number(std::numbers::pi)});
  const auto cosine = [&](double weight, ValueId of) { return b.mul(number(weight), b.op("Cos", {of})); };
  ValueId y = b.sub(number(a0), cosine(a1, angle));
  if (a2 != 0) y = b.add(y, cosine(a2, b.mul(angle, number(2))));
  const DType dtype = stated_dtype(op);
  // An integer window is what the float32 one is cut off to: 1 - 1e-16 must not become 0.
  return {b.cast(dtype.is_integer() ? b.cast(y, DType::f32) : y, dtype)};
}

std::vector<ValueId> lower_hann(const OpView& op, Builder& b) { return lower_window(op, b, 0.5, 0.5, 0); }
std::vector<ValueId> lower_hamming(const OpView& op, Builder& b) {
  return lower_window(op, b, 25.0 / 46, 21.0 / 46, 0);
}
std::vector<ValueId> lower_blackman(const OpView& op, Builder& b) { return lower_window(op, b, 0.42, 0.5, 0.08); }

// ---- MelWeightMatrix: triangles that are even on the mel scale ----

constexpr Attribute kMelAttributes[] = {{"output_datatype", 1}};

struct MelBank {
  std::int64_t bins, dft_length, sample_rate;
};

MelBank mel_bank(const OpView& op) {
  return {scalar_extent(op, 0, "num_mel_bins", 0), scalar_extent(op, 1, "dft_length", 0),
          scalar_extent(op, 2, "sample_rate", 1)};
}

Facts infer_mel(const OpView& op) {
  const MelBank bank = mel_bank(op);
  for (int i : {3, 4})
    op.require(op.in(i).dtype.is_float() && op.in(i).shape.elements() == 1,
               "the edges must be one floating-point value");
  return {Fact(stated_dtype(op), {bank.dft_length / 2 + 1, bank.bins})};
}

void kernel_mel(KernelContext& ctx) {
  const MelBank bank{ctx.in(0).integer(0), ctx.in(1).integer(0), ctx.in(2).integer(0)};
  const std::int64_t rows = bank.dft_length / 2 + 1;
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(ctx.in(3).number(0)), high = mel(ctx.in(4).number(0));
  const double step = (high - low) / static_cast<double>(bank.bins + 2);
  std::vector<std::int64_t> edges;
  for (std::int64_t i = 0; i < bank.bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1);
    const double row =
        std::floor(static_cast<double>(bank.dft_length + 1) * hertz / static_cast<double>(bank.sample_rate));
    if (!(row >= 0 && row < static_cast<double>(rows))) {
      ctx.error(ErrorCode::invalid_argument, "an edge of {} hertz lies outside the spectrum of {} bins", hertz, rows);
    }
    edges.push_back(static_cast<std::int64_t>(row));
  }
  Tensor wide(DType::f64, ctx.out(0).shape());
  auto weights = wide.mutable_view<double>();
  for (std::int64_t i = 0; i < bank.bins; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t left = edges[at], center = edges[at + 1], right = edges[at + 2];
    const auto set = [&](std::int64_t row, double v) { weights[static_cast<std::size_t>(row * bank.bins + i)] = v; };
    for (std::int64_t j = left; j < center; ++j)
      set(j, static_cast<double>(j - left) / static_cast<double>(center - left));
    set(center, 1);
    for (std::int64_t j = center + 1; j < right; ++j)
      set(j, static_cast<double>(right - j) / static_cast<double>(right - center));
  }
  assign(ctx.out(0), wide);
}

// ---- the transform: Cooley and Tukey's by the smallest factor, Bluestein's where a large prime is left ----

void transform(std::vector<Complex>& x, bool inverse);

std::size_t smallest_factor(std::size_t n) {
  for (std::size_t f = 2; f * f <= n; ++f) {
    if (n % f == 0) return f;
  }
  return n;
}

Complex root(std::uint64_t k, std::uint64_t n, bool inverse) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  return {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
}

void transform_directly(std::vector<Complex>& x, bool inverse) {
  const std::size_t n = x.size();
  std::vector<Complex> roots(n), y(n);
  for (std::size_t k = 0; k < n; ++k) roots[k] = root(k, n, inverse);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) y[k] += x[i] * roots[k * i % n];
  }
  x.swap(y);
}

/// A transform of prime length as a convolution of a length that is a power of two.
void transform_as_convolution(std::vector<Complex>& x, bool inverse) {
  const std::size_t n = x.size();
  std::size_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  std::vector<Complex> chirp(n), a(m), b(m);
  for (std::uint64_t k = 0; k < n; ++k) {
    chirp[k] = root(k * k % (2 * n), 2 * n, inverse);
    a[k] = x[k] * chirp[k];
    b[k] = std::conj(chirp[k]);
    if (k > 0) b[m - k] = b[k];
  }
  transform(a, false);
  transform(b, false);
  for (std::size_t k = 0; k < m; ++k) a[k] *= b[k];
  transform(a, true);
  for (std::size_t k = 0; k < n; ++k) x[k] = a[k] * chirp[k] / static_cast<double>(m);
}

/// The sums without the 1/n of the inverse.
void transform(std::vector<Complex>& x, bool inverse) {
  const std::size_t n = x.size();
  if (n <= 1) return;
  const std::size_t factor = smallest_factor(n);
  if (factor == n) return n <= 64 ? transform_directly(x, inverse) : transform_as_convolution(x, inverse);
  const std::size_t rest = n / factor;
  std::vector<std::vector<Complex>> parts(factor, std::vector<Complex>(rest));
  for (std::size_t i = 0; i < n; ++i) parts[i % factor][i / factor] = x[i];
  for (auto& part : parts) transform(part, inverse);
  std::vector<Complex> turned(factor);
  for (std::size_t k = 0; k < rest; ++k) {
    for (std::size_t f = 0; f < factor; ++f) turned[f] = parts[f][k] * root(f * k, n, inverse);
    transform_directly(turned, inverse);
    for (std::size_t q = 0; q < factor; ++q) x[q * rest + k] = turned[q];
  }
}

// ---- DFT(x, dft_length, axis): the last axis holds a real, or a real and an imaginary part ----

constexpr Attribute kDftAttributes[] = {{"inverse", 0}, {"onesided", 0}};

struct Dft {
  int axis;
  std::int64_t length;  // of the transform
  std::int64_t bins;    // along the output's axis
  bool inverse, onesided;
};

Dft read_dft(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() >= 2 && (x.back() == 1 || x.back() == 2), "x must end in an axis of 1 or 2 parts, got shape {}",
             x);
  const bool inverse = op.i("inverse") != 0, onesided = op.i("onesided") != 0;
  const int axis = op.axis(op.has(2) ? scalar_int(op, 2, "axis") : -2, x.rank(), "axis");
  op.require(axis != x.rank() - 1, "axis must not be the last one, which holds the parts");
  op.require(!onesided || inverse || x.back() == 1, "a one-sided transform needs a real signal");
  Dft d{axis, x[axis], 0, inverse, onesided};
  if (inverse && onesided) d.length = 2 * (x[axis] - 1);
  if (op.has(1)) d.length = scalar_extent(op, 1, "dft_length", 1);
  op.require(d.length >= 1 && d.length < kMostSamples, "a transform of {} values is not possible", d.length);
  d.bins = onesided && !inverse ? d.length / 2 + 1 : d.length;
  return d;
}

Facts infer_dft(const OpView& op) {
  const Dft d = read_dft(op);
  Shape out = op.in(0).shape;
  out[d.axis] = d.bins;
  out[out.rank() - 1] = d.inverse && d.onesided ? 1 : 2;
  return {Fact(op.in(0).dtype, out)};
}

/// A one-sided spectrum's other half: X[n − k] is the conjugate of X[k].
void complete_spectrum(std::vector<Complex>& x) {
  for (std::size_t k = x.size() / 2 + 1; k < x.size(); ++k) x[k] = std::conj(x[x.size() - k]);
}

void kernel_dft(KernelContext& ctx) {
  const Dft d = read_dft(ctx.op());
  const Tensor x = ctx.in(0).cast(DType::f64);
  Tensor y(DType::f64, ctx.out(0).shape());
  const int rank = x.shape().rank();
  const std::int64_t inner = extent_of(x.shape(), d.axis + 1, rank - 1), in_parts = x.shape().back(),
                     out_parts = y.shape().back();
  const std::int64_t in = x.shape()[d.axis];
  const double* from = x.view<double>().data();
  double* to = y.mutable_view<double>().data();
  ctx.parallel(extent_of(x.shape(), 0, d.axis) * inner, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Complex> signal;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t o = row / inner, i = row % inner;
      signal.assign(static_cast<std::size_t>(d.length), Complex());
      for (std::int64_t k = 0; k < std::min(in, d.length); ++k) {
        const double* part = from + ((o * in + k) * inner + i) * in_parts;
        signal[static_cast<std::size_t>(k)] = {part[0], in_parts == 2 ? part[1] : 0};
      }
      if (d.inverse && d.onesided) complete_spectrum(signal);
      transform(signal, d.inverse);
      const double scale = d.inverse ? 1 / static_cast<double>(d.length) : 1;
      for (std::int64_t k = 0; k < d.bins; ++k) {
        double* part = to + ((o * d.bins + k) * inner + i) * out_parts;
        part[0] = signal[static_cast<std::size_t>(k)].real() * scale;
        if (out_parts == 2) part[1] = signal[static_cast<std::size_t>(k)].imag() * scale;
      }
    }
  });
  assign(ctx.out(0), y);
}

// ---- STFT(signal, frame_step, window, frame_length) ----

constexpr Attribute kStftAttributes[] = {{"onesided", 1}};

struct Frames {
  std::int64_t step, length, count, bins;
};

Frames read_frames(const OpView& op) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() == 3 && (x[2] == 1 || x[2] == 2), "the signal must have shape batch x length x 1 or 2, got {}",
             x);
  Frames f{scalar_extent(op, 1, "frame_step", 1), x[1], 0, 0};
  if (op.has(2)) {
    op.require(op.in(2).rank() == 1, "the window must have one dim, got shape {}", op.in(2).shape);
    f.length = op.in(2).shape[0];
  }
  if (op.has(3)) {
    const std::int64_t stated = scalar_extent(op, 3, "frame_length", 1);
    op.require(!op.has(2) || stated == f.length, "frame_length is {}, but the window has {} values", stated, f.length);
    f.length = stated;
  }
  op.require(f.length >= 1 && f.length <= x[1], "frames of {} values do not fit a signal of {}", f.length, x[1]);
  f.count = (x[1] - f.length) / f.step + 1;
  f.bins = op.i("onesided") != 0 ? f.length / 2 + 1 : f.length;
  op.require(op.i("onesided") == 0 || x[2] == 1, "a one-sided transform needs a real signal");
  return f;
}

Facts infer_stft(const OpView& op) {
  const Frames f = read_frames(op);
  return {Fact(op.in(0).dtype, {op.in(0).shape[0], f.count, f.bins, 2})};
}

void kernel_stft(KernelContext& ctx) {
  const Frames f = read_frames(ctx.op());
  const Tensor x = ctx.in(0).cast(DType::f64);
  const Tensor window = ctx.has(2) ? ctx.in(2).cast(DType::f64) : Tensor();
  const std::int64_t samples = x.shape()[1], parts = x.shape()[2];
  Tensor y(DType::f64, ctx.out(0).shape());
  double* to = y.mutable_view<double>().data();
  ctx.parallel(x.shape()[0] * f.count, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Complex> frame(static_cast<std::size_t>(f.length));
    for (std::int64_t row = begin; row < end; ++row) {
      const double* from = x.view<double>().data() + (row / f.count * samples + row % f.count * f.step) * parts;
      for (std::int64_t i = 0; i < f.length; ++i) {
        const double weight = window.defined() ? window.view<double>()[static_cast<std::size_t>(i)] : 1;
        frame[static_cast<std::size_t>(i)] = Complex(from[i * parts], parts == 2 ? from[i * parts + 1] : 0) * weight;
      }
      transform(frame, false);
      for (std::int64_t k = 0; k < f.bins; ++k) {
        to[(row * f.bins + k) * 2] = frame[static_cast<std::size_t>(k)].real();
        to[(row * f.bins + k) * 2 + 1] = frame[static_cast<std::size_t>(k)].imag();
      }
    }
  });
  assign(ctx.out(0), y);
}

}  // namespace

extern const OpDef op_hann_window;
constinit const OpDef op_hann_window = {.name = "HannWindow",
                                        .attributes = kWindowAttributes,
                                        .forms = {17, 17},
                                        .takes = kIndices,
                                        .shape_inputs = 1U,
                                        .infer = infer_window,
                                        .lower = lower_hann};

extern const OpDef op_hamming_window;
constinit const OpDef op_hamming_window = {.name = "HammingWindow",
                                           .attributes = kWindowAttributes,
                                           .forms = {17, 17},
                                           .takes = kIndices,
                                           .shape_inputs = 1U,
                                           .infer = infer_window,
                                           .lower = lower_hamming};

extern const OpDef op_blackman_window;
constinit const OpDef op_blackman_window = {.name = "BlackmanWindow",
                                            .attributes = kWindowAttributes,
                                            .forms = {17, 17},
                                            .takes = kIndices,
                                            .shape_inputs = 1U,
                                            .infer = infer_window,
                                            .lower = lower_blackman};

extern const OpDef op_mel_weight_matrix;
constinit const OpDef op_mel_weight_matrix = {.name = "MelWeightMatrix",
                                              .inputs = 5,
                                              .attributes = kMelAttributes,
                                              .forms = {17, 17},
                                              .takes = {{kIndices, inputs(0, 1, 2)}, {kFloats, inputs(3, 4)}},
                                              .shape_inputs = 7U,
                                              .infer = infer_mel,
                                              .kernel = kernel_mel};

extern const OpDef op_dft;
constinit const OpDef op_dft = {.name = "DFT",
                                .inputs = {1, 3},
                                .attributes = kDftAttributes,
                                .forms = {17, 20},
                                .takes = {{kFloats, inputs(0)}, {kIndices, inputs(1)}, {DType::i64, inputs(2)}},
                                .shape_inputs = 6U,
                                .infer = infer_dft,
                                .kernel = kernel_dft};

extern const OpDef op_stft;
constinit const OpDef op_stft = {.name = "STFT",
                                 .inputs = {2, 4},
                                 .attributes = kStftAttributes,
                                 .forms = {17, 17},
                                 .takes = {{kFloats, inputs(0, 2)}, {kIndices, inputs(1, 3)}},
                                 .shape_inputs = (1U << 1) | (1U << 3),
                                 .infer = infer_stft,
                                 .kernel = kernel_stft};

}  // namespace lathe::ops
