// Recurrent layers: RNN, GRU, LSTM and its dynamically quantized form. The input projection of all steps is one matrix
// product; what remains is a `lathe::…Sequence` operator that walks the steps.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "ops/plain.h"
#include "ops/vector.h"

namespace lathe::ops {
namespace {

// ---- activations ----

enum class Activation : std::uint8_t {
  affine,
  elu,
  hard_sigmoid,
  leaky_relu,
  relu,
  scaled_tanh,
  sigmoid,
  softplus,
  softsign,
  tanh,
  thresholded_relu,
};

struct ActivationKind {
  std::string_view name;  // lower case
  Activation kind;
  bool has_alpha, has_beta;
  double alpha, beta;
};

constexpr ActivationKind kActivations[] = {
    {"affine", Activation::affine, true, true, 1, 0},
    {"elu", Activation::elu, true, false, 1, 0},
    {"hardsigmoid", Activation::hard_sigmoid, true, true, 0.2, 0.5},
    {"leakyrelu", Activation::leaky_relu, true, false, 0.01, 0},
    {"relu", Activation::relu, false, false, 0, 0},
    {"scaledtanh", Activation::scaled_tanh, true, true, 1, 1},
    {"sigmoid", Activation::sigmoid, false, false, 0, 0},
    {"softplus", Activation::softplus, false, false, 0, 0},
    {"softsign", Activation::softsign, false, false, 0, 0},
    {"tanh", Activation::tanh, false, false, 0, 0},
    {"thresholdedrelu", Activation::thresholded_relu, true, false, 1, 0},
};

struct ActivationFn {
  Activation kind;
  double alpha, beta;
};

template <class T>
T activate(const ActivationFn& f, T x) {
  const T alpha = static_cast<T>(f.alpha), beta = static_cast<T>(f.beta);
  switch (f.kind) {
    case Activation::affine:
      return alpha * x + beta;
    case Activation::elu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case Activation::hard_sigmoid:
      return std::clamp<T>(alpha * x + beta, 0, 1);
    case Activation::leaky_relu:
      return x < 0 ? alpha * x : x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::scaled_tanh:
      return alpha * std::tanh(beta * x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::softplus:
      return std::max<T>(x, 0) + std::log1p(std::exp(-std::abs(x)));
    case Activation::softsign:
      return x / (1 + std::abs(x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::thresholded_relu:
      return x > alpha ? x : 0;
  }
  return x;
}

template <class T>
void activate(const ActivationFn& f, T* x, std::int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    if (f.kind == Activation::sigmoid) return sigmoid(x, count);
    if (f.kind == Activation::tanh) return tanh(x, count);
  }
  for (std::int64_t i = 0; i < count; ++i) x[i] = activate(f, x[i]);
}

// ---- what the node says ----

enum class Cell : std::uint8_t { rnn, gru, lstm };

constexpr int gates_of(Cell cell) { return cell == Cell::rnn ? 1 : cell == Cell::gru ? 3 : 4; }
constexpr int activations_of(Cell cell) { return cell == Cell::rnn ? 1 : cell == Cell::gru ? 2 : 3; }

struct Config {
  Cell cell;
  int directions = 1;
  bool first_reverse = false;
  std::array<ActivationFn, 6> activations{};  // activations_of(cell) for each direction
  double clip = 0;                            // 0: none
  bool flag = false;                          // GRU: linear_before_reset; LSTM: input_forget

  [[nodiscard]] bool reverse(std::int64_t direction) const { return first_reverse || direction == 1; }
  [[nodiscard]] const ActivationFn* of(std::int64_t direction) const {
    return activations.data() + direction * activations_of(cell);
  }
};

const ActivationKind& activation_kind(const OpView& op, std::string_view name) {
  const auto equal = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  for (const ActivationKind& k : kActivations) {
    if (std::equal(name.begin(), name.end(), k.name.begin(), k.name.end(), equal)) return k;
  }
  op.error("unknown activation '{}'", shown(name));
}

Config read_config(const OpView& op, Cell cell) {
  Config c{.cell = cell};
  const std::string_view direction = op.s("direction");
  op.require(direction == "forward" || direction == "reverse" || direction == "bidirectional",
             "direction must be forward, reverse or bidirectional, got '{}'", shown(direction));
  c.directions = direction == "bidirectional" ? 2 : 1;
  c.first_reverse = direction == "reverse";
  const auto named = op.attr_strings("activations");
  const auto each = static_cast<std::size_t>(activations_of(cell));
  const std::size_t wanted = each * static_cast<std::size_t>(c.directions);
  // The schema's default for RNN names two.
  op.require(named.empty() || named.size() == wanted || (cell == Cell::rnn && named.size() == 2),
             "activations must have {} names, got {}", wanted, named.size());
  const auto alphas = op.attr_floats("activation_alpha");
  const auto betas = op.attr_floats("activation_beta");
  std::size_t alpha = 0, beta = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    const bool gate = cell != Cell::rnn && i % each == 0;
    const ActivationKind& k =
        activation_kind(op, named.empty() ? std::string_view(gate ? "sigmoid" : "tanh") : std::string_view(named[i]));
    ActivationFn& f = c.activations[i];
    f = {k.kind, k.alpha, k.beta};
    if (k.has_alpha && alpha < alphas.size()) f.alpha = alphas[alpha++];
    if (k.has_beta && beta < betas.size()) f.beta = betas[beta++];
  }
  c.clip = op.has_attr("clip") ? op.f("clip") : 0;
  op.require(c.clip >= 0, "clip must not be negative, got {}", c.clip);
  if (cell == Cell::gru) c.flag = op.i("linear_before_reset") != 0;
  if (cell == Cell::lstm) c.flag = op.i("input_forget") != 0;
  return c;
}

// ---- the operators: shapes ----

/// Where inputs stand: the same order for all, GRU and RNN ending after the initial state.
enum Input { kX, kW, kR, kB, kLengths, kH, kC, kP };

struct Sizes {
  std::int64_t steps, batch, directions, hidden, input;
};

void require_shape(const OpView& op, int i, const Shape& expected, std::string_view what) {
  if (op.has(i))
    op.require(op.in(i).shape == expected, "{} must have shape {}, got {}", what, expected, op.in(i).shape);
}

bool batch_first(const OpView& op) { return op.has_attr("layout") && op.i("layout") != 0; }

/// Checks x, the states and what is shaped like them; `hidden` comes from the recurrence weights.
Sizes check_sizes(const OpView& op, const Config& c, std::int64_t hidden) {
  const Shape& x = op.in(kX).shape;
  op.require(x.rank() == 3, "x must have 3 dims, got shape {}", x);
  op.require(hidden > 0 && hidden < (std::int64_t{1} << 24), "the hidden size must be positive and below {}, got {}",
             1 << 24, hidden);
  if (op.has_attr("hidden_size")) {
    op.require(op.i("hidden_size") == hidden, "hidden_size is {}, but the recurrence weights say {}",
               op.i("hidden_size"), hidden);
  }
  const bool swap = batch_first(op);
  const Sizes s{x[swap ? 1 : 0], x[swap ? 0 : 1], c.directions, hidden, x[2]};
  require_shape(op, kB, {s.directions, 2 * gates_of(c.cell) * hidden}, "the bias");
  require_shape(op, kLengths, {s.batch}, "sequence_lens");
  const Shape state = swap ? Shape{s.batch, s.directions, hidden} : Shape{s.directions, s.batch, hidden};
  require_shape(op, kH, state, "initial_h");
  if (c.cell == Cell::lstm) {
    require_shape(op, kC, state, "initial_c");
    require_shape(op, kP, {s.directions, 3 * hidden}, "the peepholes");
  }
  return s;
}

Facts output_facts(const OpView& op, const Config& c, const Sizes& s, DType dtype) {
  const bool swap = batch_first(op);
  const Shape y =
      swap ? Shape{s.batch, s.steps, s.directions, s.hidden} : Shape{s.steps, s.directions, s.batch, s.hidden};
  const Shape state = swap ? Shape{s.batch, s.directions, s.hidden} : Shape{s.directions, s.batch, s.hidden};
  Facts facts = {Fact(dtype, y), Fact(dtype, state)};
  if (c.cell == Cell::lstm) facts.emplace_back(dtype, state);
  return facts;
}

template <Cell kCell>
Facts infer_layer(const OpView& op) {
  const Config c = read_config(op, kCell);
  const DType dtype = op.in(kX).dtype;
  const Shape& r = op.in(kR).shape;
  op.require(r.rank() == 3, "the recurrence weights must have 3 dims, got shape {}", r);
  const Sizes s = check_sizes(op, c, r[2]);
  require_shape(op, kW, {s.directions, gates_of(kCell) * s.hidden, s.input}, "the weights");
  require_shape(op, kR, {s.directions, gates_of(kCell) * s.hidden, s.hidden}, "the recurrence weights");
  return output_facts(op, c, s, dtype);
}

// ---- the operators: lowering ----

/// The attributes that a sequence operator shares with its layer.
Attributes sequence_attributes(const OpView& op) {
  Attributes a = op.node().attributes;
  a.erase("layout");
  a.erase("hidden_size");
  return a;
}

/// The three outputs as the layer's layout and dtype want them.
std::vector<ValueId> finish(const OpView& op, Builder& b, std::vector<ValueId> outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (batch_first(op)) {
      outputs[i] = i == 0 ? b.transpose(outputs[i], {2, 0, 1, 3}) : b.transpose(outputs[i], {1, 0, 2});
    }
    outputs[i] = b.cast(outputs[i], op.in(kX).dtype);
  }
  return outputs;
}

/// x with steps first, a state with directions first.
ValueId swapped(const OpView& op, Builder& b, ValueId v) {
  return v == kNone || !batch_first(op) ? v : b.transpose(v, {1, 0, 2});
}

ValueId maybe_cast(Builder& b, ValueId v, DType to) { return v == kNone ? kNone : b.cast(v, to); }

template <Cell kCell>
std::vector<ValueId> lower_layer(const OpView& op, Builder& b) {
  const DType compute = LoopBuilder::compute_type(op.in(kX).dtype);
  const ValueId x = b.cast(swapped(op, b, op.id(kX)), compute);
  // The weights of all directions side by side: [directions · gates · hidden, input].
  const ValueId w = b.cast(op.id(kW), compute);
  const ValueId rows = b.op("Mul", {b.shape_of(w, 0, 1), b.shape_of(w, 1, 2)});
  const ValueId all = b.reshape(w, b.concat({rows, b.shape_of(w, 2, 3)}, 0));
  const ValueId projected = b.matmul(x, b.transpose(all, {1, 0}));
  constexpr std::int64_t kGates = gates_of(kCell);
  // GRU multiplies its hidden gate apart from the others.
  const Attributes parts = {{"gates", kGates}, {"first_part", kCell == Cell::gru ? std::int64_t{2} : kGates}};
  const ValueId packed = b.op("lathe::PackRecurrence", {b.cast(op.id(kR), compute)}, parts);
  std::vector<ValueId> inputs = {projected, packed, maybe_cast(b, op.id(kB), compute), op.id(kLengths),
                                 maybe_cast(b, swapped(op, b, op.id(kH)), compute)};
  if constexpr (kCell == Cell::lstm) {
    inputs.push_back(maybe_cast(b, swapped(op, b, op.id(kC)), compute));
    inputs.push_back(maybe_cast(b, op.id(kP), compute));
  }
  constexpr std::string_view kName = kCell == Cell::rnn   ? "lathe::RnnSequence"
                                     : kCell == Cell::gru ? "lathe::GruSequence"
                                                          : "lathe::LstmSequence";
  return finish(op, b, b.ops(kName, std::move(inputs), op.outputs(), sequence_attributes(op)));
}

// ---- the sequence operators ----

enum SequenceInput {
  kProjected,
  kRecurrence,
  kBias,
  kSteps,
  kInitialH,
  kInitialC,
  kPeepholes,
  kScale,
  kZero,
  kSums,
  kLowest
};

template <Cell kCell>
Facts infer_sequence(const OpView& op) {
  const Config c = read_config(op, kCell);
  const Shape& projected = op.in(kProjected).shape;
  const Sizes s{projected[0], projected[1], c.directions, projected[2] / (gates_of(kCell) * c.directions), 0};
  return output_facts(op, c, s, op.in(kProjected).dtype);
}

/// One direction over rows [begin, end) of the batch: what it reads, what it carries.
template <class T>
struct Walk {
  const Config& config;
  std::int64_t direction, begin, end, steps, batch, hidden;
  const T* peepholes;  // null: none
  std::pmr::memory_resource* memory;
  std::pmr::vector<T> bias{memory};  // of every gate, both halves added up
  std::pmr::vector<T> hidden_bias{
      memory};  // GRU with linear_before_reset: the hidden gate's recurrent half, kept apart
  std::pmr::vector<T> h{memory}, c{memory}, gates{memory}, extra{memory};

