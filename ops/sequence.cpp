// Sequences and optionals: building, indexing, splitting and joining.
#include <algorithm>

#include "ops/plain.h"

namespace lathe::ops {
namespace {

Fact sequence_of(DType dtype) { return Fact::of_kind(Fact::Kind::sequence, dtype); }

void require_sequence(const OpView& op, int i) {
  op.require(op.in(i).kind == Fact::Kind::sequence, "input {} must be a sequence, got {}", i, op.in(i).to_string());
}

/// The position that input i names in a sequence; `end` allows the place behind the last.
std::size_t position(const KernelContext& ctx, int i, std::size_t count, bool end) {
  const Tensor& t = ctx.in(i);
  ctx.op().require((t.dtype() == DType::i64 || t.dtype() == DType::i32) && t.size() == 1,
                   "the position must be one i32 or i64, got {} of shape {}", t.dtype(), t.shape());
  const auto size = static_cast<std::int64_t>(count);
  const std::int64_t p = t.integer(0);
  const std::int64_t bound = size + (end ? 1 : 0);
  if (p < -size || p >= bound) ctx.error(ErrorCode::out_of_range, "position {} is outside [{}, {})", p, -size, bound);
  return static_cast<std::size_t>(p < 0 ? p + size : p);
}

// ---- building ----

constexpr Attribute kEmptyAttributes[] = {{"dtype", 1}};

Facts infer_empty(const OpView& op) {
  const std::int64_t code = op.i("dtype");
  op.require(code > 0 && code < DType::kCount, "dtype {} is no known dtype", code);
  return {sequence_of(static_cast<DType::Code>(code))};
}

void kernel_empty(KernelContext& ctx) { ctx.set(0, Sequence()); }

Facts infer_construct(const OpView& op) { return {sequence_of(op.in(0).dtype)}; }

void kernel_construct(KernelContext& ctx) {
  Sequence s;
  for (int i = 0; i < ctx.op().inputs(); ++i) s.emplace_back(ctx.in(i).clone());
  ctx.set(0, std::move(s));
}

Facts infer_insert(const OpView& op) {
  require_sequence(op, 0);
  op.require(op.in(1).is_tensor(), "input 1 must be a tensor, got {}", op.in(1).to_string());
  return {sequence_of(op.in(1).dtype)};
}

void kernel_insert(KernelContext& ctx) {
  Sequence s = ctx.value(0).sequence();
  const std::size_t at = ctx.has(2) ? position(ctx, 2, s.size(), true) : s.size();
  s.insert(s.begin() + static_cast<std::ptrdiff_t>(at), Value(ctx.in(1).clone()));
  ctx.set(0, std::move(s));
}

Facts infer_erase(const OpView& op) {
  require_sequence(op, 0);
  return {op.in(0)};
}

void kernel_erase(KernelContext& ctx) {
  Sequence s = ctx.value(0).sequence();
  if (s.empty()) ctx.error(ErrorCode::out_of_range, "the sequence is empty");
  s.erase(s.begin() + static_cast<std::ptrdiff_t>(ctx.has(1) ? position(ctx, 1, s.size(), false) : s.size() - 1));
  ctx.set(0, std::move(s));
}

// ---- reading ----

void kernel_at(KernelContext& ctx) {
  require_sequence(ctx.op(), 0);
  const Sequence& s = ctx.value(0).sequence();
  ctx.set(0, s[position(ctx, 1, s.size(), false)]);
}

Facts infer_length(const OpView& op) {
  require_sequence(op, 0);
  return {Fact(DType::i64, {})};
}

void kernel_length(KernelContext& ctx) {
  ctx.out<std::int64_t>(0)[0] = static_cast<std::int64_t>(ctx.value(0).sequence().size());
}

// ---- SplitToSequence ----

constexpr Attribute kSplitAttributes[] = {{"axis", 0}, {"keepdims", 1}};

Facts infer_split(const OpView& op) {
  static_cast<void>(op.axis("axis", op.in(0).rank()));
  return {sequence_of(op.in(0).dtype)};
}

/// The extents of the parts: ones, equal ones with a smaller last, or as listed.
std::vector<std::int64_t> part_extents(const KernelContext& ctx, std::int64_t extent) {
  if (!ctx.has(1)) return std::vector<std::int64_t>(static_cast<std::size_t>(extent), 1);
  const Tensor& split = ctx.in(1);
  std::vector<std::int64_t> parts;
  if (split.shape().rank() == 0) {
    const std::int64_t size = split.integer(0);
    if (size <= 0) ctx.error(ErrorCode::invalid_argument, "split must be positive, got {}", size);
    for (std::int64_t left = extent; left > 0; left -= size) parts.push_back(std::min(size, left));
    return parts;
  }
  std::int64_t left = extent;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    parts.push_back(split.integer(i));
    if (parts.back() < 0 || parts.back() > left)
      ctx.error(ErrorCode::invalid_argument, "split does not add up to the extent {}", extent);
    left -= parts.back();
  }
  if (left != 0)
    ctx.error(ErrorCode::invalid_argument, "split adds up to {}, but the extent is {}", extent - left, extent);
  return parts;
}

void kernel_split(KernelContext& ctx) {
  const Tensor& x = ctx.in(0);
  const Shape& shape = x.shape();
  const int axis = ctx.op().axis("axis", shape.rank());
  const std::int64_t outer = extent_of(shape, 0, axis), inner = extent_of(shape, axis + 1, shape.rank());
  const bool drop_axis = !ctx.has(1) && ctx.op().i("keepdims") == 0;
  Sequence s;
  std::int64_t first = 0;
  for (std::int64_t extent : part_extents(ctx, shape[axis])) {
    Shape part = shape;
    part[axis] = extent;
    Tensor t(x.dtype(), part);
    for (std::int64_t o = 0; o < outer; ++o)
      copy_elements(x, (o * shape[axis] + first) * inner, t, o * extent * inner, extent * inner);
    first += extent;
    if (drop_axis) part.erase(axis);
    s.emplace_back(t.reshaped(part));
  }
  ctx.set(0, std::move(s));
}

// ---- ConcatFromSequence ----

constexpr Attribute kConcatAttributes[] = {{"axis", AttrKind::integer, Attribute::kRequired}, {"new_axis", 0}};

void kernel_concat(KernelContext& ctx) {
  require_sequence(ctx.op(), 0);
  const Sequence& s = ctx.value(0).sequence();
  if (s.empty()) ctx.error(ErrorCode::invalid_argument, "the sequence is empty");
  const bool new_axis = ctx.op().i("new_axis") != 0;
  ctx.op().require(!new_axis || ctx.op().i("new_axis") == 1, "new_axis must be 0 or 1, got {}", ctx.op().i("new_axis"));
  std::vector<Tensor> parts;
  Shape out;
  int axis = 0;
  for (const Value& v : s) {
    Shape shape = v.shape();
    axis = ctx.op().axis("axis", shape.rank() + (new_axis ? 1 : 0));
    if (new_axis) shape.insert(axis, 1);
    parts.push_back(v.tensor().reshaped(shape));
    if (parts.size() == 1) {
      out = shape;
      continue;
    }
    out[axis] += shape.rank() == out.rank() ? shape[axis] : 0;
    Shape expected = out;
    if (shape.rank() == out.rank()) expected[axis] = shape[axis];
    if (shape != expected || v.dtype() != s.front().dtype()) {
      ctx.error(ErrorCode::invalid_argument, "elements of {} and {} do not join along axis {}", parts.front().shape(),
                shape, axis);
    }
  }
  Tensor y = ctx.allocate(0, s.front().dtype(), out);
  const std::int64_t outer = extent_of(out, 0, axis), inner = extent_of(out, axis + 1, out.rank());
  std::int64_t first = 0;
  for (const Tensor& part : parts) {
    const std::int64_t extent = part.shape()[axis];
    for (std::int64_t o = 0; o < outer; ++o)
      copy_elements(part, o * extent * inner, y, (o * out[axis] + first) * inner, extent * inner);
    first += extent;
  }
}

// ---- optionals ----

constexpr Attribute kOptionalAttributes[] = {{"type", AttrKind::type}};

Facts infer_optional(const OpView& op) {
  return {Fact::of_kind(Fact::Kind::optional, op.has(0) ? op.in(0).dtype : DType())};
}

void kernel_optional(KernelContext& ctx) {
  Optional o;
  if (ctx.has(0)) {
    o.value = std::make_shared<Value>(ctx.value(0).is_tensor() ? Value(ctx.in(0).clone()) : ctx.value(0));
  }
  ctx.set(0, std::move(o));
}

/// What an optional holds, null where it is empty; a plain value holds itself.
const Value* held(const KernelContext& ctx) {
  if (!ctx.has(0)) return nullptr;
  const Value& v = ctx.value(0);
  return v.is_optional() ? v.optional().value.get() : &v;
}

void kernel_get_element(KernelContext& ctx) {
  const Value* v = held(ctx);
  if (v == nullptr) ctx.error(ErrorCode::invalid_argument, "the optional is empty");
  ctx.set(0, *v);
}

Facts infer_has_element(const OpView&) { return {Fact(DType::boolean, {})}; }

void kernel_has_element(KernelContext& ctx) { ctx.out<bool>(0)[0] = held(ctx) != nullptr; }

}  // namespace

