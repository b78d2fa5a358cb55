// The table of older operator forms and the steps that bring each to the newest.
#include "frontends/onnx/upgrade.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include "ops/ir/failure.h"
#include "ops/ir/op.h"

namespace lathe::frontends::onnx {
namespace {

using ops::kNone;
using ops::ValueId;
using Ints = std::vector<std::int64_t>;

[[noreturn]] void refuse(const Draft& node, std::string_view why) {
  fail(ErrorCode::unsupported, "{} '{}': {}", shown(node.op_type), shown(node.name), why);
}

// ---- reading a draft ----

/// Takes an attribute off the node; nothing where it is not stated.
template <class T>
std::optional<T> take(Draft& node, std::string_view name) {
  const ops::AttrValue* value = node.attributes.find(name);
  if (!value) return std::nullopt;
  const T* typed = std::get_if<T>(value);
  if (!typed) {
    fail(ErrorCode::invalid_model, "{} '{}': attribute '{}' has the wrong type", shown(node.op_type), shown(node.name),
         name);
  }
  std::optional<T> taken = *typed;
  node.attributes.erase(name);
  return taken;
}

bool has_input(const Draft& node, std::size_t i) { return i < node.inputs.size() && node.inputs[i] != kNone; }

ValueId input(const Draft& node, std::size_t i) {
  if (!has_input(node, i)) {
    fail(ErrorCode::invalid_model, "{} '{}': input {} is required", shown(node.op_type), shown(node.name), i);
  }
  return node.inputs[i];
}

void set_input(Draft& node, std::size_t i, ValueId id) {
  if (node.inputs.size() <= i) node.inputs.resize(i + 1, kNone);
  node.inputs[i] = id;
}

void set_default(Draft& node, const char* name, ops::AttrValue value) {
  if (!node.attributes.find(name)) node.attributes.set(name, std::move(value));
}

/// Puts `op` behind the node's first output: op(output, more…) becomes what readers of the node see.
void append(Draft& node, UpgradeContext& context, std::string_view op, const std::vector<ValueId>& more_inputs,
            ops::Attributes attributes = {}) {
  Draft after;
  after.attributes = std::move(attributes);
  after.op_type = op;
  after.name = node.name + "/" + std::string(op);
  after.inputs = {context.graph().add_value(node.name + "/before_" + std::string(op))};
  after.inputs.insert(after.inputs.end(), more_inputs.begin(), more_inputs.end());
  after.outputs = {node.outputs.at(0)};
  node.outputs[0] = after.inputs[0];
  context.add(std::move(after));
}

// ---- attributes that became inputs ----

/// A list of axes became input 1.
void axes_to_input(Draft& node, UpgradeContext& context) {
  if (const auto axes = take<Ints>(node, "axes"); axes && !axes->empty()) {
    set_input(node, 1, context.ints(node, "axes", *axes));
  }
}

ValueId as_i64(Draft& node, UpgradeContext& context, ValueId x) {
  return context.emit(node, "Cast", {x}, {{"to", std::int64_t{DType::i64}}});
}

/// Sizes as an input had the data's dtype.
void split_2(Draft& node, UpgradeContext& context) {
  if (has_input(node, 1)) node.inputs[1] = as_i64(node, context, node.inputs[1]);
  set_default(node, "axis", std::int64_t{0});
}

/// One axis was repeated: `tiles` and `axis` are one number each, of the data's dtype.
void tile_6(Draft& node, UpgradeContext& context) {
  const ValueId x = input(node, 0);
  const ValueId scalar = context.constant(node, "scalar", Tensor(DType::i64, {0}));
  const ValueId axis = context.emit(node, "Reshape", {as_i64(node, context, input(node, 2)), scalar});
  const ValueId tiles =
      context.emit(node, "Reshape", {as_i64(node, context, input(node, 1)), context.ints(node, "one", {1})});
  const ValueId rank = context.emit(node, "Shape", {context.emit(node, "Shape", {x})});
  const ValueId values =
      context.emit(node, "Concat", {context.ints(node, "off", {1}), tiles}, {{"axis", std::int64_t{0}}});
  node.inputs = {x, context.emit(node, "OneHot", {axis, rank, values})};
}

void split_13(Draft& node, UpgradeContext& context) {
  if (const auto split = take<Ints>(node, "split")) set_input(node, 1, context.ints(node, "split", *split));
}

/// Equal parts are asked for by number.
void split_18(Draft& node, UpgradeContext&) {
  if (!has_input(node, 1)) set_default(node, "num_outputs", static_cast<std::int64_t>(node.outputs.size()));
}

void slice_10(Draft& node, UpgradeContext& context) {
  const auto starts = take<Ints>(node, "starts");
  const auto ends = take<Ints>(node, "ends");
  if (!starts || !ends) fail(ErrorCode::invalid_model, "Slice '{}': starts and ends are required", shown(node.name));
  set_input(node, 1, context.ints(node, "starts", *starts));
  set_input(node, 2, context.ints(node, "ends", *ends));
  if (const auto axes = take<Ints>(node, "axes")) set_input(node, 3, context.ints(node, "axes", *axes));
}

void pad_2(Draft& node, UpgradeContext&) {
  if (auto pads = take<Ints>(node, "paddings")) node.attributes.set("pads", *std::move(pads));
}

void pad_11(Draft& node, UpgradeContext& context) {
  const auto pads = take<Ints>(node, "pads");
  const double value = take<double>(node, "value").value_or(0);
  if (!pads) fail(ErrorCode::invalid_model, "Pad '{}': pads are required", shown(node.name));
  set_input(node, 1, context.ints(node, "pads", *pads));
  if (value != 0) set_input(node, 2, context.number_like(node, "value", value, input(node, 0)));
}

void clip_11(Draft& node, UpgradeContext& context) {
  const ValueId x = input(node, 0);
  if (const auto least = take<double>(node, "min")) set_input(node, 1, context.number_like(node, "min", *least, x));
  if (const auto most = take<double>(node, "max")) set_input(node, 2, context.number_like(node, "max", *most, x));
}

void topk_10(Draft& node, UpgradeContext& context) {
  const auto k = take<std::int64_t>(node, "k");
  if (!k) fail(ErrorCode::invalid_model, "TopK '{}': k is required", shown(node.name));
  set_input(node, 1, context.ints(node, "k", {*k}));
}

void reshape_5(Draft& node, UpgradeContext& context) {
  const auto shape = take<Ints>(node, "shape");
  if (!shape) fail(ErrorCode::invalid_model, "Reshape '{}': shape is required", shown(node.name));
  set_input(node, 1, context.ints(node, "shape", *shape));
}

void dft_20(Draft& node, UpgradeContext& context) {
  const std::int64_t axis = take<std::int64_t>(node, "axis").value_or(1);
  set_input(node, 2, context.constant(node, "axis", Tensor::scalar(axis)));
}

/// Inference needs no ratio. The mask of opsets before 10 has the data's dtype.
void dropout_12(Draft& node, UpgradeContext&) { take<double>(node, "ratio"); }

void dropout_10(Draft& node, UpgradeContext& context) {
  take<std::int64_t>(node, "is_test");
  if (node.outputs.size() < 2 || node.outputs[1] == kNone) return;
  Draft cast;
  cast.op_type = "CastLike";
  cast.name = node.name + "/mask";
  cast.inputs = {context.graph().add_value(cast.name), input(node, 0)};
  cast.outputs = {node.outputs[1]};
  node.outputs[1] = cast.inputs[0];
  context.add(std::move(cast));
}

// ---- broadcasting before opset 7 ----

/// B's dims stand at `axis` of A: B gets as many dims of 1 behind it as A has more. All of it follows from shapes.
ValueId align_at(const Draft& node, UpgradeContext& context, ValueId a, ValueId b, std::int64_t axis) {
  const auto rank_of = [&](ValueId x) { return context.emit(node, "Shape", {context.emit(node, "Shape", {x})}); };
  const int rank_a = context.hint(a).rank;
  const int rank_b = context.hint(b).rank;
  if (rank_a >= 0 && rank_b >= 0) {
    if (axis < 0) axis += rank_a;
    Ints axes;
    for (std::int64_t d = axis + rank_b; d < rank_a; ++d) axes.push_back(d - axis);
    return axes.empty() ? b : context.emit(node, "Unsqueeze", {b, context.ints(node, "axes", axes)});
  }
  if (axis < 0) refuse(node, "a negative broadcast axis on inputs of unknown rank is not supported");
  const ValueId behind = context.emit(
      node, "Sub", {context.emit(node, "Sub", {rank_of(a), rank_of(b)}), context.ints(node, "axis", {axis})});
  const ValueId ones =
      context.emit(node, "ConstantOfShape", {behind}, {{"value", Tensor::from<std::int64_t>({1}, {1})}});
  const ValueId shape =
      context.emit(node, "Concat", {context.emit(node, "Shape", {b}), ones}, {{"axis", std::int64_t{0}}});
  return context.emit(node, "Reshape", {b, shape}, {{"allowzero", std::int64_t{1}}});
}

/// Without `axis` the dims of B were the last ones of A: what broadcasting does today.
void broadcast_7(Draft& node, UpgradeContext& context) {
  const std::int64_t broadcast = take<std::int64_t>(node, "broadcast").value_or(0);
  const auto axis = take<std::int64_t>(node, "axis");
  if (broadcast != 0 && axis) node.inputs[1] = align_at(node, context, input(node, 0), input(node, 1), *axis);
}

void gemm_7(Draft& node, UpgradeContext&) { take<std::int64_t>(node, "broadcast"); }

/// The slope was per channel, dim 1.
void prelu_7(Draft& node, UpgradeContext& context) {
  const ValueId slope = input(node, 1);
  if (context.hint(slope).rank == 1) node.inputs[1] = align_at(node, context, input(node, 0), slope, 1);
}

// ---- normalization ----

void drop_training_attributes(Draft& node, UpgradeContext&) { take<std::int64_t>(node, "is_test"); }

/// spatial = 0: statistics per element of a sample, not per channel. y = (x - mean) / sqrt(var + eps) * scale + bias.
void batch_normalization_9(Draft& node, UpgradeContext& context) {
  if (take<std::int64_t>(node, "spatial").value_or(1) != 0) return;
  for (std::size_t i = 1; i < node.outputs.size(); ++i) {
    if (context.is_read(node.outputs[i])) refuse(node, "training with spatial = 0 is not supported");
  }
  const ValueId x = input(node, 0);
  const double epsilon = take<double>(node, "epsilon").value_or(1e-5);
  const ValueId shifted = context.emit(node, "Add", {input(node, 4), context.number_like(node, "epsilon", epsilon, x)});
  const ValueId centered = context.emit(node, "Sub", {x, input(node, 3)});
  const ValueId scaled = context.emit(
      node, "Mul", {context.emit(node, "Div", {centered, context.emit(node, "Sqrt", {shifted})}), input(node, 1)});
  node.op_type = "Add";
  node.inputs = {scaled, input(node, 2)};
  node.attributes = {};
  node.outputs.resize(1);
}

/// Before opset 14 the outputs behind Y meant training. Exporters list them even for inference, where nothing reads
/// them. The last two were what the backward pass wants of the batch: its mean and variance.
void batch_normalization_14(Draft& node, UpgradeContext& context) {
  const auto read = [&](std::size_t i) { return i < node.outputs.size() && context.is_read(node.outputs[i]); };
  if (!read(1) && !read(2) && !read(3) && !read(4)) {
    node.outputs.resize(std::min<std::size_t>(node.outputs.size(), 1));
    return;
  }
  node.attributes.set("training_mode", std::int64_t{1});
  constexpr std::size_t kSaved = 3;
  if (node.outputs.size() > kSaved) {
    Draft batch = {node.domain, node.op_type, node.name + "/saved", node.inputs, {}, node.attributes, {}};
    batch.attributes.set("momentum", 0.0);
    batch.outputs = {context.graph().add_value(batch.name), node.outputs[3],
                     node.outputs.size() > 4 ? node.outputs[4] : kNone};
    node.outputs.resize(kSaved);
    context.add(std::move(batch));
  }
}

/// Scale and bias were per group: every channel of a group gets its group's.
void group_normalization_21(Draft& node, UpgradeContext& context) {
  const ops::AttrValue* groups = node.attributes.find("num_groups");
  if (!groups || !std::holds_alternative<std::int64_t>(*groups)) return;  // the schema check says so
  const Ints group_count = {std::get<std::int64_t>(*groups)};
  const ValueId channels =
      context.emit(node, "Shape", {input(node, 0)}, {{"start", std::int64_t{1}}, {"end", std::int64_t{2}}});
  const ValueId count = context.ints(node, "groups", group_count);
  const ValueId per_group = context.emit(node, "Div", {channels, count});
  const ValueId shape = context.emit(node, "Concat", {count, per_group}, {{"axis", std::int64_t{0}}});
  for (std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    const ValueId column = context.emit(node, "Unsqueeze", {input(node, i), context.ints(node, "axes", {1})});
    const ValueId expanded = context.emit(node, "Expand", {column, shape});
    node.inputs[i] = context.emit(node, "Reshape", {expanded, context.ints(node, "flat", {-1})});
  }
}

/// Before opset 13: the dims from `axis` on were one. Where that is only the last dim, that is the newest form.
void softmax_13(Draft& node, UpgradeContext& context) {
  const ValueId x = input(node, 0);
  const std::int64_t axis = take<std::int64_t>(node, "axis").value_or(1);
  const int rank = context.hint(x).rank;
  node.attributes.set("axis", std::int64_t{-1});
  if (axis == -1 || (rank > 0 && axis == rank - 1)) return;
  const ValueId shape = context.emit(node, "Shape", {x});
  node.inputs[0] = context.emit(node, "Flatten", {x}, {{"axis", axis}});
  append(node, context, "Reshape", {shape}, {{"allowzero", std::int64_t{1}}});
}

// ---- resampling ----

void upsample_7(Draft& node, UpgradeContext&) {
  const double height = take<double>(node, "height_scale").value_or(1);
  const double width = take<double>(node, "width_scale").value_or(1);
  if (!node.attributes.find("scales")) node.attributes.set("scales", std::vector<double>{1, 1, height, width});
}

void upsample_9(Draft& node, UpgradeContext& context) {
  if (const auto scales = take<std::vector<double>>(node, "scales")) {
    const std::vector<float> narrow(scales->begin(), scales->end());
    set_input(node, 1,
              context.constant(node, "scales", Tensor::from(narrow, {static_cast<std::int64_t>(narrow.size())})));
  }
}

/// Resize of opset 10, and Upsample before it: output coordinates times the inverse scale, nearest rounds down.
void resize_11(Draft& node, UpgradeContext&) {
  if (const auto mode = take<std::string>(node, "mode"))
    node.attributes.set("mode", *mode == "bilinear" ? "linear" : *mode);
  const ValueId scales = input(node, 1);
  node.inputs = {input(node, 0), kNone, scales};
  node.attributes.set("coordinate_transformation_mode", std::string("asymmetric"));
  node.attributes.set("nearest_mode", std::string("floor"));
}

void upsample(Draft& node, UpgradeContext& context) {
  resize_11(node, context);
  node.op_type = "Resize";
}

/// Exporters write empty tensors for the inputs they mean to leave out.
void resize_empty_inputs(Draft& node, UpgradeContext& context) {
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    if (!has_input(node, i)) continue;
    const ops::ValueDef& value = context.graph().value(node.inputs[i]);
    if (value.is_constant() && value.constant.size() == 0) node.inputs[i] = kNone;
  }
}

void grid_sample_20(Draft& node, UpgradeContext&) {
  const std::string mode = take<std::string>(node, "mode").value_or("bilinear");
  node.attributes.set("mode", mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode);
}

void roi_align_16(Draft& node, UpgradeContext&) {
  node.attributes.set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

// ---- the rest ----

void cast_6(Draft& node, UpgradeContext&) {
  constexpr std::array<std::pair<std::string_view, DType::Code>, 13> kNames = {{{"FLOAT", DType::f32},
                                                                                {"UINT8", DType::u8},
                                                                                {"INT8", DType::i8},
                                                                                {"UINT16", DType::u16},
                                                                                {"INT16", DType::i16},
                                                                                {"INT32", DType::i32},
                                                                                {"INT64", DType::i64},
                                                                                {"STRING", DType::string},
                                                                                {"BOOL", DType::boolean},
                                                                                {"FLOAT16", DType::f16},
                                                                                {"DOUBLE", DType::f64},
                                                                                {"UINT32", DType::u32},
                                                                                {"UINT64", DType::u64}}};
  const auto to = take<std::string>(node, "to");
  const auto* found =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) { return to && entry.first == *to; });
  if (found == kNames.end()) refuse(node, fmt::format("there is no type '{}'", to ? shown(*to) : ""));
  node.attributes.set("to", static_cast<std::int64_t>(found->second));
}