  [[nodiscard]] std::int64_t rows() const { return end - begin; }
  [[nodiscard]] std::int64_t width() const { return gates_of(config.cell) * hidden; }
};

/// y[row] += x[row] · R[:, first gate … last gate) for every row, with R as PackRecurrence leaves it.
template <class T>
struct DenseRecurrence {
  const T* weights;
  std::int64_t hidden;

  void operator()(const T* x, std::int64_t rows, int first, int last, T* y, std::int64_t y_stride) const {
    add_vecmat(x, hidden, rows, weights + first * hidden * hidden, hidden, (last - first) * hidden, y, y_stride);
  }
};

/// The same with 8-bit weights as PackQuantizedRecurrence leaves them: the state of all rows is quantized to u8 with
/// one scale, as DynamicQuantizeLinear does it.
class QuantizedRecurrence {
 public:
  QuantizedRecurrence(const KernelContext& ctx, std::int64_t direction, std::int64_t hidden, std::int64_t columns,
                      std::pmr::memory_resource* memory)
      : hidden_(hidden),
        columns_(columns),
        groups_((hidden + 3) / 4),
        weights_(ctx.in<std::int8_t>(kRecurrence).data() + direction * groups_ * columns * 4),
        sums_(ctx.in<std::int32_t>(kSums).data() + direction * columns),
        has_lowest_(ctx.in<bool>(kLowest)[0]),
        scales_(static_cast<std::size_t>(columns), memory),
        zeros_(static_cast<std::size_t>(columns), memory),
        products_(static_cast<std::size_t>(columns), memory),
        values_(static_cast<std::size_t>(groups_ * 4), 0, memory),
        magnitudes_(static_cast<std::size_t>(groups_ * 4), 0, memory) {
    const Tensor &scale = ctx.in(kScale), &zero = ctx.in(kZero);
    const bool per_column = scale.shape().rank() == 2;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t from = per_column ? direction * columns + c : direction;
      const auto at = static_cast<std::size_t>(c);
      scales_[at] = static_cast<float>(scale.number(from));
      zeros_[at] = static_cast<std::int32_t>(zero.integer(from)) - (zero.dtype() == DType::u8 ? 128 : 0);
    }
  }

