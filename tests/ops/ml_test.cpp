// ai.onnx.ml: feature rows, linear models, encoders and trees, by hand-checked values; and what they refuse.
#include <cmath>
#include <limits>

#include "ops/scores.h"
#include "tests/ops/run_op.h"

namespace lathe::ops {
namespace {

using Ints = std::vector<std::int64_t>;
using Numbers = std::vector<double>;
using Strings = std::vector<std::string>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Features, ScaleAndNormalize) {
  const Tensor x = floats({3, 4, 0, 0}, {2, 2});
  expect_tensor(run("ai.onnx.ml::Scaler", {x}, {{"offset", Numbers{1, 2}}, {"scale", Numbers{0.5, 10}}}), DType::f32,
                {2, 2}, {1, 20, -0.5, -20});
  expect_tensor(run("ai.onnx.ml::Scaler", {x.cast(DType::i64)}, {{"offset", Numbers{1}}, {"scale", Numbers{2}}}),
                DType::f32, {2, 2}, {4, 6, -2, -2});
  expect_tensor(run("ai.onnx.ml::Normalizer", {x}, {{"norm", "L2"}}), DType::f32, {2, 2}, {0.6, 0.8, 0, 0});
  expect_tensor(run("ai.onnx.ml::Normalizer", {x}, {{"norm", "L1"}}), DType::f32, {2, 2}, {3.0 / 7, 4.0 / 7, 0, 0});
  expect_tensor(run("ai.onnx.ml::Normalizer", {x}), DType::f32, {2, 2}, {0.75, 1, 0, 0});
  expect_tensor(run("ai.onnx.ml::Binarizer", {x}, {{"threshold", 3.0}}), DType::f32, {2, 2}, {0, 1, 0, 0});
  expect_tensor(run("ai.onnx.ml::Normalizer", {floats({-2, -4}, {1, 2})}), DType::f32, {1, 2}, {1, 2});
  EXPECT_NE(refusal("ai.onnx.ml::Scaler", {x}, {{"offset", Numbers{1, 2, 3}}}).find("offset must have one value or 2"),
            std::string::npos);
}

TEST(Features, ImputePickAndJoin) {
  const Tensor x = floats({1, kNan, 3, 4}, {2, 2});
  expect_tensor(run("ai.onnx.ml::Imputer", {x},
                    {{"imputed_value_floats", Numbers{7, 8}}, {"replaced_value_float", double{kNan}}}),
                DType::f32, {2, 2}, {1, 8, 3, 4});
  expect_tensor(run("ai.onnx.ml::Imputer", {longs({0, 5}, {1, 2})}, {{"imputed_value_int64s", Ints{9}}}), DType::i64,
                {1, 2}, {9, 5});
  const Tensor y = floats({1, 2, 3, 4, 5, 6}, {2, 3});
  expect_tensor(run("ai.onnx.ml::ArrayFeatureExtractor", {y, longs({2, 0})}), DType::f32, {2, 2}, {3, 1, 6, 4});
  EXPECT_NE(refusal("ai.onnx.ml::ArrayFeatureExtractor", {y, longs({3})})
                .find("index 3 at element 0 is out of range for extent 3"),
            std::string::npos);
  expect_tensor(run("ai.onnx.ml::FeatureVectorizer", {y, longs({8, 9}, {2, 1})}, {{"inputdimensions", Ints{2, 2}}}),
                DType::f32, {2, 4}, {1, 2, 8, 0, 4, 5, 9, 0});
  expect_tensor(run("ai.onnx.ml::FeatureVectorizer", {y, longs({8, 9}, {2, 1})}), DType::f32, {2, 4},
                {1, 2, 3, 8, 4, 5, 6, 9});
}

TEST(Features, EncodeCategories) {
  expect_tensor(run("ai.onnx.ml::OneHotEncoder", {texts({"b", "c"}, {2})}, {{"cats_strings", Strings{"a", "b"}}}),
                DType::f32, {2, 2}, {0, 1, 0, 0});
  EXPECT_NE(refusal("ai.onnx.ml::OneHotEncoder", {longs({5})}, {{"cats_int64s", Ints{1}}, {"zeros", std::int64_t{0}}})
                .find("none of the 1 categories"),
            std::string::npos);
  const Tensor labels = run("ai.onnx.ml::LabelEncoder", {texts({"b", "x", "a"}, {3})},
                            {{"keys_strings", Strings{"a", "b"}}, {"values_int64s", Ints{10, 20}}});
  expect_tensor(labels, DType::i64, {3}, {20, -1, 10});
  const Tensor names = run("ai.onnx.ml::LabelEncoder", {floats({kNan, 1})},
                           {{"keys_floats", Numbers{kNan}}, {"values_strings", Strings{"nan"}}});
  EXPECT_EQ(names.view<std::string>()[0], "nan");
  EXPECT_EQ(names.view<std::string>()[1], "_Unused");
}

TEST(Svm, WeighsItsVectors) {
  const Tensor x = floats({1, 2}, {1, 2});
  const Attributes linear = {{"coefficients", Numbers{2, -1}},
                             {"n_supports", std::int64_t{2}},
                             {"rho", Numbers{0.5}},
                             {"support_vectors", Numbers{1, 0, 0, 1}}};
  expect_tensor(run("ai.onnx.ml::SVMRegressor", {x}, linear), DType::f32, {1, 1}, {0.5});
  Attributes rbf = linear;
  rbf.set("kernel_type", "RBF");
  rbf.set("kernel_params", Numbers{0.5, 0, 0});
  expect_tensor(run("ai.onnx.ml::SVMRegressor", {x}, rbf), DType::f32, {1, 1},
                {2 * std::exp(-2.0) - std::exp(-1.0) + 0.5});
  // Two classes with a vector each: the first wins where the score is positive.
  Attributes two = {{"classlabels_strings", Strings{"a", "b"}},
                    {"coefficients", Numbers{1, -1}},
                    {"rho", Numbers{0}},
                    {"support_vectors", Numbers{1, 0, 0, 1}},
                    {"vectors_per_class", Ints{1, 1}}};
  const auto y = run_op("ai.onnx.ml::SVMClassifier", {floats({2, 1, 0, 3}, {2, 2})}, two, 2);
  EXPECT_EQ(y[0].view<std::string>()[0], "a");
  EXPECT_EQ(y[0].view<std::string>()[1], "b");
  two.set("prob_a", Numbers{-1});
  two.set("prob_b", Numbers{0});
  const double p = 1 / (1 + std::exp(-1.0));
  const auto z = run_op("ai.onnx.ml::SVMClassifier", {floats({2, 1}, {1, 2})}, two, 2);
  expect_tensor(z[1], DType::f32, {1, 2}, {p, 1 - p}, 1e-3);
  // A weight per class and feature; scores of weights that are never negative speak of the second class.
  const Attributes per_class = {
      {"classlabels_ints", Ints{7, 9}}, {"coefficients", Numbers{3, 0, 1, 0}}, {"rho", Numbers{0}}};
  EXPECT_EQ(run_op("ai.onnx.ml::SVMClassifier", {x}, per_class, 2)[0].tensor().number(0), 9);
  Attributes negative = per_class;
  negative.set("coefficients", Numbers{3, 0, 1, -1});
  EXPECT_EQ(run_op("ai.onnx.ml::SVMClassifier", {x}, negative, 2)[0].tensor().number(0), 7);
  EXPECT_NE(refusal("ai.onnx.ml::SVMRegressor", {x}, {{"coefficients", Numbers{1}}, {"rho", Numbers{0}}})
                .find("coefficients must have 2 values"),
            std::string::npos);
}

TEST(Maps, ZipAndMap) {
  const auto rows =
      run_op("ai.onnx.ml::ZipMap", {floats({0.25F, 0.75F}, {1, 2})}, {{"classlabels_strings", Strings{"no", "yes"}}});
  ASSERT_EQ(rows[0].sequence().size(), 1U);
  EXPECT_EQ(rows[0].sequence()[0].map().at(std::string("yes")).view<float>()[0], 0.75F);
  const Attributes categories = {{"cats_int64s", Ints{7, 8}}, {"cats_strings", Strings{"a", "b"}}};
  expect_tensor(run("ai.onnx.ml::CategoryMapper", {texts({"b", "x"}, {2})}, categories), DType::i64, {2}, {8, -1});
  EXPECT_EQ(run("ai.onnx.ml::CategoryMapper", {longs({7, 9})}, categories).view<std::string>()[1], "_Unused");
}

TEST(Linear, ScoresAndClasses) {
  const Tensor x = floats({1, 2, -1, 0}, {2, 2});
  expect_tensor(
      run("ai.onnx.ml::LinearRegressor", {x}, {{"coefficients", Numbers{1, 10}}, {"intercepts", Numbers{0.5}}}),
      DType::f32, {2, 1}, {21.5, -0.5});
  const auto two = run_op(
      "ai.onnx.ml::LinearClassifier", {x},
      {{"coefficients", Numbers{1, 0}}, {"classlabels_strings", Strings{"no", "yes"}}, {"post_transform", "LOGISTIC"}},
      2);
  EXPECT_EQ(two[0].view<std::string>()[0], "yes");
  EXPECT_EQ(two[0].view<std::string>()[1], "no");
  const double p = 1 / (1 + std::exp(-1.0));
  expect_tensor(two[1], DType::f32, {2, 2}, {1 - p, p, p, 1 - p});
  const auto three = run_op("ai.onnx.ml::LinearClassifier", {x},
                            {{"coefficients", Numbers{1, 0, 0, 1, -1, 0}}, {"classlabels_ints", Ints{5, 6, 7}}}, 2);
  expect_tensor(three[0], DType::i64, {2}, {6, 7});
  expect_tensor(three[1], DType::f32, {2, 3}, {1, 2, -1, -1, 0, 1});
  EXPECT_NE(refusal("ai.onnx.ml::LinearRegressor", {x}, {{"coefficients", Numbers{1}}})
                .find("coefficients must have 2 values"),
            std::string::npos);
}

TEST(Linear, TransformsAreThoseOfTheOtherModels) {
  const std::vector<std::vector<double>> rows = {{0.25, 0.5, 0.125}, {0, 0.75, 0.875}, {0, 0, 0}, {0.5, 0.0625, 0}};
  std::vector<float> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const Tensor x = Tensor::from(flat, {4, 3});
  const std::string names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  for (std::size_t t = 0; t < 5; ++t) {
    const auto transform = static_cast<PostTransform>(t);
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(names[t]);
      std::vector<double> expected, single;
      for (std::vector<double> row : rows) {
        transform_scores(transform, row);
        expected.insert(expected.end(), row.begin(), row.end());
        double two[2];
        classify_single(SingleScore::probability, transform, rows[single.size() / 2][0], two);
        single.insert(single.end(), two, two + 2);
      }
      const Attributes same = {{"coefficients", Numbers{1, 0, 0, 0, 1, 0, 0, 0, 1}}, {"post_transform", names[t]}};
      Attributes targets = same, classes = same;
      targets.set("targets", std::int64_t{3});
      classes.set("classlabels_ints", Ints{5, 6, 7});
      expect_tensor(run("ai.onnx.ml::LinearRegressor", {x.cast(dtype)}, targets), DType::f32, {4, 3}, expected);
      const auto three = run_op("ai.onnx.ml::LinearClassifier", {x.cast(dtype)}, classes, 2);
      expect_tensor(three[0], DType::i64, {4}, {6, 7, 5, 5});
      expect_tensor(three[1], DType::f32, {4, 3}, expected);
      const auto two = run_op("ai.onnx.ml::LinearClassifier", {x.cast(dtype)},
                              {{"coefficients", Numbers{1, 0, 0}},
                               {"classlabels_strings", Strings{"no", "yes"}},
                               {"post_transform", names[t]}},
                              2);
      EXPECT_EQ(two[0].view<std::string>()[0], "yes");
      EXPECT_EQ(two[0].view<std::string>()[1], "no");
      expect_tensor(two[1], DType::f32, {4, 2}, single);
    }
  }
}

