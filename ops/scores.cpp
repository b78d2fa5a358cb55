// Post transforms and class labels of ai.onnx.ml.
#include "ops/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace lathe::ops {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// The inverse of the normal distribution, by the closed approximation of erf⁻¹ that this vocabulary is defined with
/// (S. Winitzki, 2008).
constexpr double kWinitzki = 0.147;

double probit(double p) {
  const double x = 2 * p - 1;
  const double log = std::log((1 - x) * (1 + x));
  const double half = 2 / (std::numbers::pi * kWinitzki) + log / 2;
  const double inverse = std::sqrt(std::sqrt(half * half - log / kWinitzki) - half);
  return std::numbers::sqrt2 * std::copysign(inverse, x);
}

ValueId number_like(Builder& b, ValueId like, double value) { return b.scalar(b.fact(like).dtype, value); }

ValueId lower_probit(Builder& b, ValueId p) {
  const auto number = [&](double value) { return number_like(b, p, value); };
  const ValueId x = b.sub(b.mul(p, number(2)), number(1));
  const ValueId log = b.op("Log", {b.mul(b.sub(number(1), x), b.add(number(1), x))});
  const ValueId half = b.add(number(2 / (std::numbers::pi * kWinitzki)), b.div(log, number(2)));
  const ValueId root = b.sqrt(b.sub(b.mul(half, half), b.div(log, number(kWinitzki))));
  return b.mul(b.op("Sign", {x}), b.mul(number(std::numbers::sqrt2), b.sqrt(b.sub(root, half))));
}

/// Softmax in which scores of 0 count as what they are, and a row without others as halves.
ValueId lower_softmax_zero(Builder& b, ValueId scores) {
  const auto number = [&](double value) { return number_like(b, scores, value); };
  const ValueId most = b.reduce("ReduceMax", scores, {-1});
  const ValueId zero = b.op("LessOrEqual", {b.op("Abs", {scores}), number(1e-7)});
  const ValueId powers = b.op("Where", {zero, b.mul(scores, b.exp(b.op("Neg", {most}))), b.exp(b.sub(scores, most))});
  const ValueId sum = b.reduce("ReduceSum", powers, {-1});
  return b.op("Where", {b.op("Equal", {sum, number(0)}), number(0.5), b.div(powers, sum)});
}

/// Softmax over the scores; with `keep_zeros` a score of 0 stays 0.
void softmax(std::span<double> scores, bool keep_zeros) {
  if (scores.empty()) return;
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) {
    s = keep_zeros && std::abs(s) <= 1e-7 ? s * std::exp(-most) : std::exp(s - most);
    sum += s;
  }
  for (double& s : scores) s = sum == 0 ? 0.5 : s / sum;
}

}  // namespace

PostTransform post_transform(const OpView& op, std::string_view name) {
  constexpr std::string_view kNames[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  op.require(found != std::end(kNames), "post_transform '{}' is unknown", shown(name));
  return static_cast<PostTransform>(found - std::begin(kNames));
}

void transform_scores(PostTransform transform, std::span<double> scores) {
  switch (transform) {
    case PostTransform::none:
      return;
    case PostTransform::softmax:
      return softmax(scores, false);
    case PostTransform::softmax_zero:
      return softmax(scores, true);
    case PostTransform::logistic:
      std::transform(scores.begin(), scores.end(), scores.begin(), logistic);
      return;
    case PostTransform::probit:
      std::transform(scores.begin(), scores.end(), scores.begin(), probit);
      return;
  }
}

ValueId lower_transform(PostTransform transform, Builder& b, ValueId scores) {
  switch (transform) {
    case PostTransform::none:
      break;
    case PostTransform::softmax:
      return b.op("Softmax", {scores});
    case PostTransform::softmax_zero:
      return lower_softmax_zero(b, scores);
    case PostTransform::logistic:
      return b.op("Sigmoid", {scores});
    case PostTransform::probit:
      return lower_probit(b, scores);
  }
  return scores;
}

ClassLabels::ClassLabels(const OpView& op, std::string_view integers, std::string_view strings)
    : integers_(op.attr_ints(integers)), strings_(op.attr_strings(strings)) {
  op.require(integers_.empty() != strings_.empty(), "exactly one of {} and {} must be given", integers, strings);
}

void ClassLabels::write(Tensor& labels, std::int64_t row, std::int64_t index) const {
  const auto to = static_cast<std::size_t>(row), from = static_cast<std::size_t>(index);
  if (strings_.empty()) {
    labels.mutable_view<std::int64_t>()[to] = integers_[from];
  } else {
    labels.mutable_view<std::string>()[to] = strings_[from];
  }
}

Tensor ClassLabels::all() const {
  if (strings_.empty()) return Tensor::from(integers_, {count()});
  return Tensor::from(strings_, {count()});
}

std::int64_t classify_single(SingleScore kind, PostTransform transform, double score, std::span<double> scores) {
  const bool probability = kind == SingleScore::probability;
  if (transform == PostTransform::logistic) {
    scores[0] = logistic(-score);
    scores[1] = logistic(score);
  } else if (transform == PostTransform::probit) {
    scores[0] = probit(score);
    scores[1] = 0;
  } else {
    scores[0] = probability ? 1 - score : -score;
    scores[1] = score;
  }
  return score > (probability ? 0.5 : 0.0) ? 1 : 0;
}

ValueId lower_single(PostTransform transform, Builder& b, ValueId score) {
  const auto number = [&](double value) { return number_like(b, score, value); };
  if (transform == PostTransform::logistic) {
    return b.concat({b.op("Sigmoid", {b.op("Neg", {score})}), b.op("Sigmoid", {score})}, -1);
  }
  if (transform == PostTransform::probit) {
    const ValueId zeros = b.cast(b.op("ConstantOfShape", {b.shape_of(score)}), b.fact(score).dtype);
    return b.concat({lower_probit(b, score), zeros}, -1);
  }
  return b.concat({b.sub(number(1), score), score}, -1);
}

}  // namespace lathe::ops
