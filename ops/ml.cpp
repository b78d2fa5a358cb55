// Operators of ai.onnx.ml on feature rows: scaling, normalizing, linear models, encoders.
#include <algorithm>
#include <cmath>
#include <map>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"
#include "ops/plain.h"
#include "ops/scores.h"

namespace lathe::ops {
namespace {

std::int64_t last_extent(const Shape& shape) { return shape.rank() == 0 ? 1 : shape.back(); }

/// Rows of features: [features] is one row.
Shape rows_of(const OpView& op, std::int64_t columns) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() == 1 || x.rank() == 2, "x must have 1 or 2 dims, got shape {}", x);
  return {x.rank() == 2 ? x[0] : 1, columns};
}

Tensor f32_tensor(std::span<const double> values) {
  Tensor t(DType::f32, {static_cast<std::int64_t>(values.size())});
  std::transform(values.begin(), values.end(), t.mutable_view<float>().begin(),
                 [](double v) { return static_cast<float>(v); });
  return t;
}

// ---- Scaler: (x − offset) · scale ----

constexpr Attribute kScalerAttributes[] = {{"offset", AttrKind::numbers}, {"scale", AttrKind::numbers}};

Facts infer_scaler(const OpView& op) {
  for (std::string_view name : {"offset", "scale"}) {
    const auto count = static_cast<std::int64_t>(op.attr_floats(name).size());
    op.require(count <= 1 || count == last_extent(op.in(0).shape), "{} must have one value or {}, got {}", name,
               last_extent(op.in(0).shape), count);
  }
  return {Fact(DType::f32, op.in(0).shape)};
}

std::vector<ValueId> lower_scaler(const OpView& op, Builder& b) {
  const auto values = [&](std::string_view name) {
    const auto list = op.attr_floats(name);
    return list.size() == 1 ? b.scalar(DType::f32, list[0]) : b.constant(f32_tensor(list));
  };
  ValueId y = b.cast(op.id(0), DType::f32);
  if (!op.attr_floats("offset").empty()) y = b.sub(y, values("offset"));
  if (!op.attr_floats("scale").empty()) y = b.mul(y, values("scale"));
  return {y == op.id(0) ? b.op("Identity", {y}) : y};
}

// ---- Normalizer ----

constexpr Attribute kNormalizerAttributes[] = {{"norm", "MAX"}};

Facts infer_normalizer(const OpView& op) {
  rows_of(op, 0);
  const std::string_view norm = op.s("norm");
  op.require(norm == "MAX" || norm == "L1" || norm == "L2", "norm must be MAX, L1 or L2, got '{}'", shown(norm));
  return {Fact(DType::f32, op.in(0).shape)};
}

std::vector<ValueId> lower_normalizer(const OpView& op, Builder& b) {
  const std::string_view norm = op.s("norm");
  const ValueId x = b.cast(op.id(0), DType::f32);
  const ValueId size = norm == "MAX"  ? b.reduce("ReduceMax", x, {-1})
                       : norm == "L1" ? b.reduce("ReduceL1", x, {-1})
                                      : b.reduce("ReduceL2", x, {-1});
  // A row of zeros stays one.
  const ValueId divisor =
      b.op("Where", {b.op("Equal", {size, b.scalar(DType::f32, 0)}), b.scalar(DType::f32, 1), size});
  return {b.div(x, divisor)};
}

// ---- Binarizer ----

constexpr Attribute kBinarizerAttributes[] = {{"threshold", 0.0}};

Facts infer_binarizer(const OpView& op) { return {op.in(0)}; }

Scalar expr_binarizer(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const DType dtype = op.in(0).dtype;
  const DType compute = dtype.is_integer() ? DType(DType::f64) : dtype;
  return b.cast(b.binary(loops::Op::greater, b.cast(b.in(0, at), compute), b.constant(compute, op.f("threshold"))),
                dtype);
}

// ---- linear models ----