extern const OpDef op_sequence_empty;
constinit const OpDef op_sequence_empty = {.name = "SequenceEmpty",
                                           .inputs = 0,
                                           .attributes = kEmptyAttributes,
                                           .forms = {11, 11},
                                           .infer = infer_empty,
                                           .kernel = kernel_empty};

extern const OpDef op_sequence_construct;
constinit const OpDef op_sequence_construct = {.name = "SequenceConstruct",
                                               .inputs = {1, Arity::kMany},
                                               .forms = {11, 11},
                                               .takes = kAny,
                                               .infer = infer_construct,
                                               .kernel = kernel_construct};

extern const OpDef op_sequence_insert;
constinit const OpDef op_sequence_insert = {.name = "SequenceInsert",
                                            .inputs = {2, 3},
                                            .forms = {11, 11},
                                            .takes = {{kAny, inputs(1)}, {kIndices, inputs(2)}},
                                            .any_kind = true,
                                            .infer = infer_insert,
                                            .kernel = kernel_insert};

extern const OpDef op_sequence_erase;
constinit const OpDef op_sequence_erase = {.name = "SequenceErase",
                                           .inputs = {1, 2},
                                           .forms = {11, 11},
                                           .takes = {{kIndices, inputs(1)}},
                                           .any_kind = true,
                                           .infer = infer_erase,
                                           .kernel = kernel_erase};

