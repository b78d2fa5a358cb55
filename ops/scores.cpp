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
double probit(double p) {
  const double x = 2 * p - 1;
  const double log = std::log((1 - x) * (1 + x));
  constexpr double kA = 0.147;
  const double half = 2 / (std::numbers::pi * kA) + log / 2;
  const double inverse = std::sqrt(std::sqrt(half * half - log / kA) - half);
  return std::numbers::sqrt2 * std::copysign(inverse, x);
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

}  // namespace lathe::ops