  void operator()(const float* x, std::int64_t rows, int, int, float* y, std::int64_t y_stride) {
    float least = 0, most = 0;
    range_with_zero(x, rows * hidden_, &least, &most);
    const float scale = least == most ? 1.0F : (most - least) / 255.0F;
    const float shift = std::nearbyint(-least / scale);
    const float zero = shift > 0.0F ? std::min(shift, 255.0F) : 0.0F;       // NaN where the range is infinite
    const std::int32_t zero_point = static_cast<std::int32_t>(zero) - 128;  // of values less 128
    const QuantizedRow quantized{values_.data(), magnitudes_.data()};
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int32_t total = quantize_row(x + row * hidden_, hidden_, scale, zero, quantized);
      integer_vecmat(quantized, weights_, groups_, columns_, sums_, has_lowest_, products_.data());
      add_dequantized(products_.data(), zero_point, sums_, zeros_.data(),
                      total - static_cast<std::int32_t>(hidden_) * zero_point, scale, scales_.data(), columns_,
                      y + row * y_stride);
    }
  }

 private:
  std::int64_t hidden_, columns_, groups_;
  const std::int8_t* weights_;
  const std::int32_t* sums_;  // of each column
  bool has_lowest_;
  std::pmr::vector<float> scales_;
  std::pmr::vector<std::int32_t> zeros_;  // u8 weights were made i8, 128 less
  std::pmr::vector<std::int32_t> products_;
  std::pmr::vector<std::int8_t> values_;
  std::pmr::vector<std::uint8_t> magnitudes_;
};

