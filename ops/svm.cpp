// Support vector machines of ai.onnx.ml.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/plain.h"
#include "ops/scores.h"

namespace lathe::ops {
namespace {

enum class Kernel : std::uint8_t { linear, poly, rbf, sigmoid };

struct KernelFunction {
  Kernel kind = Kernel::linear;
  double gamma = 0, coef0 = 0, degree = 0;

  [[nodiscard]] double operator()(const double* a, std::span<const double> b) const {
    double sum = 0;
    if (kind == Kernel::rbf) {
      for (std::size_t i = 0; i < b.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
      return std::exp(-gamma * sum);
    }
    for (std::size_t i = 0; i < b.size(); ++i) sum += a[i] * b[i];
    if (kind == Kernel::poly) return std::pow(gamma * sum + coef0, degree);
    return kind == Kernel::sigmoid ? std::tanh(gamma * sum + coef0) : sum;
  }
};

KernelFunction kernel_function(const OpView& op) {
  constexpr std::string_view kNames[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), op.s("kernel_type"));
  op.require(found != std::end(kNames), "kernel_type '{}' is unknown", shown(op.s("kernel_type")));
  KernelFunction k;
  k.kind = static_cast<Kernel>(found - std::begin(kNames));
  const auto params = op.attr_floats("kernel_params");
  op.require(params.empty() || params.size() == 3, "kernel_params must have 3 values, got {}", params.size());
  if (!params.empty()) k.gamma = params[0], k.coef0 = params[1], k.degree = params[2];
  return k;
}

void check_x(const OpView& op) {
  const DType t = op.in(0).dtype;
  op.require(t == DType::f32 || t == DType::f64 || t == DType::i64 || t == DType::i32,
             "x must be f32, f64, i32 or i64, got {}", t);
  op.require(op.in(0).rank() == 1 || op.in(0).rank() == 2, "x must have 1 or 2 dims, got shape {}", op.in(0).shape);
}

std::int64_t row_count(const OpView& op) { return op.in(0).rank() == 2 ? op.in(0).shape[0] : 1; }

void require_size(const OpView& op, std::string_view name, std::int64_t count) {
  const auto actual = static_cast<std::int64_t>(op.attr_floats(name).size());
  op.require(actual == count, "{} must have {} values, got {}", name, count, actual);
}

/// The support vector `i` of vectors as long as a row of x.
std::span<const double> vector_at(std::span<const double> all, std::int64_t i, std::int64_t features) {
  return all.subspan(static_cast<std::size_t>(i * features), static_cast<std::size_t>(features));
}

// ---- SVMRegressor ----

constexpr Attribute kRegressorAttributes[] = {{"coefficients", AttrKind::numbers},
                                              {"kernel_params", AttrKind::numbers},
                                              {"kernel_type", "LINEAR"},
                                              {"n_supports", 0},
                                              {"one_class", 0},
                                              {"post_transform", "NONE"},
                                              {"rho", AttrKind::numbers},
                                              {"support_vectors", AttrKind::numbers}};

Facts infer_regressor(const OpView& op) {
  check_x(op);
  kernel_function(op);
  post_transform(op, op.s("post_transform"));
  const std::int64_t supports = op.i("n_supports"), features = op.in(0).shape.back();
  op.require(supports >= 0 && supports < (std::int64_t{1} << 31), "n_supports must not be negative, got {}", supports);
  op.require(!op.attr_floats("rho").empty(), "rho must have a value");
  require_size(op, "coefficients", supports > 0 ? supports : features);
  if (supports > 0) require_size(op, "support_vectors", supports * features);
  return {Fact(DType::f32, {row_count(op), 1})};
}

void kernel_regressor(KernelContext& ctx) {
  const OpView& op = ctx.op();
  const KernelFunction k = kernel_function(op);
  const PostTransform transform = post_transform(op, op.s("post_transform"));
  const auto coefficients = op.attr_floats("coefficients"), vectors = op.attr_floats("support_vectors");
  const std::int64_t supports = op.i("n_supports"), features = op.in(0).shape.back();
  const Tensor x = ctx.in(0).cast(DType::f64);
  auto y = ctx.out<float>(0);
  ctx.parallel(row_count(op), 1 + 4096 / (supports + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double* row = x.view<double>().data() + r * features;
      double score = op.attr_floats("rho")[0];
      if (supports == 0) score += k(row, coefficients);
      for (std::int64_t j = 0; j < supports; ++j)
        score += coefficients[static_cast<std::size_t>(j)] * k(row, vector_at(vectors, j, features));
      if (op.i("one_class") != 0) score = score > 0 ? 1 : -1;
      transform_scores(transform, {&score, 1});
      y[static_cast<std::size_t>(r)] = static_cast<float>(score);
    }
  });
}

// ---- SVMClassifier: one against one, or linear without support vectors ----

constexpr Attribute kClassifierAttributes[] = {{"classlabels_ints", AttrKind::integers},
                                               {"classlabels_strings", AttrKind::strings},
                                               {"coefficients", AttrKind::numbers},
                                               {"kernel_params", AttrKind::numbers},
                                               {"kernel_type", "LINEAR"},
                                               {"post_transform", "NONE"},
                                               {"prob_a", AttrKind::numbers},
                                               {"prob_b", AttrKind::numbers},
                                               {"rho", AttrKind::numbers},
                                               {"support_vectors", AttrKind::numbers},
                                               {"vectors_per_class", AttrKind::integers}};

struct Classifier {
  ClassLabels labels;
  KernelFunction kernel;
  PostTransform transform;
  std::vector<std::int64_t> first;  // the first support vector of each class, and their number behind the last
  std::int64_t classes, features;