void concat_4(Draft& node, UpgradeContext&) { set_default(node, "axis", std::int64_t{1}); }

/// The defaults had fewer digits.
void selu_6(Draft& node, UpgradeContext&) {
  set_default(node, "alpha", static_cast<double>(1.6732F));
  set_default(node, "gamma", static_cast<double>(1.0507F));
}

void norm_order_2(Draft& node, UpgradeContext&) {
  if (const auto p = take<double>(node, "p")) node.attributes.set("p", static_cast<std::int64_t>(*p));
}

void recurrent_3(Draft& node, UpgradeContext&) {
  if (const auto direction = take<std::string>(node, "direction")) {
    node.attributes.set("direction", *direction == "foward" ? "forward" : *direction);
  }
}

void recurrent_7(Draft& node, UpgradeContext&) { take<std::int64_t>(node, "output_sequence"); }

void scatter(Draft& node, UpgradeContext&) { node.op_type = "ScatterElements"; }

/// The first `length` rows of x, and y with as many rows of zeros behind it as were cut off: nodes in front of and
/// behind a scan over one sequence of a padded batch.
struct PaddedRows {
  ops::Graph& graph;
  std::string name;
  ValueId length = kNone;  ///< [1]
  ValueId extent = kNone;  ///< [1], of the padded sequences