template <class T>
void clip(const Walk<T>& w, T* x, std::int64_t count) {
  if (w.config.clip == 0) return;
  const T bound = static_cast<T>(w.config.clip);
  for (std::int64_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -bound, bound);
}

template <class T>
void rnn_row(const Walk<T>& w, T* gates, T* h) {
  clip(w, gates, w.hidden);
  activate(w.config.of(w.direction)[0], gates, w.hidden);
  std::copy_n(gates, w.hidden, h);
}

/// Gates input, output, forget, cell.
template <class T>
void lstm_row(const Walk<T>& w, T* gates, T* h, T* c) {
  const std::int64_t n = w.hidden;
  const ActivationFn* f = w.config.of(w.direction);
  T *input = gates, *output = gates + n, *forget = gates + 2 * n, *cell = gates + 3 * n;
  if (w.peepholes) {
    for (std::int64_t i = 0; i < n; ++i) {
      input[i] += w.peepholes[i] * c[i];
      forget[i] += w.peepholes[2 * n + i] * c[i];
    }
  }
  clip(w, input, n);
  clip(w, forget, n);
  clip(w, cell, n);
  activate(f[0], input, n);
  activate(f[0], forget, n);
  activate(f[1], cell, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const T keep = w.config.flag ? 1 - input[i] : forget[i];
    c[i] = keep * c[i] + input[i] * cell[i];
    h[i] = c[i];
  }
  if (w.peepholes) {
    for (std::int64_t i = 0; i < n; ++i) output[i] += w.peepholes[n + i] * c[i];
  }
  clip(w, output, n);
  activate(f[0], output, n);
  activate(f[2], h, n);
  for (std::int64_t i = 0; i < n; ++i) h[i] *= output[i];
}

/// Gates update, reset, hidden: one step of every row. Rows that `active` leaves out keep their state.
template <class T, class Recurrence>
void gru_step(Walk<T>& w, Recurrence& recur, std::span<const std::int64_t> active) {
  const std::int64_t n = w.hidden;
  const ActivationFn* f = w.config.of(w.direction);
  T *gates = w.gates.data(), *h = w.h.data(), *extra = w.extra.data();
  recur(h, w.rows(), 0, 2, gates, 3 * n);
  if (w.config.flag) {
    for (std::int64_t row = 0; row < w.rows(); ++row) std::copy_n(w.hidden_bias.data(), n, extra + row * n);
    recur(h, w.rows(), 2, 3, extra, n);
  }
  for (std::int64_t row = 0; row < w.rows(); ++row) {
    T* update = gates + row * 3 * n;
    clip(w, update, 2 * n);
    activate(f[0], update, 2 * n);
    const T *reset = update + n, *state = h + row * n;
    T* kept = extra + row * n;
    for (std::int64_t i = 0; i < n; ++i) kept[i] = reset[i] * (w.config.flag ? kept[i] : state[i]);
  }
  if (!w.config.flag) recur(extra, w.rows(), 2, 3, gates + 2 * n, 3 * n);
  for (std::int64_t row : active) {
    T *update = gates + row * 3 * n, *candidate = update + 2 * n, *state = h + row * n;
    if (w.config.flag) {
      for (std::int64_t i = 0; i < n; ++i) candidate[i] += extra[row * n + i];
    }
    clip(w, candidate, n);
    activate(f[1], candidate, n);
    for (std::int64_t i = 0; i < n; ++i) state[i] = (1 - update[i]) * candidate[i] + update[i] * state[i];
  }
}