extern const OpDef op_sequence_at;
constinit const OpDef op_sequence_at = {.name = "SequenceAt",
                                        .inputs = 2,
                                        .forms = {11, 11},
                                        .takes = {{kIndices, inputs(1)}},
                                        .dynamic_output = true,
                                        .any_kind = true,
                                        .kernel = kernel_at};

extern const OpDef op_sequence_length;
constinit const OpDef op_sequence_length = {
    .name = "SequenceLength", .forms = {11, 11}, .any_kind = true, .infer = infer_length, .kernel = kernel_length};

extern const OpDef op_split_to_sequence;
constinit const OpDef op_split_to_sequence = {.name = "SplitToSequence",
                                              .inputs = {1, 2},
                                              .attributes = kSplitAttributes,
                                              .forms = {11, 24},
                                              .takes = {{kAny, inputs(0)}, {kIndices, inputs(1)}},
                                              .infer = infer_split,
                                              .kernel = kernel_split};

extern const OpDef op_concat_from_sequence;
constinit const OpDef op_concat_from_sequence = {.name = "ConcatFromSequence",
                                                 .attributes = kConcatAttributes,
                                                 .forms = {11, 11},
                                                 .dynamic_output = true,
                                                 .any_kind = true,
                                                 .kernel = kernel_concat};

extern const OpDef op_optional;
constinit const OpDef op_optional = {.name = "Optional",
                                     .inputs = {0, 1},
                                     .attributes = kOptionalAttributes,
                                     .forms = {15, 28},
                                     .takes = kAny,
                                     .any_kind = true,
                                     .infer = infer_optional,
                                     .kernel = kernel_optional};

extern const OpDef op_optional_get_element;
constinit const OpDef op_optional_get_element = {.name = "OptionalGetElement",
                                                 .forms = {15, 28},
                                                 .takes = kAny,
                                                 .dynamic_output = true,
                                                 .any_kind = true,
                                                 .kernel = kernel_get_element};

extern const OpDef op_optional_has_element;
constinit const OpDef op_optional_has_element = {.name = "OptionalHasElement",
                                                 .inputs = {0, 1},
                                                 .forms = {15, 28},
                                                 .takes = kAny,
                                                 .any_kind = true,
                                                 .infer = infer_has_element,
                                                 .kernel = kernel_has_element};

}  // namespace lathe::ops