constexpr Attribute kLinearRegressorAttributes[] = {
    {"coefficients", AttrKind::numbers}, {"intercepts", AttrKind::numbers}, {"post_transform", "NONE"}, {"targets", 1}};
constexpr Attribute kLinearClassifierAttributes[] = {{"classlabels_ints", AttrKind::integers},
                                                     {"classlabels_strings", AttrKind::strings},
                                                     {"coefficients", AttrKind::numbers, Attribute::kRequired},
                                                     {"intercepts", AttrKind::numbers},
                                                     {"multi_class", 0},
                                                     {"post_transform", "NONE"}};

/// Rows of x · coefficientsᵀ + intercepts for row-major coefficients [scores, features].
ValueId linear_scores(const OpView& op, Builder& b, std::int64_t scores) {
  const DType compute = op.in(0).dtype == DType::f32 ? DType::f32 : DType::f64;
  const ValueId x = b.cast(op.in(0).rank() == 1 ? b.unsqueeze(op.id(0), {0}) : op.id(0), compute);
  const auto given = op.attr_floats("coefficients"), intercepts = op.attr_floats("intercepts");
  const std::int64_t features = last_extent(op.in(0).shape);
  Tensor coefficients(DType::f64, {features, scores});
  for (std::int64_t s = 0; s < scores; ++s) {
    for (std::int64_t f = 0; f < features; ++f) {
      coefficients.mutable_view<double>()[static_cast<std::size_t>(f * scores + s)] =
          given[static_cast<std::size_t>(s * features + f)];
    }
  }
  const ValueId y = b.matmul(x, b.constant(coefficients.cast(compute)));
  if (intercepts.empty()) return y;
  return b.add(y, b.constant(Tensor::from(intercepts, {scores}).cast(compute)));
}

void check_linear(const OpView& op, std::int64_t scores) {
  const std::int64_t features = last_extent(op.in(0).shape);
  const auto count = static_cast<std::int64_t>(op.attr_floats("coefficients").size());
  op.require(scores > 0 && scores < (1 << 20) && count == scores * features,
             "coefficients must have {} values, {} for each of {} scores, got {}", scores * features, features, scores,
             count);
  const auto intercepts = static_cast<std::int64_t>(op.attr_floats("intercepts").size());
  op.require(intercepts == 0 || intercepts == scores, "intercepts must have {} values, got {}", scores, intercepts);
  post_transform(op, op.s("post_transform"));
}

Facts infer_linear_regressor(const OpView& op) {
  check_linear(op, op.i("targets"));
  return {Fact(DType::f32, rows_of(op, op.i("targets")))};
}

std::vector<ValueId> lower_linear_regressor(const OpView& op, Builder& b) {
  const ValueId scores = linear_scores(op, b, op.i("targets"));
  return {b.cast(lower_transform(post_transform(op, op.s("post_transform")), b, scores), DType::f32)};
}

/// Scores computed: one per class, or one for both of two.
std::int64_t score_count(const OpView& op, const ClassLabels& labels) {
  const std::int64_t features = last_extent(op.in(0).shape);
  const auto count = static_cast<std::int64_t>(op.attr_floats("coefficients").size());
  return labels.count() == 2 && count == features ? 1 : labels.count();
}

Facts infer_linear_classifier(const OpView& op) {
  const ClassLabels labels(op, "classlabels_ints", "classlabels_strings");
  check_linear(op, score_count(op, labels));
  const Shape z = rows_of(op, labels.count());
  return {Fact(labels.dtype(), {z[0]}), Fact(DType::f32, z)};
}