template <class T, class Recurrence>
void step(Walk<T>& w, Recurrence& recur, std::span<const std::int64_t> active) {
  if (w.config.cell == Cell::gru) return gru_step(w, recur, active);
  recur(w.h.data(), w.rows(), 0, gates_of(w.config.cell), w.gates.data(), w.width());
  for (std::int64_t row : active) {
    T *gates = w.gates.data() + row * w.width(), *h = w.h.data() + row * w.hidden;
    if (w.config.cell == Cell::lstm) {
      lstm_row(w, gates, h, w.c.data() + row * w.hidden);
    } else {
      rnn_row(w, gates, h);
    }
  }
}

template <class T>
const T* data_of(const KernelContext& ctx, int i) {
  return ctx.has(i) ? ctx.in<T>(i).data() : nullptr;
}

template <class T>
Walk<T> start(const KernelContext& ctx, const Config& config, std::int64_t direction, std::int64_t begin,
              std::int64_t end, std::pmr::memory_resource* memory) {
  const Shape& projected = ctx.in(kProjected).shape();
  const std::int64_t hidden = projected[2] / (gates_of(config.cell) * config.directions);
  Walk<T> w{config, direction, begin, end, projected[0], projected[1], hidden, nullptr, memory};
  const auto width = static_cast<std::size_t>(w.width());
  const auto elements = static_cast<std::size_t>(w.rows() * hidden);
  w.bias.assign(width, 0);
  w.hidden_bias.assign(static_cast<std::size_t>(hidden), 0);
  if (const T* bias = data_of<T>(ctx, kBias)) {
    bias += direction * 2 * w.width();
    for (std::size_t i = 0; i < width; ++i) w.bias[i] = bias[i] + bias[width + i];
    if (config.cell == Cell::gru && config.flag) {
      const std::size_t last = width - static_cast<std::size_t>(hidden);
      std::copy_n(bias + last, hidden, w.bias.data() + last);
      std::copy_n(bias + width + last, hidden, w.hidden_bias.data());
    }
  }
  if (const T* peepholes = config.cell == Cell::lstm ? data_of<T>(ctx, kPeepholes) : nullptr)
    w.peepholes = peepholes + direction * 3 * hidden;
  const std::int64_t first = (direction * w.batch + begin) * hidden;
  w.h.assign(elements, 0);
  w.c.assign(config.cell == Cell::lstm ? elements : 0, 0);
  w.extra.assign(config.cell == Cell::gru ? elements : 0, 0);
  w.gates.assign(static_cast<std::size_t>(w.rows()) * width, 0);
  if (const T* h = data_of<T>(ctx, kInitialH)) std::copy_n(h + first, elements, w.h.data());
  if (const T* c = config.cell == Cell::lstm ? data_of<T>(ctx, kInitialC) : nullptr)
    std::copy_n(c + first, elements, w.c.data());
  return w;
}

/// All steps of one direction for some rows of the batch; y outside a row's length is 0.
template <class T, class Recurrence>
void walk(const KernelContext& ctx, Walk<T> w, Recurrence recur) {
  const std::int64_t n = w.hidden, directions = w.config.directions;
  const T* projected = ctx.in<T>(kProjected).data();
  const std::int32_t* lengths = ctx.has(kSteps) ? ctx.in<std::int32_t>(kSteps).data() : nullptr;
  T* y = ctx.wants(0) ? ctx.out<T>(0).data() : nullptr;
  const auto y_row = [&](std::int64_t t, std::int64_t row) {
    return y + ((t * directions + w.direction) * w.batch + w.begin + row) * n;
  };
  std::pmr::vector<std::int64_t> active(w.memory), position(static_cast<std::size_t>(w.rows()), w.memory);
  active.reserve(position.size());
  for (std::int64_t s = 0; s < w.steps; ++s) {
    active.clear();
    for (std::int64_t row = 0; row < w.rows(); ++row) {
      T* gates = w.gates.data() + row * w.width();
      const std::int64_t length = lengths ? lengths[w.begin + row] : w.steps;
      if (s >= length) {
        std::fill_n(gates, w.width(), T{0});
        if (y) std::fill_n(y_row(s, row), n, T{0});
        continue;
      }
      active.push_back(row);
      const std::int64_t t = w.config.reverse(w.direction) ? length - 1 - s : s;
      position[static_cast<std::size_t>(row)] = t;
      const T* from = projected + ((t * w.batch + w.begin + row) * directions + w.direction) * w.width();
      for (std::int64_t i = 0; i < w.width(); ++i) gates[i] = from[i] + w.bias[static_cast<std::size_t>(i)];
    }
    step(w, recur, active);
    for (std::int64_t row : active) {
      if (y) std::copy_n(w.h.data() + row * n, n, y_row(position[static_cast<std::size_t>(row)], row));
    }
  }
  const std::int64_t first = (w.direction * w.batch + w.begin) * n;
  if (ctx.wants(1)) std::copy(w.h.begin(), w.h.end(), ctx.out<T>(1).data() + first);
  if (ctx.wants(2)) std::copy(w.c.begin(), w.c.end(), ctx.out<T>(2).data() + first);
}