TEST(Linear, ASingleProbitLeavesTheOtherScoreZero) {
  const auto two =
      run_op("ai.onnx.ml::LinearClassifier", {floats({kNan, 0.5F}, {2, 1})},
             {{"coefficients", Numbers{1}}, {"classlabels_ints", Ints{0, 1}}, {"post_transform", "PROBIT"}}, 2);
  EXPECT_TRUE(std::isnan(two[1].view<float>()[0]));
  EXPECT_EQ(two[1].view<float>()[1], 0);
  EXPECT_EQ(two[1].view<float>()[2], 0);
  EXPECT_EQ(two[1].view<float>()[3], 0);
}

/// One split of feature 0 at 0 and two leaves.
Attributes stump(const std::string& prefix, Ints ids, Numbers weights, std::string mode = "BRANCH_LEQ") {
  Ints trees(ids.size(), 0), nodes;
  for (std::size_t i = 0; i < ids.size(); ++i) nodes.push_back(1 + static_cast<std::int64_t>(i % 2));
  return {{"nodes_treeids", Ints{0, 0, 0}},         {"nodes_nodeids", Ints{0, 1, 2}},
          {"nodes_featureids", Ints{0, 0, 0}},      {"nodes_modes", Strings{std::move(mode), "LEAF", "LEAF"}},
          {"nodes_values", Numbers{0, 0, 0}},       {"nodes_truenodeids", Ints{1, 0, 0}},
          {"nodes_falsenodeids", Ints{2, 0, 0}},    {prefix + "_ids", std::move(ids)},
          {prefix + "_treeids", std::move(trees)},  {prefix + "_nodeids", std::move(nodes)},
          {prefix + "_weights", std::move(weights)}};
}