  explicit Classifier(const OpView& op)
      : labels(op, "classlabels_ints", "classlabels_strings"),
        kernel(kernel_function(op)),
        transform(post_transform(op, op.s("post_transform"))),
        first{0},
        classes(labels.count()),
        features(op.in(0).shape.back()) {
    for (std::int64_t n : op.attr_ints("vectors_per_class")) {
      op.require(n >= 0 && n < (std::int64_t{1} << 31), "vectors_per_class must not be negative, got {}", n);
      first.push_back(first.back() + n);
    }
  }

  [[nodiscard]] std::int64_t vectors() const { return first.back(); }
  [[nodiscard]] std::int64_t pairs() const { return classes * (classes - 1) / 2; }
  [[nodiscard]] bool has_probabilities(const OpView& op) const {
    return vectors() > 0 && !op.attr_floats("prob_a").empty();
  }
  /// Scores computed for a row.
  [[nodiscard]] std::int64_t scores(const OpView& op) const {
    return vectors() == 0 || has_probabilities(op) ? classes : pairs();
  }
  [[nodiscard]] std::int64_t columns(const OpView& op) const {
    return scores(op) == 1 && classes == 2 ? 2 : scores(op);
  }
};

Facts infer_classifier(const OpView& op) {
  check_x(op);
  const Classifier c(op);
  op.require(c.classes < (1 << 16), "{} classes are too many", c.classes);
  const auto rhos = static_cast<std::int64_t>(op.attr_floats("rho").size());
  if (c.vectors() == 0) {
    require_size(op, "coefficients", c.classes * c.features);
    op.require(rhos >= 1, "rho must have a value");
  } else {
    op.require(static_cast<std::int64_t>(c.first.size()) == c.classes + 1,
               "vectors_per_class must have {} values, got {}", c.classes, c.first.size() - 1);
    require_size(op, "support_vectors", c.vectors() * c.features);
    require_size(op, "coefficients", (c.classes - 1) * c.vectors());
    require_size(op, "rho", c.pairs());
    if (c.has_probabilities(op)) {
      require_size(op, "prob_a", c.pairs());
      require_size(op, "prob_b", c.pairs());
    }
  }
  return {Fact(c.labels.dtype(), {row_count(op)}), Fact(DType::f32, {row_count(op), c.columns(op)})};
}

/// A score per pair of classes, and the pairs that each class wins.
void score_pairs(const OpView& op, const Classifier& c, const double* row, std::vector<double>& scores,
                 std::vector<double>& votes) {
  const auto coefficients = op.attr_floats("coefficients"), vectors = op.attr_floats("support_vectors"),
             rho = op.attr_floats("rho");
  std::vector<double> kernels(static_cast<std::size_t>(c.vectors()));
  for (std::int64_t v = 0; v < c.vectors(); ++v)
    kernels[static_cast<std::size_t>(v)] = c.kernel(row, vector_at(vectors, v, c.features));
  const auto part = [&](std::int64_t of, std::int64_t against) {
    double sum = 0;
    for (std::int64_t v = c.first[static_cast<std::size_t>(of)]; v < c.first[static_cast<std::size_t>(of) + 1]; ++v) {
      sum += coefficients[static_cast<std::size_t>(against * c.vectors() + v)] * kernels[static_cast<std::size_t>(v)];
    }
    return sum;
  };
  for (std::int64_t i = 0; i < c.classes; ++i) {
    for (std::int64_t j = i + 1; j < c.classes; ++j) {
      scores.push_back(rho[scores.size()] + part(i, j - 1) + part(j, i));
      ++votes[static_cast<std::size_t>(scores.back() > 0 ? i : j)];
    }
  }
}

/// Class probabilities from those of all pairs (T.-F. Wu, C.-J. Lin, R. C. Weng, 2004, second method).
std::vector<double> couple(const std::vector<std::vector<double>>& r) {
  const std::size_t k = r.size();
  std::vector<double> p(k, 1 / static_cast<double>(k)), qp(k);
  std::vector<std::vector<double>> q(k, std::vector<double>(k, 0));
  for (std::size_t t = 0; t < k; ++t) {
    for (std::size_t j = 0; j < k; ++j) {
      if (j == t) continue;
      q[t][t] += r[j][t] * r[j][t];
      q[t][j] = -r[j][t] * r[t][j];
    }
  }
  for (std::size_t round = 0; round < std::max<std::size_t>(100, k); ++round) {
    double pqp = 0, worst = 0;
    for (std::size_t t = 0; t < k; ++t) {
      qp[t] = std::inner_product(p.begin(), p.end(), q[t].begin(), 0.0);
      pqp += p[t] * qp[t];
    }
    for (std::size_t t = 0; t < k; ++t) worst = std::max(worst, std::fabs(qp[t] - pqp));
    if (worst < 0.005 / static_cast<double>(k)) break;
    for (std::size_t t = 0; t < k; ++t) {
      const double step = (pqp - qp[t]) / q[t][t];
      p[t] += step;
      pqp = (pqp + step * (step * q[t][t] + 2 * qp[t])) / ((1 + step) * (1 + step));
      for (std::size_t j = 0; j < k; ++j) {
        qp[j] = (qp[j] + step * q[t][j]) / (1 + step);
        p[j] /= 1 + step;
      }
    }
  }
  return p;
}

std::vector<double> probabilities(const OpView& op, const Classifier& c, const std::vector<double>& scores) {
  const auto a = op.attr_floats("prob_a"), b = op.attr_floats("prob_b");
  const auto k = static_cast<std::size_t>(c.classes);
  std::vector<std::vector<double>> pairwise(k, std::vector<double>(k, 0));
  std::size_t at = 0;
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t j = i + 1; j < k; ++j, ++at) {
      const double p = 1 / (1 + std::exp(scores[at] * a[at] + b[at]));
      pairwise[i][j] = std::clamp(p, 1e-7, 1 - 1e-7);
      pairwise[j][i] = 1 - pairwise[i][j];
    }
  }
  return couple(pairwise);
}