void check_lengths(const KernelContext& ctx) {
  if (!ctx.has(kSteps)) return;
  const std::int64_t steps = ctx.in(kProjected).shape()[0];
  for (std::int32_t length : ctx.in<std::int32_t>(kSteps)) {
    if (length < 0 || length > steps)
      ctx.error(ErrorCode::out_of_range, "sequence length {} is outside [0, {}]", length, steps);
  }
}

template <Cell kCell, class T>
void run_sequence(KernelContext& ctx) {
  const Config config = read_config(ctx.op(), kCell);
  const std::int64_t batch = ctx.in(kProjected).shape()[1];
  const std::int64_t hidden = ctx.in(kProjected).shape()[2] / (gates_of(kCell) * config.directions);
  const std::int64_t packed = ctx.in(kRecurrence).shape()[1];
  ctx.parallel(config.directions * batch, 1,
               [&](std::int64_t begin, std::int64_t end, std::pmr::memory_resource* memory) {
                 for (std::int64_t i = begin; i < end;) {
                   const std::int64_t direction = i / batch;
                   const std::int64_t rows_end = std::min(end, (direction + 1) * batch);
                   walk(ctx, start<T>(ctx, config, direction, i % batch, rows_end - direction * batch, memory),
                        DenseRecurrence<T>{ctx.in<T>(kRecurrence).data() + direction * packed, hidden});
                   i = rows_end;
                 }
               });
}

template <Cell kCell>
void kernel_sequence(KernelContext& ctx) {
  check_lengths(ctx);
  if (ctx.in(kProjected).dtype() == DType::f64) return run_sequence<kCell, double>(ctx);
  run_sequence<kCell, float>(ctx);
}

void kernel_quantized_sequence(KernelContext& ctx) {
  check_lengths(ctx);
  const Config config = read_config(ctx.op(), Cell::lstm);
  const std::int64_t batch = ctx.in(kProjected).shape()[1];
  const std::int64_t columns = ctx.in(kProjected).shape()[2] / config.directions;
  ctx.parallel(config.directions, 1, [&](std::int64_t begin, std::int64_t end, std::pmr::memory_resource* memory) {
    for (std::int64_t d = begin; d < end; ++d) {
      walk(ctx, start<float>(ctx, config, d, 0, batch, memory),
           QuantizedRecurrence(ctx, d, columns / 4, columns, memory));
    }
  });
}

// ---- the recurrence weights in the order they are read ----

/// Where column c of row r stands in a matrix of column blocks.
std::int64_t block_position(std::int64_t r, std::int64_t c, std::int64_t rows, std::int64_t columns,
                            std::int64_t block) {
  const std::int64_t first = c / block * block;
  return first * rows + r * std::min(block, columns - first) + c - first;
}

constexpr Attribute kPackAttributes[] = {{"gates", AttrKind::integer, Attribute::kRequired},
                                         {"first_part", AttrKind::integer, Attribute::kRequired}};

/// R [directions, gates · hidden, hidden], transposed, in dense blocks: its first gates and the others each on their
/// own.
Facts infer_pack(const OpView& op) {
  const Shape& r = op.in(0).shape;
  return {Fact(op.in(0).dtype, {r[0], r[1] * r[2]})};
}

template <class T>
void pack(const KernelContext& ctx, std::int64_t split) {
  const Shape& r = ctx.in(0).shape();
  const std::int64_t columns = r[1], rows = r[2];
  const T* from = ctx.in<T>(0).data();
  T* to = ctx.out<T>(0).data();
  for (std::int64_t d = 0; d < r[0]; ++d, from += rows * columns, to += rows * columns) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t first = c < split ? 0 : split, width = c < split ? split : columns - split;
      for (std::int64_t k = 0; k < rows; ++k)
        to[first * rows + block_position(k, c - first, rows, width, kDenseBlock)] = from[c * rows + k];
    }
  }
}

void kernel_pack(KernelContext& ctx) {
  const std::int64_t split = ctx.in(0).shape()[1] / ctx.op().i("gates") * ctx.op().i("first_part");
  if (ctx.in(0).dtype() == DType::f64) return pack<double>(ctx, split);
  pack<float>(ctx, split);
}

/// R [directions, hidden, columns] of 8 bits as i8 groups of four rows in integer blocks, its column sums, and whether
/// -128 occurs in it.
Facts infer_pack_quantized(const OpView& op) {
  const Shape& r = op.in(0).shape;
  return {Fact(DType::i8, {r[0], (r[1] + 3) / 4, r[2], 4}), Fact(DType::i32, {r[0], r[2]}), Fact(DType::boolean, {1})};
}

void kernel_pack_quantized(KernelContext& ctx) {
  const Shape& r = ctx.in(0).shape();
  const std::int64_t groups = (r[1] + 3) / 4, columns = r[2];
  const auto* from = static_cast<const std::uint8_t*>(ctx.in(0).data());
  const std::uint8_t flip = ctx.in(0).dtype() == DType::u8 ? 0x80 : 0;
  auto packed = ctx.out<std::int8_t>(0);
  auto sums = ctx.out<std::int32_t>(1);
  bool lowest = false;
  std::fill(packed.begin(), packed.end(), std::int8_t{0});
  std::fill(sums.begin(), sums.end(), 0);
  for (std::int64_t d = 0; d < r[0]; ++d) {
    std::int8_t* to = packed.data() + d * groups * columns * 4;
    for (std::int64_t row = 0; row < r[1]; ++row) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto value = static_cast<std::int8_t>(*from++ ^ flip);
        to[block_position(row / 4, c, groups, columns, kIntegerBlock) * 4 + row % 4] = value;
        sums[static_cast<std::size_t>(d * columns + c)] += value;
        lowest = lowest || value == -128;
      }
    }
  }
  ctx.out<bool>(2)[0] = lowest;
}