TEST(Trees, RegressAndAggregate) {
  const Tensor x = floats({-1, 0, 1, kNan}, {4, 1});
  expect_tensor(run("ai.onnx.ml::TreeEnsembleRegressor", {x}, stump("target", {0, 0}, {5, 7})), DType::f32, {4, 1},
                {5, 5, 7, 7});
  Attributes missing = stump("target", {0, 0}, {5, 7});
  missing.set("nodes_missing_value_tracks_true", Ints{1, 0, 0});
  missing.set("base_values", Numbers{100});
  expect_tensor(run("ai.onnx.ml::TreeEnsembleRegressor", {x}, missing), DType::f32, {4, 1}, {105, 105, 107, 105});
  for (const auto& [mode, expected] :
       std::vector<std::pair<std::string, std::vector<double>>>{{"BRANCH_LT", {5, 7, 7}},
                                                                {"BRANCH_GT", {7, 7, 5}},
                                                                {"BRANCH_GTE", {7, 5, 5}},
                                                                {"BRANCH_EQ", {7, 5, 7}},
                                                                {"BRANCH_NEQ", {5, 7, 5}}}) {
    expect_tensor(
        run("ai.onnx.ml::TreeEnsembleRegressor", {floats({-1, 0, 1}, {3, 1})}, stump("target", {0, 0}, {5, 7}, mode)),
        DType::f32, {3, 1}, expected);
  }
}