  PaddedRows(ops::Graph& g, std::string n, ValueId lengths, ValueId x) : graph(g), name(std::move(n)) {
    extent = emit("Shape", {x}, {{"end", std::int64_t{1}}});
    const ValueId stated = emit("Max", {emit("Reshape", {lengths, ints({1})}), ints({0})});
    length = emit("Min", {emit("Cast", {stated}, {{"to", std::int64_t{DType::i64}}}), extent});
  }
  ValueId cut(ValueId x) { return emit("Slice", {x, ints({0}), length, ints({0})}); }
  ValueId padded(ValueId y) {
    const ValueId pads = emit("Concat", {ints({0}), emit("Sub", {extent, length})}, {{"axis", std::int64_t{0}}});
    return emit("Pad", {y, pads, kNone, ints({0})});
  }

 private:
  ValueId ints(const Ints& values) {
    return graph.add_constant(Tensor::from(values, {static_cast<std::int64_t>(values.size())}), name + "/ints");
  }
  ValueId emit(std::string_view op, std::vector<ValueId> inputs, ops::Attributes attributes = {}) {
    const ops::NodeId id = graph.add_node(*ops::find_operator(op), name + "/" + std::string(op), std::move(inputs), 1,
                                          std::move(attributes));
    return graph.node(id).outputs[0];
  }
};