std::vector<ValueId> lower_linear_classifier(const OpView& op, Builder& b) {
  const ClassLabels labels(op, "classlabels_ints", "classlabels_strings");
  const PostTransform transform = post_transform(op, op.s("post_transform"));
  const std::int64_t count = score_count(op, labels);
  const ValueId scores = linear_scores(op, b, count);
  const bool single = count != labels.count();
  const ValueId label =
      single ? b.cast(b.squeeze(b.op("Greater", {scores, b.scalar(b.fact(scores).dtype, 0)}), {1}), DType::i64)
             : b.op("ArgMax", {scores}, {{"axis", std::int64_t{1}}, {"keepdims", std::int64_t{0}}});
  const ValueId transformed = single ? lower_single(transform, b, scores) : lower_transform(transform, b, scores);
  return {b.op("Gather", {b.constant(labels.all()), label}), b.cast(transformed, DType::f32)};
}

// ---- ArrayFeatureExtractor: columns of the last axis ----

Facts infer_extractor(const OpView& op) {
  const Fact& x = op.in(0);
  op.require(x.rank() >= 1, "x must have at least one dim");
  Shape out = x.shape;
  if (x.rank() == 1) out.insert(0, 1);
  out[out.rank() - 1] = op.in(1).shape.elements();
  return {Fact(x.dtype, out)};
}

std::vector<ValueId> lower_extractor(const OpView& op, Builder& b) {
  const ValueId rows = op.in(0).rank() == 1 ? b.unsqueeze(op.id(0), {0}) : op.id(0);
  return {b.op("Gather", {rows, b.reshape(op.id(1), std::vector<std::int64_t>{-1})}, {{"axis", std::int64_t{-1}}})};
}

// ---- Imputer: one value replaced ----

constexpr Attribute kImputerAttributes[] = {{"imputed_value_floats", AttrKind::numbers},
                                            {"imputed_value_int64s", AttrKind::integers},
                                            {"replaced_value_float", 0.0},
                                            {"replaced_value_int64", 0}};

std::vector<double> imputed(const OpView& op) {
  const auto floats = op.attr_floats("imputed_value_floats");
  const auto ints = op.attr_ints("imputed_value_int64s");
  if (op.in(0).dtype.is_float()) return {floats.begin(), floats.end()};
  return {ints.begin(), ints.end()};
}

Facts infer_imputer(const OpView& op) {
  const auto count = static_cast<std::int64_t>(imputed(op).size());
  op.require(count == 1 || count == last_extent(op.in(0).shape), "the imputed values must be one or {}, got {}",
             last_extent(op.in(0).shape), count);
  return {op.in(0)};
}

std::vector<ValueId> lower_imputer(const OpView& op, Builder& b) {
  const DType dtype = op.in(0).dtype;
  const std::vector<double> values = imputed(op);
  const double replaced =
      dtype.is_float() ? op.f("replaced_value_float") : static_cast<double>(op.i("replaced_value_int64"));
  const Shape each = values.size() == 1 ? Shape{} : Shape{static_cast<std::int64_t>(values.size())};
  const ValueId with = b.constant(Tensor::from(values, each).cast(dtype));
  const ValueId which =
      std::isnan(replaced) ? b.op("IsNaN", {op.id(0)}) : b.op("Equal", {op.id(0), b.scalar(dtype, replaced)});
  return {b.op("Where", {which, with, op.id(0)})};
}

// ---- FeatureVectorizer: inputs side by side ----

constexpr std::int64_t kMostColumns = std::int64_t{1} << 40;
constexpr Attribute kVectorizerAttributes[] = {{"inputdimensions", AttrKind::integers}};

std::int64_t columns_of(const Fact& x) {
  return x.rank() == 0 ? 1 : x.rank() == 1 ? x.shape[0] : extent_of(x.shape, 1, x.rank());
}

