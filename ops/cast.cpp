// Cast, CastLike and BitCast: the same elements in another dtype.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "ops/elementwise.h"
#include "ops/ir/builder.h"
#include "ops/ir/kernel_context.h"
#include "ops/ir/numeric.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {
    {"to", AttrKind::integer, Attribute::kRequired}, {"saturate", 1}, {"round_mode", "up"}};
constexpr Attribute kLikeAttributes[] = {{"saturate", 1}, {"round_mode", "up"}};
constexpr Attribute kTo[] = {{"to", AttrKind::integer, Attribute::kRequired}};

DType target(const OpView& op) {
  const std::int64_t to = op.i("to");
  op.require(to > 0 && to < DType::kCount, "to is {}, which is no dtype", to);
  return static_cast<DType::Code>(to);
}

void require_castable(const OpView& op, DType from, DType to) {
  const auto mode = op.s("round_mode");
  op.require(mode == "up" || mode == "down" || mode == "nearest", "round_mode must be up, down or nearest, got \"{}\"",
             mode);
  op.require(from == to || (!from.is_complex() && !to.is_complex()), "no cast from {} to {} exists", from, to);
}

Facts infer_cast(const OpView& op) {
  require_castable(op, op.in(0).dtype, target(op));
  return {{target(op), op.in(0).shape}};
}

Facts infer_cast_like(const OpView& op) {
  require_castable(op, op.in(0).dtype, op.in(1).dtype);
  return {{op.in(1).dtype, op.in(0).shape}};
}

// Loops convert numbers. Text, and the ways of rounding to float8 that are not the default, are plain code.
std::vector<ValueId> lower_cast(const OpView& op, Builder& b) {
  const DType from = op.in(0).dtype;
  const DType to = op.out(0).dtype;
  const Attributes attributes{{"to", static_cast<std::int64_t>(to)}};
  if (from == to) return {op.id(0)};
  if (from == DType::string || to == DType::string) return {b.op("lathe::CastText", {op.id(0)}, attributes)};
  if (to.is_float8() && (op.i("saturate") == 0 || op.s("round_mode") != "up")) {
    return {b.op("lathe::CastFloat8", {op.id(0)},
                 {{"to", static_cast<std::int64_t>(to)},
                  {"saturate", op.i("saturate")},
                  {"round_mode", std::string(op.s("round_mode"))}})};
  }
  return {b.op("lathe::Convert", {op.id(0)}, attributes)};
}

std::vector<ValueId> lower_cast_like(const OpView& op, Builder& b) {
  return {b.op("Cast", {op.id(0)},
               {{"to", static_cast<std::int64_t>(op.out(0).dtype)},
                {"saturate", op.i("saturate")},
                {"round_mode", std::string(op.s("round_mode"))}})};
}

Facts infer_convert(const OpView& op) { return {{target(op), op.in(0).shape}}; }

Scalar convert_expr(const OpView& op, LoopBuilder& b, int, const Coords& at) { return b.cast(b.in(0, at), target(op)); }

// ---- text ----

double parse_number(KernelContext& c, const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.front()))) rest.remove_prefix(1);
  while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.back()))) rest.remove_suffix(1);
  if (!rest.empty() && rest.front() == '+') rest.remove_prefix(1);
  double value = 0;
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (status == std::errc::result_out_of_range) return std::strtod(std::string(rest).c_str(), nullptr);
  if (status != std::errc() || end != rest.data() + rest.size()) {
    c.error(ErrorCode::invalid_argument, "\"{}\" is not a number", shown(text));
  }
  return value;
}

std::int64_t parse_integer(KernelContext& c, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc() && end == text.data() + text.size()) return value;
  return static_cast<std::int64_t>(parse_number(c, text));
}

// The shortest decimal text that reads back to the same number in its own precision.
std::string format_number(double value, DType dtype) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-INF" : "INF";
  char buffer[64];
  const auto result = dtype == DType::f64
                          ? std::to_chars(std::begin(buffer), std::end(buffer), value)
                          : std::to_chars(std::begin(buffer), std::end(buffer), static_cast<float>(value));
  return {buffer, result.ptr};
}