/// Scan of opset 8 ran over a batch: every state and scan input had a leading batch dim. That is a scan over the batch
/// whose body is the scan over the sequence.
void scan_9(Draft& node, UpgradeContext&) {
  const ops::OpDef* op = ops::find_operator("Scan");
  const std::int64_t scanned = take<std::int64_t>(node, "num_scan_inputs").value_or(0);
  if (!op || node.subgraphs.size() != 1 || node.inputs.empty()) return;  // what is wrong is said later
  const ValueId lengths = node.inputs[0];
  node.inputs.erase(node.inputs.begin());

  Subgraph& body = node.subgraphs[0];
  const std::size_t formal = body.graph->inputs.size() - body.captured.size();
  if (scanned < 1 || static_cast<std::size_t>(scanned) > formal || body.graph->outputs.size() + scanned < formal) {
    refuse(node, fmt::format("num_scan_inputs is {}, but the body has {} inputs and {} outputs", scanned, formal,
                             body.graph->outputs.size()));
  }
  const std::size_t states = formal - static_cast<std::size_t>(scanned);
  auto batch = std::make_unique<ops::Graph>();
  batch->name = body.graph->name + "/batch";
  ops::Node inner;
  inner.op = op;
  inner.name = node.name + "/sequence";
  inner.attributes.set("num_scan_inputs", scanned);
  if (auto directions = take<Ints>(node, "directions"))
    inner.attributes.set("scan_input_directions", *std::move(directions));
  for (ValueId id : body.graph->inputs) inner.inputs.push_back(batch->add_input(body.graph->value(id).name));
  for (ValueId id : body.graph->outputs) inner.outputs.push_back(batch->add_value(body.graph->value(id).name));
  batch->outputs = inner.outputs;
  std::optional<PaddedRows> rows;
  if (lengths != kNone) {
    node.inputs.push_back(lengths);
    const ValueId length = batch->add_input(node.name + "/length");
    std::rotate(batch->inputs.begin() + static_cast<std::ptrdiff_t>(formal), batch->inputs.end() - 1,
                batch->inputs.end());  // captures stand last
    rows.emplace(*batch, node.name, length, inner.inputs[states]);
    for (std::size_t i = states; i < formal; ++i) inner.inputs[i] = rows->cut(inner.inputs[i]);
  }
  inner.captures = static_cast<int>(body.captured.size());
  inner.subgraphs.push_back(std::move(body.graph));
  const std::vector<ValueId> results = inner.outputs;
  batch->add_node(std::move(inner));
  if (rows) {
    for (std::size_t i = states; i < results.size(); ++i) batch->outputs[i] = rows->padded(results[i]);
  }
  body.graph = std::move(batch);
  node.attributes.set("num_scan_inputs", static_cast<std::int64_t>(node.inputs.size()));
}