void kernel_classifier(KernelContext& ctx) {
  const OpView& op = ctx.op();
  const Classifier c(op);
  const Tensor x = ctx.in(0).cast(DType::f64);
  Tensor y = ctx.wants(0) ? ctx.out(0) : Tensor(c.labels.dtype(), {row_count(op)});
  const auto coefficients = op.attr_floats("coefficients");
  const std::int64_t columns = c.columns(op);
  const bool binary = c.vectors() == 0 && c.classes == 2 && op.attr_floats("rho").size() == 1 &&
                      std::all_of(coefficients.begin(), coefficients.end(), [](float w) { return w >= 0; });
  ctx.parallel(row_count(op), 1 + 4096 / (c.vectors() + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double* row = x.view<double>().data() + r * c.features;
      std::vector<double> scores, votes(static_cast<std::size_t>(c.classes), 0);
      if (c.vectors() == 0) {
        const KernelFunction linear;
        for (std::int64_t k = 0; k < c.classes; ++k)
          scores.push_back(op.attr_floats("rho")[0] + linear(row, vector_at(coefficients, k, c.features)));
        votes = scores;
      } else {
        score_pairs(op, c, row, scores, votes);
        if (c.has_probabilities(op)) scores = probabilities(op, c, scores);
      }
      std::int64_t label = std::max_element(votes.begin(), votes.end()) - votes.begin();
      // As ONNX Runtime has it: a score of weights that are never negative is a probability of the second class.
      if (binary && votes[static_cast<std::size_t>(label)] >= 0.5) label = 1;
      if (scores.size() == 1 && c.classes == 2) {
        const double score = scores[0];
        scores.resize(2);
        classify_single(SingleScore::signed_score, c.transform, score, scores);
      } else {
        transform_scores(c.transform, scores);
      }
      c.labels.write(y, r, label);
      for (std::size_t k = 0; k < scores.size() && ctx.wants(1); ++k) {
        ctx.out<float>(1)[static_cast<std::size_t>(r * columns) + k] = static_cast<float>(scores[k]);
      }
    }
  });
}

}  // namespace

extern const OpDef op_ml_svm_regressor;
constinit const OpDef op_ml_svm_regressor = {.name = "SVMRegressor",
                                             .domain = "ai.onnx.ml",
                                             .attributes = kRegressorAttributes,
                                             .takes = kIndices | DType::f32 | DType::f64,
                                             .infer = infer_regressor,
                                             .kernel = kernel_regressor};

extern const OpDef op_ml_svm_classifier;
constinit const OpDef op_ml_svm_classifier = {.name = "SVMClassifier",
                                              .domain = "ai.onnx.ml",
                                              .outputs = {1, 2},
                                              .attributes = kClassifierAttributes,
                                              .takes = kIndices | DType::f32 | DType::f64,
                                              .infer = infer_classifier,
                                              .kernel = kernel_classifier};

}  // namespace lathe::ops
