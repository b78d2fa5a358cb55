// What the classifiers and regressors of ai.onnx.ml share: post transforms of score rows, and class labels.
#pragma once

#include <span>
#include <string_view>

#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"

namespace lathe::ops {

enum class PostTransform : std::uint8_t { none, softmax, logistic, softmax_zero, probit };

/// From its name ("NONE", "SOFTMAX", …); Failure naming the node where it is unknown.
PostTransform post_transform(const OpView& op, std::string_view name);

/// Transforms one row of scores in place.
void transform_scores(PostTransform transform, std::span<double> scores);

/// The same of rows of scores along the last axis, in other operators.
ValueId lower_transform(PostTransform transform, Builder& b, ValueId scores);

/// The labels of a classifier: two attributes, of which exactly one is stated.
class ClassLabels {
 public:
  ClassLabels(const OpView& op, std::string_view integers, std::string_view strings);

  [[nodiscard]] std::int64_t count() const {
    return static_cast<std::int64_t>(integers_.empty() ? strings_.size() : integers_.size());
  }
  [[nodiscard]] DType dtype() const { return strings_.empty() ? DType::i64 : DType::string; }
  /// Writes the label of class `index` as element `row` of `labels`.
  void write(Tensor& labels, std::int64_t row, std::int64_t index) const;
  [[nodiscard]] Tensor all() const;

 private:
  std::span<const std::int64_t> integers_;
  std::span<const std::string> strings_;
};

/// How a classifier of two classes with a single score turns it into two.
enum class SingleScore : std::uint8_t {
  probability,   ///< 1 − s and s; the second class above 0.5
  signed_score,  ///< −s and s; the second class above 0
};

/// The class of a single score, whose two transformed scores are written to `scores`.
std::int64_t classify_single(SingleScore kind, PostTransform transform, double score, std::span<double> scores);
/// The two transformed scores of SingleScore::probability from rows of one, in other operators.
ValueId lower_single(PostTransform transform, Builder& b, ValueId score);

}  // namespace lathe::ops