/// An operator of ONNX's experimental set: a tensor of one value.
void constant_fill(Draft& node, UpgradeContext& context) {
  const auto dtype = static_cast<DType::Code>(take<std::int64_t>(node, "dtype").value_or(DType::f32));
  const double value = take<double>(node, "value").value_or(0);
  const bool from_input = take<std::int64_t>(node, "input_as_shape").value_or(0) != 0;
  const Ints extra = take<Ints>(node, "extra_shape").value_or(Ints());
  const auto shape = take<Ints>(node, "shape");
  if (dtype > DType::bf16 || dtype == DType::undefined || dtype == DType::string || dtype == DType::c64 ||
      dtype == DType::c128) {
    refuse(node, "its dtype is not supported");
  }
  if (!node.inputs.empty() && from_input && extra.empty()) {
    node.inputs.resize(1);
  } else if (node.inputs.empty() && shape) {
    node.inputs = {context.ints(node, "shape", *shape)};
  } else {
    refuse(node, "this form of it is not supported");
  }
  node.op_type = "ConstantOfShape";
  node.attributes.set("value", Tensor::from<double>({value}, {1}).cast(dtype));
}

// ---- ai.onnx.ml ----

/// A list of names and their positions, in both directions.
void label_encoder_2(Draft& node, UpgradeContext&) {
  auto classes = take<std::vector<std::string>>(node, "classes_strings").value_or(std::vector<std::string>());
  Ints positions(classes.size());
  std::iota(positions.begin(), positions.end(), 0);
  node.op_type = "CategoryMapper";
  node.attributes.set("cats_strings", std::move(classes));
  node.attributes.set("cats_int64s", std::move(positions));
}

