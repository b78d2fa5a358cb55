// Maps of ai.onnx.ml: from scores to maps and from maps to rows; CategoryMapper between strings and integers.
#include <algorithm>
#include <charconv>
#include <map>
#include <string>

#include "ops/plain.h"

namespace lathe::ops {
namespace {

// ---- ZipMap: each row of scores as a map from label to score ----

constexpr Attribute kZipMapAttributes[] = {{"classlabels_int64s", AttrKind::integers},
                                           {"classlabels_strings", AttrKind::strings}};

Facts infer_zip_map(const OpView& op) {
  const auto ints = op.attr_ints("classlabels_int64s");
  const auto strings = op.attr_strings("classlabels_strings");
  const Fact& x = op.in(0);
  op.require(ints.empty() != strings.empty(),
             "exactly one of classlabels_int64s and classlabels_strings must be given");
  const auto labels = static_cast<std::int64_t>(std::max(ints.size(), strings.size()));
  op.require(x.dtype == DType::f32 && (x.rank() == 1 || x.rank() == 2) && x.shape.back() == labels,
             "x must be f32 with {} columns, got {}", labels, x.to_string());
  return {Fact::of_kind(Fact::Kind::sequence, DType::f32)};
}

void kernel_zip_map(KernelContext& ctx) {
  const auto ints = ctx.op().attr_ints("classlabels_int64s");
  const auto strings = ctx.op().attr_strings("classlabels_strings");
  const auto scores = ctx.in<float>(0);
  const std::size_t labels = std::max(ints.size(), strings.size());
  Sequence rows;
  for (std::size_t first = 0; first + labels <= scores.size(); first += labels) {
    Map row;
    for (std::size_t k = 0; k < labels; ++k) {
      Map::key_type key = ints.empty() ? Map::key_type(strings[k]) : Map::key_type(ints[k]);
      row.insert_or_assign(std::move(key), Value(Tensor::scalar(scores[first + k])));
    }
    rows.emplace_back(std::move(row));
  }
  ctx.set(0, std::move(rows));
}

// ---- DictVectorizer: the values of a map in the order of a vocabulary ----

constexpr Attribute kDictAttributes[] = {{"int64_vocabulary", AttrKind::integers},
                                         {"string_vocabulary", AttrKind::strings}};

const Map& map_of(const KernelContext& ctx) {
  ctx.op().require(ctx.value(0).is_map(), "x must be a map, got {}", ctx.op().in(0).to_string());
  return ctx.value(0).map();
}

void kernel_dict(KernelContext& ctx) {
  const auto ints = ctx.op().attr_ints("int64_vocabulary");
  const auto strings = ctx.op().attr_strings("string_vocabulary");
  ctx.op().require(ints.empty() != strings.empty(),
                   "exactly one of int64_vocabulary and string_vocabulary must be given");
  const Map& map = map_of(ctx);
  const DType dtype = map.empty() ? DType(DType::f32) : map.begin()->second.dtype();
  const auto count = static_cast<std::int64_t>(std::max(ints.size(), strings.size()));
  Tensor y = ctx.allocate(0, dtype, {1, count});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto found = map.find(ints.empty() ? Map::key_type(strings[at]) : Map::key_type(ints[at]));
    if (found == map.end()) continue;
    ctx.op().require(found->second.dtype() == dtype && found->second.tensor().size() == 1,
                     "the map's values must be one {} each", dtype);
    copy_elements(found->second.tensor(), 0, y, i, 1);
  }
}

// ---- CastMap: the values of a map from integers, dense or placed by their keys ----

constexpr Attribute kCastMapAttributes[] = {{"cast_to", "TO_FLOAT"}, {"map_form", "DENSE"}, {"max_map", 1}};

Tensor cast_value(const KernelContext& ctx, const Tensor& value, DType to) {
  const bool from_text = value.dtype() == DType::string;
  if (!from_text && to != DType::string) return value.cast(to);
  if (from_text && to == DType::string) return value;
  if (!from_text) return Tensor::scalar(fmt::format("{}", value.number(0)));
  const std::string& text = value.view<std::string>()[0];
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    ctx.error(ErrorCode::invalid_argument, "'{}' is no number", shown(text));
  return Tensor::scalar(number).cast(to);
}

void kernel_cast_map(KernelContext& ctx) {
  const std::string_view to = ctx.op().s("cast_to"), form = ctx.op().s("map_form");
  ctx.op().require(to == "TO_FLOAT" || to == "TO_STRING" || to == "TO_INT64",
                   "cast_to must be TO_FLOAT, TO_STRING or TO_INT64, got '{}'", shown(to));
  ctx.op().require(form == "DENSE" || form == "SPARSE", "map_form must be DENSE or SPARSE, got '{}'", shown(form));
  const DType dtype = to == "TO_FLOAT" ? DType::f32 : to == "TO_INT64" ? DType::i64 : DType::string;
  const Map& map = map_of(ctx);
  const bool sparse = form == "SPARSE";
  const std::int64_t count = sparse ? ctx.op().i("max_map") : static_cast<std::int64_t>(map.size());
  ctx.op().require(count >= 0 && count < (std::int64_t{1} << 31), "max_map must not be negative, got {}", count);
  Tensor y = ctx.allocate(0, dtype, {1, count});
  std::int64_t next = 0;
  for (const auto& [key, value] : map) {
    ctx.op().require(std::holds_alternative<std::int64_t>(key), "the map's keys must be integers");
    const std::int64_t at = sparse ? std::get<std::int64_t>(key) : next++;
    if (at < 0 || at >= count) ctx.error(ErrorCode::out_of_range, "key {} is outside [0, {})", at, count);
    copy_elements(cast_value(ctx, value.tensor(), dtype), 0, y, at, 1);
  }
}

// ---- CategoryMapper ----

constexpr Attribute kCategoryAttributes[] = {{"cats_int64s", AttrKind::integers},
                                             {"cats_strings", AttrKind::strings},
                                             {"default_int64", -1},
                                             {"default_string", "_Unused"}};

Facts infer_category(const OpView& op) {
  const DType x = op.in(0).dtype;
  op.require(x == DType::string || x == DType::i64, "x must hold strings or i64, got {}", x);
  op.require(op.attr_ints("cats_int64s").size() == op.attr_strings("cats_strings").size(),
             "cats_int64s and cats_strings must have one length, got {} and {}", op.attr_ints("cats_int64s").size(),
             op.attr_strings("cats_strings").size());
  return {Fact(x == DType::string ? DType::i64 : DType::string, op.in(0).shape)};
}

void kernel_category(KernelContext& ctx) {
  const auto ints = ctx.op().attr_ints("cats_int64s");
  const auto strings = ctx.op().attr_strings("cats_strings");
  Tensor y = ctx.out(0);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (y.dtype() == DType::i64) {
      const auto found = std::find(strings.begin(), strings.end(), ctx.in<std::string>(0)[at]);
      y.mutable_view<std::int64_t>()[at] = found == strings.end()
                                               ? ctx.op().i("default_int64")
                                               : ints[static_cast<std::size_t>(found - strings.begin())];
    } else {
      const auto found = std::find(ints.begin(), ints.end(), ctx.in<std::int64_t>(0)[at]);
      y.mutable_view<std::string>()[at] = found == ints.end() ? std::string(ctx.op().s("default_string"))
                                                              : strings[static_cast<std::size_t>(found - ints.begin())];
    }
  }
}

}  // namespace