TEST(Trees, ClassifyTwoClassesByOneScore) {
  const Tensor x = floats({-1, 1}, {2, 1});
  Attributes a = stump("class", {0, 0}, {0.2, 0.7});
  a.set("classlabels_int64s", Ints{10, 20});
  const auto y = run_op("ai.onnx.ml::TreeEnsembleClassifier", {x}, a, 2);
  expect_tensor(y[0], DType::i64, {2}, {10, 20});
  expect_tensor(y[1], DType::f32, {2, 2}, {0.8, 0.2, 0.3, 0.7});
  Attributes three = stump("class", {0, 0, 2, 2}, {1, -1, 0.5, 3});
  three.set("classlabels_strings", Strings{"a", "b", "c"});
  const auto z = run_op("ai.onnx.ml::TreeEnsembleClassifier", {x}, three, 2);
  EXPECT_EQ(z[0].view<std::string>()[0], "a");
  EXPECT_EQ(z[0].view<std::string>()[1], "c");
}

TEST(Trees, RefuseWhatIsNoTree) {
  const Tensor x = floats({-1, 1}, {2, 1});
  Attributes cycle = stump("target", {0, 0}, {5, 7});
  cycle.set("nodes_modes", Strings{"BRANCH_LEQ", "BRANCH_LEQ", "LEAF"});
  cycle.set("nodes_truenodeids", Ints{1, 1, 0});
  cycle.set("nodes_falsenodeids", Ints{2, 2, 0});
  cycle.set("target_nodeids", Ints{2, 2});
  EXPECT_NE(refusal("ai.onnx.ml::TreeEnsembleRegressor", {x}, cycle).find("reached in two ways"), std::string::npos);
  Attributes far = stump("target", {0, 0}, {5, 7});
  far.set("nodes_featureids", Ints{3, 0, 0});
  EXPECT_NE(refusal("ai.onnx.ml::TreeEnsembleRegressor", {x}, far).find("the trees read feature 3, but x has 1"),
            std::string::npos);
  EXPECT_NE(refusal("ai.onnx.ml::TreeEnsembleRegressor", {x}, stump("target", {0, 4}, {5, 7}))
                .find("target_ids must be between"),
            std::string::npos);
  EXPECT_NE(refusal("ai.onnx.ml::TreeEnsembleRegressor", {x}, stump("target", {0, 0}, {5, 7}, "BRANCH_XX"))
                .find("mode 'BRANCH_XX' is unknown"),
            std::string::npos);
}

}  // namespace
}  // namespace lathe::ops
