// Recurrent layers against their equations, written out step by step.
#include <cmath>

#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

/// Values in [-0.5, 0.5) that look random and are the same everywhere.
Tensor spread(const Shape& shape, int seed) {
  Tensor t(DType::f32, shape);
  std::uint32_t state = 2654435761U * static_cast<std::uint32_t>(seed + 1);
  for (float& v : t.mutable_view<float>()) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  return t;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Layer {
  std::int64_t steps = 5, batch = 3, input = 4, hidden = 7;
  Tensor x, w, r, b, h;

  Layer(std::int64_t gates, std::int64_t directions)
      : x(spread({steps, batch, input}, 1)),
        w(spread({directions, gates * hidden, input}, 2)),
        r(spread({directions, gates * hidden, hidden}, 3)),
        b(spread({directions, 2 * gates * hidden}, 4)),
        h(spread({directions, batch, hidden}, 5)) {}

  /// x_t · W row + bias, and h · R row + recurrent bias, of one gate's unit.
  [[nodiscard]] double projected(std::int64_t d, std::int64_t t, std::int64_t n, std::int64_t row) const {
    const std::int64_t rows = w.shape()[1];
    double sum = b.number(d * 2 * rows + row);
    for (std::int64_t i = 0; i < input; ++i)
      sum += x.number((t * batch + n) * input + i) * w.number((d * rows + row) * input + i);
    return sum;
  }
  [[nodiscard]] double recurrent(std::int64_t d, const std::vector<double>& state, std::int64_t row) const {
    const std::int64_t rows = w.shape()[1];
    double sum = b.number(d * 2 * rows + rows + row);
    for (std::int64_t i = 0; i < hidden; ++i)
      sum += state[static_cast<std::size_t>(i)] * r.number((d * rows + row) * hidden + i);
    return sum;
  }
  [[nodiscard]] std::vector<double> state(const Tensor& t, std::int64_t d, std::int64_t n) const {
    std::vector<double> s;
    for (std::int64_t i = 0; i < hidden; ++i) s.push_back(t.number((d * batch + n) * hidden + i));
    return s;
  }
  /// Expects outputs y (all steps) and y_h (the last) of step(direction, time, row, state) over the lengths given.
  template <class Step>
  void expect(const std::vector<Value>& outputs, std::int64_t directions, const std::vector<std::int64_t>& lengths,
              const Step& step) const {
    for (std::int64_t d = 0; d < directions; ++d) {
      for (std::int64_t n = 0; n < batch; ++n) {
        std::vector<double> s = state(h, d, n);
        const std::int64_t length = lengths[static_cast<std::size_t>(n)];
        for (std::int64_t k = 0; k < steps; ++k) {
          const std::int64_t t = k >= length ? k : d == 1 ? length - 1 - k : k;
          if (k < length) s = step(d, t, n, s);
          for (std::int64_t i = 0; i < hidden; ++i) {
            const double expected = k < length ? s[static_cast<std::size_t>(i)] : 0;
            EXPECT_NEAR(outputs[0].tensor().number(((t * directions + d) * batch + n) * hidden + i), expected, 1e-5);
          }
        }
        for (std::int64_t i = 0; i < hidden; ++i) {
          EXPECT_NEAR(outputs[1].tensor().number((d * batch + n) * hidden + i), s[static_cast<std::size_t>(i)], 1e-5);
        }
      }
    }
  }
};

TEST(Rnn, FollowsItsEquations) {
  const Layer l(1, 2);
  const auto y = run_op("RNN", {l.x, l.w, l.r, l.b, Tensor(), l.h},
                        {{"direction", "bidirectional"}, {"hidden_size", l.hidden}}, 2);
  l.expect(y, 2, {5, 5, 5}, [&](std::int64_t d, std::int64_t t, std::int64_t n, const std::vector<double>& s) {
    std::vector<double> next;
    for (std::int64_t i = 0; i < l.hidden; ++i)
      next.push_back(std::tanh(l.projected(d, t, n, i) + l.recurrent(d, s, i)));
    return next;
  });
}

TEST(Gru, FollowsItsEquationsInBothForms) {
  const Layer l(3, 2);
  const Tensor lengths = Tensor::from<std::int32_t>({5, 2, 4}, {3});
  for (std::int64_t before : {0, 1}) {
    const auto y = run_op("GRU", {l.x, l.w, l.r, l.b, lengths, l.h},
                          {{"direction", "bidirectional"}, {"linear_before_reset", before}}, 2);
    l.expect(y, 2, {5, 2, 4}, [&](std::int64_t d, std::int64_t t, std::int64_t n, std::vector<double> s) {
      std::vector<double> update, reset, kept, next;
      for (std::int64_t i = 0; i < l.hidden; ++i) {
        update.push_back(sigmoid(l.projected(d, t, n, i) + l.recurrent(d, s, i)));
        reset.push_back(sigmoid(l.projected(d, t, n, l.hidden + i) + l.recurrent(d, s, l.hidden + i)));
        kept.push_back(reset.back() * s[static_cast<std::size_t>(i)]);
      }
      for (std::int64_t i = 0; i < l.hidden; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t row = 2 * l.hidden + i;
        const double recurrent = before != 0 ? reset[at] * l.recurrent(d, s, row) : l.recurrent(d, kept, row);
        next.push_back((1 - update[at]) * std::tanh(l.projected(d, t, n, row) + recurrent) + update[at] * s[at]);
      }
      return next;
    });
  }
}

TEST(Lstm, FollowsItsEquationsWithPeepholes) {
  const Layer l(4, 1);
  const Tensor cell = spread({1, l.batch, l.hidden}, 6), peepholes = spread({1, 3 * l.hidden}, 7);
  const auto y = run_op("LSTM", {l.x, l.w, l.r, l.b, Tensor(), l.h, cell, peepholes}, {}, 3);
  std::vector<std::vector<double>> cells;
  for (std::int64_t n = 0; n < l.batch; ++n) cells.push_back(l.state(cell, 0, n));
  l.expect(y, 1, {5, 5, 5}, [&](std::int64_t d, std::int64_t t, std::int64_t n, std::vector<double> s) {
    std::vector<double>& c = cells[static_cast<std::size_t>(n)];
    std::vector<double> next;
    for (std::int64_t i = 0; i < l.hidden; ++i) {
      const auto gate = [&](std::int64_t g) {
        return l.projected(d, t, n, g * l.hidden + i) + l.recurrent(d, s, g * l.hidden + i);
      };
      const auto peephole = [&](std::int64_t g) { return peepholes.number(g * l.hidden + i); };
      double& ci = c[static_cast<std::size_t>(i)];
      const double before = ci;
      ci = sigmoid(gate(2) + peephole(2) * before) * before +
           sigmoid(gate(0) + peephole(0) * before) * std::tanh(gate(3));
      next.push_back(sigmoid(gate(1) + peephole(1) * ci) * std::tanh(ci));
    }
    return next;
  });
  for (std::int64_t n = 0; n < l.batch; ++n) {
    for (std::int64_t i = 0; i < l.hidden; ++i) {
      EXPECT_NEAR(y[2].tensor().number(n * l.hidden + i),
                  cells[static_cast<std::size_t>(n)][static_cast<std::size_t>(i)], 1e-5);
    }
  }
}

TEST(Lstm, TakesBatchFirstAndReversed) {
  const Layer l(4, 1);
  const Tensor steps_first = run("LSTM", {l.x, l.w, l.r, l.b}, {{"direction", "reverse"}});
  const Tensor batch_first = run("Transpose", {l.x}, {{"perm", std::vector<std::int64_t>{1, 0, 2}}});
  const Tensor y = run("LSTM", {batch_first, l.w, l.r, l.b}, {{"direction", "reverse"}, {"layout", std::int64_t{1}}});
  const Tensor back = run("Transpose", {y}, {{"perm", std::vector<std::int64_t>{1, 2, 0, 3}}});
  expect_tensor(back, DType::f32, steps_first.shape(), numbers(steps_first));
}

TEST(Lstm, KeepsNarrowAndWideTypes) {
  const Layer l(4, 1);
  const std::vector<double> expected = numbers(run("LSTM", {l.x, l.w, l.r, l.b}));
  for (DType t : {DType::f64, DType::f16}) {
    const Tensor y = run("LSTM", {l.x.cast(t), l.w.cast(t), l.r.cast(t), l.b.cast(t)});
    expect_tensor(y, t, {l.steps, 1, l.batch, l.hidden}, expected, t == DType::f16 ? 2e-3 : 1e-6);
  }
}

TEST(Lstm, RefusesWhatDoesNotFit) {
  const Layer l(4, 1);
  EXPECT_NE(refusal("LSTM", {l.x, spread({1, 28, 5}, 1), l.r}).find("the weights must have shape 1x28x4"),
            std::string::npos);
  EXPECT_NE(refusal("LSTM", {l.x, l.w, l.r, spread({1, 8}, 1)}).find("the bias must have shape 1x56"),
            std::string::npos);
  EXPECT_NE(refusal("LSTM", {l.x, l.w, l.r}, {{"direction", "sideways"}}).find("direction must be"), std::string::npos);
  EXPECT_NE(refusal("LSTM", {l.x, l.w, l.r}, {{"activations", std::vector<std::string>{"Tanh"}}})
                .find("activations must have 3"),
            std::string::npos);
  const Tensor lengths = Tensor::from<std::int32_t>({5, 6, 1}, {3});
  EXPECT_NE(refusal("LSTM", {l.x, l.w, l.r, Tensor(), lengths}).find("sequence length 6 is outside [0, 5]"),
            std::string::npos);
}

TEST(DynamicQuantizeLstm, StaysCloseToItsWeightsInF32) {
  const Layer l(4, 2);
  // W and R transposed, as integers of scale 1/128.
  const auto quantized = [](const Tensor& t) {
    const Tensor turned = run("Transpose", {t}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}});
    return run("QuantizeLinear", {turned, Tensor::scalar(1.0F / 128), Tensor::scalar(std::int8_t{0})});
  };
  const Tensor scales = floats({1.0F / 128, 1.0F / 128});
  const Tensor zeros = Tensor(DType::i8, {2});
  const auto y =
      run_op("com.microsoft::DynamicQuantizeLSTM",
             {l.x, quantized(l.w), quantized(l.r), l.b, Tensor(), l.h, l.h, Tensor(), scales, zeros, scales, zeros},
             {{"direction", "bidirectional"}}, 3);
  const auto exact = run_op("LSTM", {l.x, l.w, l.r, l.b, Tensor(), l.h, l.h}, {{"direction", "bidirectional"}}, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::int64_t k = 0; k < exact[i].tensor().size(); ++k)
      EXPECT_NEAR(y[i].tensor().number(k), exact[i].tensor().number(k), 2e-2);
  }
}

}  // namespace
}  // namespace lathe::ops