// ---- the tables ----

struct Upgrade {
  std::string_view op;
  std::int64_t before;  ///< applies to nodes stated in an opset older than this
  void (*step)(Draft&, UpgradeContext&);
};
constexpr std::int64_t kAlways = std::int64_t{1} << 32;

/// Ascending in `before`: a node passes through every step that is newer than its opset.
constexpr Upgrade kUpgrades[] = {
    {"LpPool", 2, norm_order_2},
    {"GlobalLpPool", 2, norm_order_2},
    {"Pad", 2, pad_2},
    {"Split", 2, split_2},
    {"GRU", 3, recurrent_3},
    {"Concat", 4, concat_4},
    {"Reshape", 5, reshape_5},
    {"Cast", 6, cast_6},
    {"Selu", 6, selu_6},
    {"Tile", 6, tile_6},
    {"Add", 7, broadcast_7},
    {"Sub", 7, broadcast_7},
    {"Mul", 7, broadcast_7},
    {"Div", 7, broadcast_7},
    {"Pow", 7, broadcast_7},
    {"And", 7, broadcast_7},
    {"Or", 7, broadcast_7},
    {"Xor", 7, broadcast_7},
    {"Equal", 7, broadcast_7},
    {"Greater", 7, broadcast_7},
    {"Less", 7, broadcast_7},
    {"Gemm", 7, gemm_7},
    {"PRelu", 7, prelu_7},
    {"BatchNormalization", 7, drop_training_attributes},
    {"RNN", 7, recurrent_7},
    {"GRU", 7, recurrent_7},
    {"LSTM", 7, recurrent_7},
    {"Upsample", 7, upsample_7},
    {"BatchNormalization", 9, batch_normalization_9},
    {"Scan", 9, scan_9},
    {"Upsample", 9, upsample_9},
    {"Slice", 10, slice_10},
    {"TopK", 10, topk_10},
    {"Dropout", 10, dropout_10},
    {"Clip", 11, clip_11},
    {"Pad", 11, pad_11},
    {"Resize", 11, resize_11},
    {"Dropout", 12, dropout_12},
    {"Squeeze", 13, axes_to_input},
    {"Unsqueeze", 13, axes_to_input},
    {"ReduceSum", 13, axes_to_input},
    {"Split", 13, split_13},
    {"Softmax", 13, softmax_13},
    {"LogSoftmax", 13, softmax_13},
    {"Hardmax", 13, softmax_13},
    {"BatchNormalization", 14, batch_normalization_14},
    {"RoiAlign", 16, roi_align_16},
    {"Split", 18, split_18},
    {"ReduceL1", 18, axes_to_input},
    {"ReduceL2", 18, axes_to_input},
    {"ReduceLogSum", 18, axes_to_input},
    {"ReduceLogSumExp", 18, axes_to_input},
    {"ReduceMax", 18, axes_to_input},
    {"ReduceMean", 18, axes_to_input},
    {"ReduceMin", 18, axes_to_input},
    {"ReduceProd", 18, axes_to_input},
    {"ReduceSumSquare", 18, axes_to_input},
    {"DFT", 20, dft_20},
    {"GridSample", 20, grid_sample_20},
    {"GroupNormalization", 21, group_normalization_21},
    {"ConstantFill", kAlways, constant_fill},
    {"Scatter", kAlways, scatter},
    {"Upsample", kAlways, upsample},
    {"Resize", kAlways, resize_empty_inputs},
};