// ---- com.microsoft DynamicQuantizeLSTM: W [directions, input, 4 · hidden] and R [directions, hidden, 4 · hidden] in 8
// bits ----

enum QuantizedInput { kWScale = 8, kWZero, kRScale, kRZero };

Facts infer_quantized(const OpView& op) {
  const Config c = read_config(op, Cell::lstm);
  const Shape& r = op.in(kR).shape;
  op.require(r.rank() == 3, "the recurrence weights must have 3 dims, got shape {}", r);
  const Sizes s = check_sizes(op, c, r[1]);
  require_shape(op, kW, {s.directions, s.input, 4 * s.hidden}, "the weights");
  require_shape(op, kR, {s.directions, s.hidden, 4 * s.hidden}, "the recurrence weights");
  for (int i : {kWScale, kWZero, kRScale, kRZero}) {
    const Shape& shape = op.in(i).shape;
    op.require(shape == Shape{s.directions} || shape == Shape{s.directions, 4 * s.hidden},
               "scales and zero points must have a value per direction or per column, got shape {}", shape);
  }
  for (int i : {kWScale, kRScale})
    op.require(op.in(i).dtype == DType::f32, "scales must be f32, got {}", op.in(i).dtype);
  op.require(op.in(kWZero).shape == op.in(kWScale).shape && op.in(kRZero).shape == op.in(kRScale).shape,
             "zero points must have the shape of their scales");
  return output_facts(op, c, s, DType::f32);
}

Facts infer_quantized_sequence(const OpView& op) { return infer_sequence<Cell::lstm>(op); }

std::vector<ValueId> lower_quantized(const OpView& op, Builder& b) {
  const Config c = read_config(op, Cell::lstm);
  const std::vector<ValueId> x = b.ops("DynamicQuantizeLinear", {op.id(kX)}, 3);
  // [directions, …] to one value per direction, without the first axis.
  const auto split = [&](int i) {
    if (c.directions == 1) return std::vector<ValueId>{op.id(i)};
    return b.ops("Split", {op.id(i)}, c.directions,
                 {{"axis", std::int64_t{0}}, {"num_outputs", std::int64_t{c.directions}}});
  };
  const auto weights = split(kW), scales = split(kWScale), zeros = split(kWZero);
  std::vector<ValueId> projected;
  for (std::size_t d = 0; d < weights.size(); ++d) {
    const bool per_column = op.in(kWScale).rank() == 2;
    const auto flat = [&](ValueId v) { return per_column ? b.squeeze(v, {0}) : v; };
    const ValueId sums = b.op("MatMulInteger", {x[0], b.squeeze(weights[d], {0}), x[2], flat(zeros[d])});
    projected.push_back(b.mul(b.cast(sums, DType::f32), b.mul(x[1], flat(scales[d]))));
  }
  const ValueId all = projected.size() == 1 ? projected[0] : b.concat(projected, 2);
  const std::vector<ValueId> packed = b.ops("lathe::PackQuantizedRecurrence", {op.id(kR)}, 3);
  std::vector<ValueId> inputs = {all,       packed[0],      op.id(kB),     op.id(kLengths), op.id(kH), op.id(kC),
                                 op.id(kP), op.id(kRScale), op.id(kRZero), packed[1],       packed[2]};
  return b.ops("lathe::DynamicQuantizeLstmSequence", std::move(inputs), op.outputs(), sequence_attributes(op));
}

// ---- schemas ----

#define LATHE_RECURRENT_ATTRIBUTES                                                                                     \
  {"activations", AttrKind::strings}, {"activation_alpha", AttrKind::numbers}, {"activation_beta", AttrKind::numbers}, \
      {"clip", AttrKind::number}, {                                                                                    \
    "direction", "forward"                                                                                             \
  }
constexpr Attribute kRnnAttributes[] = {LATHE_RECURRENT_ATTRIBUTES, {"hidden_size", AttrKind::integer}, {"layout", 0}};
constexpr Attribute kGruAttributes[] = {
    LATHE_RECURRENT_ATTRIBUTES, {"hidden_size", AttrKind::integer}, {"layout", 0}, {"linear_before_reset", 0}};
constexpr Attribute kLstmAttributes[] = {
    LATHE_RECURRENT_ATTRIBUTES, {"hidden_size", AttrKind::integer}, {"layout", 0}, {"input_forget", 0}};
constexpr Attribute kQuantizedAttributes[] = {
    LATHE_RECURRENT_ATTRIBUTES, {"hidden_size", AttrKind::integer}, {"input_forget", 0}};