std::string format_element(const Tensor& t, std::int64_t i) {
  if (t.dtype() == DType::boolean) return t.integer(i) != 0 ? "True" : "False";
  if (t.dtype() == DType::u64) return fmt::format("{}", static_cast<std::uint64_t>(t.integer(i)));
  if (t.dtype().is_integer()) return fmt::format("{}", t.integer(i));
  return format_number(t.number(i), t.dtype());
}

void cast_text(KernelContext& c) {
  const Tensor& x = c.in(0);
  Tensor y = c.out(0);
  if (y.dtype() == DType::string) {
    const std::span<std::string> out = y.mutable_view<std::string>();
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = format_element(x, static_cast<std::int64_t>(i));
    return;
  }
  const std::span<const std::string> in = x.view<std::string>();
  const bool whole = y.dtype().is_integer();
  Tensor numbers(whole ? DType::i64 : DType::f64, y.shape());
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (whole) {
      numbers.mutable_view<std::int64_t>()[i] = parse_integer(c, in[i]);
    } else {
      numbers.mutable_view<double>()[i] = parse_number(c, in[i]);
    }
  }
  const Tensor converted = numbers.cast(y.dtype());
  if (y.bytes() > 0) std::memcpy(y.mutable_data(), converted.data(), y.bytes());
}

// ---- float8 ----

numeric::E8m0Rounding rounding_of(std::string_view mode) {
  if (mode == "down") return numeric::E8m0Rounding::down;
  return mode == "nearest" ? numeric::E8m0Rounding::nearest : numeric::E8m0Rounding::up;
}

void cast_float8(KernelContext& c) {
  const Tensor& x = c.in(0);
  Tensor y = c.out(0);
  auto* const out = static_cast<std::uint8_t*>(y.mutable_data());
  const bool saturate = c.op().i("saturate") != 0;
  const numeric::E8m0Rounding rounding = rounding_of(c.op().s("round_mode"));
  for (std::int64_t i = 0; i < x.size(); ++i) {
    out[i] = y.dtype() == DType::f8e8m0 ? numeric::f64_to_f8e8m0(x.number(i), saturate, rounding)
                                        : numeric::f64_to_f8(y.dtype(), x.number(i), saturate);
  }
}

// ---- bits ----

Facts infer_bit_cast(const OpView& op) {
  const DType from = op.in(0).dtype;
  const DType to = target(op);
  op.require(from != DType::string && to != DType::string, "strings have no bit pattern");
  op.require(from.bits() == to.bits(), "{} has {} bits, {} has {}", from, from.bits(), to, to.bits());
  return {{to, op.in(0).shape}};
}

void bit_cast(KernelContext& c) {
  Tensor y = c.out(0);
  if (y.bytes() > 0) std::memcpy(y.mutable_data(), c.in(0).data(), y.bytes());
}

}  // namespace

extern const OpDef op_cast, op_cast_like, op_convert, op_cast_text, op_cast_float8, op_bit_cast;

constinit const OpDef op_cast = {.name = "Cast",
                                 .attributes = kAttributes,
                                 .forms = 28,
                                 .takes = kAny - kComplex,
                                 .infer = infer_cast,
                                 .lower = lower_cast};
constinit const OpDef op_cast_like = {.name = "CastLike",
                                      .inputs = 2,
                                      .attributes = kLikeAttributes,
                                      .forms = {15, 25},
                                      .takes = {{kAny - kComplex, inputs(0)}, {kAny - kComplex, inputs(1)}},
                                      .infer = infer_cast_like,
                                      .lower = lower_cast_like};
constinit const OpDef op_convert = {
    .name = "Convert", .domain = "lathe", .attributes = kTo, .infer = infer_convert, .expr = convert_expr};
constinit const OpDef op_cast_text = {
    .name = "CastText", .domain = "lathe", .attributes = kTo, .infer = infer_convert, .kernel = cast_text};
constinit const OpDef op_cast_float8 = {
    .name = "CastFloat8", .domain = "lathe", .attributes = kAttributes, .infer = infer_convert, .kernel = cast_float8};
constinit const OpDef op_bit_cast = {.name = "BitCast",
                                     .attributes = kTo,
                                     .forms = {26, 26},
                                     .takes = kAny - DType::string,
                                     .infer = infer_bit_cast,
                                     .kernel = bit_cast};

}  // namespace lathe::ops