constexpr Upgrade kMlUpgrades[] = {
    {"LabelEncoder", 2, label_encoder_2},
};

static_assert(std::is_sorted(std::begin(kUpgrades), std::end(kUpgrades),
                             [](const Upgrade& a, const Upgrade& b) { return a.before < b.before; }));

}  // namespace

ValueId UpgradeContext::emit(const Draft& node, std::string_view op, std::vector<ValueId> inputs,
                             ops::Attributes attributes) {
  Draft added;
  const auto [domain, base] = ops::split_name(op);
  added.domain = domain;
  added.op_type = base;
  added.name = node.name + "/" + std::string(base);
  added.inputs = std::move(inputs);
  added.attributes = std::move(attributes);
  const ValueId result = graph().add_value(added.name);
  added.outputs = {result};
  add(std::move(added));
  return result;
}

ValueId UpgradeContext::constant(const Draft& node, std::string_view what, Tensor tensor) {
  return graph().add_constant(std::move(tensor), node.name + "/" + std::string(what));
}

ValueId UpgradeContext::ints(const Draft& node, std::string_view what, const std::vector<std::int64_t>& values) {
  return constant(node, what, Tensor::from(values, {static_cast<std::int64_t>(values.size())}));
}

ValueId UpgradeContext::number_like(const Draft& node, std::string_view what, double value, ValueId like) {
  const DType to = hint(like).dtype;
  if (to.is_float()) return constant(node, what, Tensor::scalar(value).cast(to));
  const ValueId number = constant(node, what, Tensor::scalar(static_cast<float>(value)));
  return emit(node, "CastLike", {number, like});
}

void upgrade(Draft& node, std::int64_t opset, UpgradeContext& context) {
  constexpr std::int64_t kInPlaceUntil = 6;  // a hint that outputs may take their inputs' memory
  if (node.domain.empty() && opset < kInPlaceUntil) take<Ints>(node, "consumed_inputs");
  const auto pass_through = [&](std::span<const Upgrade> table) {
    for (const Upgrade& u : table) {
      if (u.op == node.op_type && opset < u.before) u.step(node, context);
    }
  };
  if (node.domain.empty()) pass_through(kUpgrades);
  if (node.domain == "ai.onnx.ml") pass_through(kMlUpgrades);
}

}  // namespace lathe::frontends::onnx