constexpr Attribute kRnnSequenceAttributes[] = {LATHE_RECURRENT_ATTRIBUTES};
constexpr Attribute kGruSequenceAttributes[] = {LATHE_RECURRENT_ATTRIBUTES, {"linear_before_reset", 0}};
constexpr Attribute kLstmSequenceAttributes[] = {LATHE_RECURRENT_ATTRIBUTES, {"input_forget", 0}};
#undef LATHE_RECURRENT_ATTRIBUTES

}  // namespace

extern const OpDef op_rnn;
constinit const OpDef op_rnn = {.name = "RNN",
                                .inputs = {3, 6},
                                .outputs = {0, 2},
                                .attributes = kRnnAttributes,
                                .forms = 22,
                                .takes = {{kFloats, inputs(0, 1, 2, 3, 5)}, {DType::i32, inputs(4)}},
                                .infer = infer_layer<Cell::rnn>,
                                .lower = lower_layer<Cell::rnn>};

extern const OpDef op_gru;
constinit const OpDef op_gru = {.name = "GRU",
                                .inputs = {3, 6},
                                .outputs = {0, 2},
                                .attributes = kGruAttributes,
                                .forms = 22,
                                .takes = {{kFloats, inputs(0, 1, 2, 3, 5)}, {DType::i32, inputs(4)}},
                                .infer = infer_layer<Cell::gru>,
                                .lower = lower_layer<Cell::gru>};

extern const OpDef op_lstm;
constinit const OpDef op_lstm = {.name = "LSTM",
                                 .inputs = {3, 8},
                                 .outputs = {0, 3},
                                 .attributes = kLstmAttributes,
                                 .forms = 22,
                                 .takes = {{kFloats, inputs(0, 1, 2, 3, 5, 6, 7)}, {DType::i32, inputs(4)}},
                                 .infer = infer_layer<Cell::lstm>,
                                 .lower = lower_layer<Cell::lstm>};

extern const OpDef op_dynamic_quantize_lstm;
constinit const OpDef op_dynamic_quantize_lstm = {.name = "DynamicQuantizeLSTM",
                                                  .domain = "com.microsoft",
                                                  .inputs = {3, 12},
                                                  .outputs = {0, 3},
                                                  .attributes = kQuantizedAttributes,
                                                  .takes = {{DType::f32, inputs(kX, kB, kH, kC, kP, kWScale, kRScale)},
                                                            {kBytes, inputs(kW, kWZero)},
                                                            {kBytes, inputs(kR, kRZero)},
                                                            {DType::i32, inputs(kLengths)}},
                                                  .infer = infer_quantized,
                                                  .lower = lower_quantized};

extern const OpDef op_lathe_pack_recurrence;
constinit const OpDef op_lathe_pack_recurrence = {.name = "PackRecurrence",
                                                  .domain = "lathe",
                                                  .attributes = kPackAttributes,
                                                  .infer = infer_pack,
                                                  .kernel = kernel_pack,
                                                  .real_time = true};

extern const OpDef op_lathe_pack_quantized_recurrence;
constinit const OpDef op_lathe_pack_quantized_recurrence = {.name = "PackQuantizedRecurrence",
                                                            .domain = "lathe",
                                                            .outputs = 3,
                                                            .infer = infer_pack_quantized,
                                                            .kernel = kernel_pack_quantized};

extern const OpDef op_lathe_rnn_sequence;
constinit const OpDef op_lathe_rnn_sequence = {.name = "RnnSequence",
                                               .domain = "lathe",
                                               .inputs = {2, 5},
                                               .outputs = {0, 2},
                                               .attributes = kRnnSequenceAttributes,
                                               .infer = infer_sequence<Cell::rnn>,
                                               .kernel = kernel_sequence<Cell::rnn>,
                                               .real_time = true};

extern const OpDef op_lathe_gru_sequence;
constinit const OpDef op_lathe_gru_sequence = {.name = "GruSequence",
                                               .domain = "lathe",
                                               .inputs = {2, 5},
                                               .outputs = {0, 2},
                                               .attributes = kGruSequenceAttributes,
                                               .infer = infer_sequence<Cell::gru>,
                                               .kernel = kernel_sequence<Cell::gru>,
                                               .real_time = true};

extern const OpDef op_lathe_lstm_sequence;
constinit const OpDef op_lathe_lstm_sequence = {.name = "LstmSequence",
                                                .domain = "lathe",
                                                .inputs = {2, 7},
                                                .outputs = {0, 3},
                                                .attributes = kLstmSequenceAttributes,
                                                .infer = infer_sequence<Cell::lstm>,
                                                .kernel = kernel_sequence<Cell::lstm>,
                                                .real_time = true};

extern const OpDef op_lathe_dynamic_quantize_lstm_sequence;
constinit const OpDef op_lathe_dynamic_quantize_lstm_sequence = {.name = "DynamicQuantizeLstmSequence",
                                                                 .domain = "lathe",
                                                                 .inputs = {2, 11},
                                                                 .outputs = {0, 3},
                                                                 .attributes = kLstmSequenceAttributes,
                                                                 .infer = infer_quantized_sequence,
                                                                 .kernel = kernel_quantized_sequence,
                                                                 .real_time = true};

}  // namespace lathe::ops