Facts infer_vectorizer(const OpView& op) {
  const auto dimensions = op.attr_ints("inputdimensions");
  op.require(dimensions.empty() || static_cast<int>(dimensions.size()) == op.inputs(),
             "inputdimensions has {} values for {} inputs", dimensions.size(), op.inputs());
  std::int64_t columns = 0;
  const std::int64_t rows = op.in(0).rank() >= 2 ? op.in(0).shape[0] : 1;
  for (int i = 0; i < op.inputs(); ++i) {
    op.require((op.in(i).rank() >= 2 ? op.in(i).shape[0] : 1) == rows, "inputs must have {} rows, got shape {}", rows,
               op.in(i).shape);
    const std::int64_t own = dimensions.empty() ? columns_of(op.in(i)) : dimensions[static_cast<std::size_t>(i)];
    op.require(own >= 0 && own <= kMostColumns - columns, "inputdimensions {} is negative or too large", own);
    columns += own;
  }
  return {Fact(DType::f32, {rows, columns})};
}

std::vector<ValueId> lower_vectorizer(const OpView& op, Builder& b) {
  const auto dimensions = op.attr_ints("inputdimensions");
  std::vector<ValueId> parts;
  for (int i = 0; i < op.inputs(); ++i) {
    ValueId x = b.cast(op.id(i), DType::f32);
    const int rank = op.in(i).rank();
    if (rank != 2) x = b.op("Flatten", {rank < 2 ? b.reshape(x, {1, -1}) : x}, {{"axis", std::int64_t{1}}});
    if (!dimensions.empty()) {  // cut, or filled up with zeros
      const std::int64_t columns = dimensions[static_cast<std::size_t>(i)];
      x = b.slice(x, {0}, {columns}, {1});
      const ValueId missing = b.sub(b.ints({columns}), b.shape_of(x, 1, 2));
      x = b.op("Pad", {x, b.concat({b.ints({0, 0, 0}), missing}, 0)});
    }
    parts.push_back(x);
  }
  return {parts.size() == 1 ? b.op("Identity", {parts[0]}) : b.concat(parts, 1)};
}

// ---- OneHotEncoder: a new last axis over the categories ----

constexpr Attribute kOneHotAttributes[] = {
    {"cats_int64s", AttrKind::integers}, {"cats_strings", AttrKind::strings}, {"zeros", 1}};

Facts infer_one_hot(const OpView& op) {
  const auto ints = op.attr_ints("cats_int64s");
  const auto strings = op.attr_strings("cats_strings");
  op.require(ints.empty() != strings.empty(), "exactly one of cats_int64s and cats_strings must be given");
  op.require((op.in(0).dtype == DType::string) == ints.empty(),
             "categories and x must both be strings or both numbers, got x of {}", op.in(0).dtype);
  Shape out = op.in(0).shape;
  out.push_back(static_cast<std::int64_t>(std::max(ints.size(), strings.size())));
  return {Fact(DType::f32, out)};
}

void kernel_one_hot(KernelContext& ctx) {
  const Tensor& x = ctx.in(0);
  const auto ints = ctx.op().attr_ints("cats_int64s");
  const auto strings = ctx.op().attr_strings("cats_strings");
  auto y = ctx.out<float>(0);
  std::fill(y.begin(), y.end(), 0.0F);
  const std::size_t count = std::max(ints.size(), strings.size());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t found =
        ints.empty() ? static_cast<std::size_t>(std::find(strings.begin(), strings.end(), x.view<std::string>()[at]) -
                                                strings.begin())
                     : static_cast<std::size_t>(std::find(ints.begin(), ints.end(), x.integer(i)) - ints.begin());
    if (found < count) {
      y[at * count + found] = 1;
    } else if (ctx.op().i("zeros") == 0) {
      ctx.error(ErrorCode::invalid_argument, "element {} is none of the {} categories", i, count);
    }
  }
}

// ---- LabelEncoder: a table from keys to values ----

constexpr Attribute kLabelEncoderAttributes[] = {{"default_float", -0.0},
                                                 {"default_int64", -1},
                                                 {"default_string", "_Unused"},
                                                 {"default_tensor", AttrKind::tensor},
                                                 {"keys_floats", AttrKind::numbers},
                                                 {"keys_int64s", AttrKind::integers},
                                                 {"keys_strings", AttrKind::strings},
                                                 {"keys_tensor", AttrKind::tensor},
                                                 {"values_floats", AttrKind::numbers},
                                                 {"values_int64s", AttrKind::integers},
                                                 {"values_strings", AttrKind::strings},
                                                 {"values_tensor", AttrKind::tensor}};