extern const OpDef op_ml_zip_map;
constinit const OpDef op_ml_zip_map = {.name = "ZipMap",
                                       .domain = "ai.onnx.ml",
                                       .attributes = kZipMapAttributes,
                                       .takes = DType::f32,
                                       .infer = infer_zip_map,
                                       .kernel = kernel_zip_map};

extern const OpDef op_ml_dict_vectorizer;
constinit const OpDef op_ml_dict_vectorizer = {.name = "DictVectorizer",
                                               .domain = "ai.onnx.ml",
                                               .attributes = kDictAttributes,
                                               .dynamic_output = true,
                                               .any_kind = true,
                                               .kernel = kernel_dict};

extern const OpDef op_ml_cast_map;
constinit const OpDef op_ml_cast_map = {.name = "CastMap",
                                        .domain = "ai.onnx.ml",
                                        .attributes = kCastMapAttributes,
                                        .dynamic_output = true,
                                        .any_kind = true,
                                        .kernel = kernel_cast_map};

extern const OpDef op_ml_category_mapper;
constinit const OpDef op_ml_category_mapper = {.name = "CategoryMapper",
                                               .domain = "ai.onnx.ml",
                                               .attributes = kCategoryAttributes,
                                               .takes = DTypes(DType::i64) | DType::string,
                                               .infer = infer_category,
                                               .kernel = kernel_category};

}  // namespace lathe::ops