/// `keys` or `values`, however stated, as one tensor.
Tensor stated_list(const OpView& op, const std::string& name) {
  if (const Tensor* t = op.attr_tensor(name + "_tensor")) return *t;
  const auto floats = op.attr_floats(name + "_floats");
  const auto ints = op.attr_ints(name + "_int64s");
  const auto strings = op.attr_strings(name + "_strings");
  if (!floats.empty()) return f32_tensor(floats);
  if (!ints.empty()) return Tensor::from(ints, {static_cast<std::int64_t>(ints.size())});
  op.require(!strings.empty(), "{} must be given in one of their four forms", name);
  return Tensor::from(strings, {static_cast<std::int64_t>(strings.size())});
}

Tensor default_value(const OpView& op, DType dtype) {
  if (const Tensor* t = op.attr_tensor("default_tensor")) {
    op.require(t->dtype() == dtype && t->size() == 1, "default_tensor must be one {}, got {} {}", dtype, t->size(),
               t->dtype());
    return *t;
  }
  if (dtype == DType::string) return Tensor::scalar(std::string(op.s("default_string")));
  if (dtype.is_float()) return Tensor::scalar(op.f("default_float")).cast(dtype);
  return Tensor::scalar(op.i("default_int64")).cast(dtype);
}

Facts infer_label_encoder(const OpView& op) {
  const Tensor keys = stated_list(op, "keys"), values = stated_list(op, "values");
  op.require(keys.size() == values.size(), "there are {} keys, but {} values", keys.size(), values.size());
  op.require(keys.dtype() == op.in(0).dtype, "x must be {} like the keys, got {}", keys.dtype(), op.in(0).dtype);
  default_value(op, values.dtype());
  return {Fact(values.dtype(), op.in(0).shape)};
}

/// Calls encode(key → index of value or -1) with keys of the right type. NaN is a key like any other.
template <class T>
std::vector<std::int64_t> look_up(const Tensor& keys, const Tensor& x) {
  const auto key_values = keys.view<T>();
  const auto less = [](const T& a, const T& b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
    }
    return a < b;
  };
  std::map<T, std::int64_t, decltype(less)> table(less);
  for (std::size_t i = 0; i < key_values.size(); ++i) table.emplace(key_values[i], static_cast<std::int64_t>(i));
  std::vector<std::int64_t> found;
  for (const T& v : x.view<T>()) {
    const auto at = table.find(v);
    found.push_back(at == table.end() ? -1 : at->second);
  }
  return found;
}

void kernel_label_encoder(KernelContext& ctx) {
  const Tensor keys = stated_list(ctx.op(), "keys"), values = stated_list(ctx.op(), "values");
  const Tensor otherwise = default_value(ctx.op(), values.dtype());
  std::vector<std::int64_t> found;
  if (keys.dtype() == DType::string) {
    found = look_up<std::string>(keys, ctx.in(0));
  } else {
    dispatch_numeric(keys.dtype(),
                     [&](auto* type) { found = look_up<std::remove_pointer_t<decltype(type)>>(keys, ctx.in(0)); });
  }
  Tensor y = ctx.out(0);
  for (std::size_t i = 0; i < found.size(); ++i) {
    copy_elements(found[i] < 0 ? otherwise : values, std::max<std::int64_t>(0, found[i]), y,
                  static_cast<std::int64_t>(i), 1);
  }
}

}  // namespace

extern const OpDef op_ml_scaler;
constinit const OpDef op_ml_scaler = {.name = "Scaler",
                                      .domain = "ai.onnx.ml",
                                      .attributes = kScalerAttributes,
                                      .takes = kIndices | DType::f32 | DType::f64,
                                      .infer = infer_scaler,
                                      .lower = lower_scaler};

extern const OpDef op_ml_normalizer;
constinit const OpDef op_ml_normalizer = {.name = "Normalizer",
                                          .domain = "ai.onnx.ml",
                                          .attributes = kNormalizerAttributes,
                                          .takes = kIndices | DType::f32 | DType::f64,
                                          .infer = infer_normalizer,
                                          .lower = lower_normalizer};

extern const OpDef op_ml_binarizer;
constinit const OpDef op_ml_binarizer = {.name = "Binarizer",
                                         .domain = "ai.onnx.ml",
                                         .attributes = kBinarizerAttributes,
                                         .takes = kIndices | DType::f32 | DType::f64,
                                         .infer = infer_binarizer,
                                         .expr = expr_binarizer};

extern const OpDef op_ml_linear_regressor;
constinit const OpDef op_ml_linear_regressor = {.name = "LinearRegressor",
                                                .domain = "ai.onnx.ml",
                                                .attributes = kLinearRegressorAttributes,
                                                .takes = kIndices | DType::f32 | DType::f64,
                                                .infer = infer_linear_regressor,
                                                .lower = lower_linear_regressor};

extern const OpDef op_ml_linear_classifier;
constinit const OpDef op_ml_linear_classifier = {.name = "LinearClassifier",
                                                 .domain = "ai.onnx.ml",
                                                 .outputs = {1, 2},
                                                 .attributes = kLinearClassifierAttributes,
                                                 .takes = kIndices | DType::f32 | DType::f64,
                                                 .infer = infer_linear_classifier,
                                                 .lower = lower_linear_classifier};

extern const OpDef op_ml_array_feature_extractor;
constinit const OpDef op_ml_array_feature_extractor = {
    .name = "ArrayFeatureExtractor",
    .domain = "ai.onnx.ml",
    .inputs = 2,
    .takes = {{kIndices | DType::f32 | DType::f64 | DType::string, inputs(0)}, {DType::i64, inputs(1)}},
    .infer = infer_extractor,
    .lower = lower_extractor};

extern const OpDef op_ml_imputer;
constinit const OpDef op_ml_imputer = {.name = "Imputer",
                                       .domain = "ai.onnx.ml",
                                       .attributes = kImputerAttributes,
                                       .takes = kIndices | DType::f32 | DType::f64,
                                       .infer = infer_imputer,
                                       .lower = lower_imputer};

extern const OpDef op_ml_feature_vectorizer;
constinit const OpDef op_ml_feature_vectorizer = {
    .name = "FeatureVectorizer",
    .domain = "ai.onnx.ml",
    .inputs = {1, Arity::kMany},
    .attributes = kVectorizerAttributes,
    .takes = {{kIndices | DType::f32 | DType::f64, inputs_from(0), false}},
    .infer = infer_vectorizer,
    .lower = lower_vectorizer};

extern const OpDef op_ml_one_hot_encoder;
constinit const OpDef op_ml_one_hot_encoder = {.name = "OneHotEncoder",
                                               .domain = "ai.onnx.ml",
                                               .attributes = kOneHotAttributes,
                                               .takes = kIndices | DType::f32 | DType::f64 | DType::string,
                                               .infer = infer_one_hot,
                                               .kernel = kernel_one_hot,
                                               .real_time = true};

extern const OpDef op_ml_label_encoder;
constinit const OpDef op_ml_label_encoder = {.name = "LabelEncoder",
                                             .domain = "ai.onnx.ml",
                                             .attributes = kLabelEncoderAttributes,
                                             .forms = 4,
                                             .takes = kIndices | DType::f32 | DType::f64 | DType::i16 | DType::string,
                                             .infer = infer_label_encoder,
                                             .kernel = kernel_label_encoder};

}  // namespace lathe::ops
