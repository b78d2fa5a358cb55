// Contractions through oneDNN.
#include "runtime/contraction.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "ops/window.h"
#include "runtime/backends/onednn/onednn.h"

namespace lathe::runtime {
namespace {

using onednn::Operand;
using onednn::PostOp;
using ops::Graph;
using ops::Group;
using ops::kNone;
using ops::Node;
using ops::NodeId;
using ops::ValueId;

/// Up to this many multiply-adds a compiled loop beats the cost of calling oneDNN; and rows of at most this many read
/// each weight once either way.
constexpr double kSmallContraction = 32'768;
constexpr std::int64_t kFewRows = 4;

struct Declined {
  std::string reason;
};

/// Strides of extents of 1 mean nothing, but oneDNN looks at them: they become those of the order that the others
/// follow.
Shape tidy(const Shape& dims, const Shape& strides, bool prefer_channels_last = false) {
  const auto agrees = [&](const Shape& order) {
    for (int d = 0; d < dims.rank(); ++d) {
      if (dims[d] != 1 && strides[d] != order[d]) return false;
    }
    return true;
  };
  const Shape rows = onednn::row_major(dims);
  const Shape last = dims.rank() < 3 ? rows : onednn::channels_last(dims);
  if (prefer_channels_last && agrees(last)) return last;
  if (agrees(rows)) return rows;
  return agrees(last) ? last : strides;
}

/// A value as it lies in memory once the views in front of it are looked through.
struct Strided {
  ValueId base = kNone;
  std::int64_t offset = 0;  ///< elements
  Shape strides;            ///< per dim of the value
};

class OneDnnStep final : public Step {
 public:
  /// `reads_weights`: from a buffer; else they are `weights`, packed, or there are none.
  OneDnnStep(std::unique_ptr<onednn::Primitive> primitive, bool reads_weights, bool bias,
             std::vector<std::size_t> offsets, const void* weights)
      : primitive_(std::move(primitive)),
        reads_weights_(reads_weights),
        bias_(bias),
        offsets_(std::move(offsets)),
        weights_(weights) {}

  std::int32_t run(void* const* buffers, StepContext& context) const noexcept override {
    constexpr std::size_t kMostOperands = 32;
    const void* operands[kMostOperands];
    std::size_t next = 0;
    const auto take = [&] {
      const std::size_t i = next++;
      return static_cast<std::byte*>(buffers[i]) + offsets_[i];
    };
    onednn::Buffers b;
    b.src = take();
    b.weights = reads_weights_ ? take() : weights_;
    if (bias_) b.bias = reinterpret_cast<const float*>(take());
    std::size_t count = 0;
    while (next + 1 < offsets_.size() && count < kMostOperands) operands[count++] = take();
    b.operands = operands;
    b.dst = take();
    const std::int32_t status = context.pool && primitive_->parts() > 1
                                    ? primitive_->execute(b, context.scratch.data(), *context.pool)
                                    : primitive_->run(b, 0, primitive_->parts(), context.scratch.front());
    if (status == 0) return 0;
    context.error = {ErrorCode::out_of_memory, fmt::format("{}: oneDNN failed with status {}", record.name, status)};
    return kStepFailed;
  }

 private:
  std::unique_ptr<onednn::Primitive> primitive_;
  bool reads_weights_;
  bool bias_;
  std::vector<std::size_t> offsets_;  // bytes, one per buffer
  const void* weights_;
};

class Maker {
 public:
  /// `tensors`: whether post-ops may read tensors of their own.
  Maker(const Graph& graph, const Group& group, const BuildOptions& options, bool tensors)
      : graph_(graph), group_(group), options_(options), tensors_(tensors) {
    for (NodeId n : group.nodes) {
      if (graph.node(n).op->contraction) {
        if (main_ != kNone) throw Declined{"two contractions in one kernel"};
        main_ = n;
      }
    }
  }

  ContractionStep make() {
    const Node& node = graph_.node(main_);
    for (ValueId v : node.inputs) {
      if (v != kNone && fact(v).shape.elements() == 0) throw Declined{"an operand is empty"};
    }
    for (const Offer& offer : kOffers) {
      if (names(offer, *node.op)) return (this->*offer.make)(node);
    }
    if (node.op->name == "MaxPool") throw Declined{"its maxima lose NaN and -inf"};
    throw Declined{fmt::format("{} is not among its operators", node.op->name)};
  }
  static bool takes(const ops::OpDef& op) {
    return std::any_of(std::begin(kOffers), std::end(kOffers), [&](const Offer& offer) { return names(offer, op); });
  }
  [[nodiscard]] bool reads_tensors() const { return !operands_.empty(); }

 private:
  /// What oneDNN is offered of ONNX's default domain.
  struct Offer {
    std::string_view name;
    ContractionStep (Maker::*make)(const Node&);
  };
  static const Offer kOffers[4];
  static bool names(const Offer& offer, const ops::OpDef& op) { return op.domain.empty() && op.name == offer.name; }

  [[nodiscard]] const ops::Fact& fact(ValueId v) const { return *graph_.value(v).fact; }

  [[nodiscard]] bool is_view_here(NodeId n) const {
    return n != kNone && graph_.node(n).op->is_view &&
           std::find(group_.nodes.begin(), group_.nodes.end(), n) != group_.nodes.end();
  }

  /// How `v` lies in memory, the group's views looked through.
  Strided operand(ValueId v) const {
    Strided o;
    if (!is_view_here(graph_.value(v).producer)) {
      o.base = v;
      o.strides = ops::strides_of(fact(v));
      return o;
    }
    Group read;
    for (NodeId n : group_.nodes) {
      if (graph_.node(n).op->is_view) read.nodes.push_back(n);
    }
    read.outputs = {v};
    read.domain = v;
    const ops::GroupKernel k = ops::build_kernel(graph_, read, false);
    if (k.kernel.loads.size() != 1 || k.kernel.stores.size() != 1 || k.kernel.insts.size() != 1 ||
        !k.kernel.loads[0].guards.empty() || !k.kernel.loads[0].indirect.empty()) {
      throw Declined{"an operand is not a strided view"};
    }
    const loops::Access& a = k.kernel.loads[0];
    o.base = k.buffers[static_cast<std::size_t>(a.buffer)];
    o.offset = a.offset;
    o.strides = fact(v).shape;
    for (int p = 0; p < fact(v).rank(); ++p)
      o.strides[fact(v).layout.dim_at(p)] = a.strides[static_cast<std::size_t>(p)];
    return o;
  }

  std::size_t bytes(const Strided& o) const {
    return static_cast<std::size_t>(o.offset) * static_cast<std::size_t>(fact(o.base).dtype.bits() / 8);
  }

  /// The operand brought to `rank` by leading dims of 1.
  Operand padded(const ops::Fact& f, const Shape& strides, int rank) const {
    Operand o{f.dtype, f.shape, strides};
    o.strides = tidy(o.dims, o.strides, convolution_);
    while (o.dims.rank() < rank) {
      o.dims.insert(0, 1);
      o.strides.insert(0, o.strides.rank() > 0 ? o.strides[0] * o.dims[1] : 1);
    }
    for (int d = 0; d < rank; ++d) {
      if (o.strides[d] == 0 && o.dims[d] > 1) throw Declined{"an operand is broadcast"};
    }
    return o;
  }

  void read(ValueId v, std::size_t offset) {
    result_.reads.push_back(v);
    offsets_.push_back(offset);
  }

  // ---- epilogue ----

  [[nodiscard]] bool leaves(ValueId v) const {
    return std::find(group_.outputs.begin(), group_.outputs.end(), v) != group_.outputs.end();
  }

  [[nodiscard]] std::optional<float> constant_of(ValueId v) const {
    if (v == kNone) return std::nullopt;
    const Tensor* t = graph_.value(v).is_constant() ? &graph_.value(v).constant : nullptr;
    if (!t || t->size() != 1) return std::nullopt;
    return static_cast<float>(t->number(0));
  }

  /// An eltwise step of one node, or nothing.
  std::optional<PostOp> eltwise(NodeId id) const {
    const ops::NodeFacts nf(graph_, id);
    const ops::OpView op = nf.view();
    const std::string_view name = op.op().name;
    using Kind = PostOp::Kind;
    const auto make = [](Kind kind, double alpha = 0, double beta = 0) {
      PostOp p;
      p.kind = kind;
      p.alpha = static_cast<float>(alpha);
      p.beta = static_cast<float>(beta);
      return p;
    };
    if (!op.op().domain.empty()) return std::nullopt;
    if (name == "Relu") return make(Kind::relu);
    if (name == "LeakyRelu") return make(Kind::relu, op.f("alpha"));
    if (name == "Elu") return make(Kind::elu, op.f("alpha"));
    if (name == "Sigmoid") return make(Kind::sigmoid);
    if (name == "Tanh") return make(Kind::tanh);
    if (name == "HardSigmoid") return make(Kind::hardsigmoid, op.f("alpha"), op.f("beta"));
    if (name == "HardSwish") return make(Kind::hardswish, 1.0 / 6, 0.5);
    if (name == "Clip") {
      float low = std::numeric_limits<float>::lowest();
      float high = std::numeric_limits<float>::max();
      if (op.has(1)) {
        const auto c = constant_of(op.id(1));
        if (!c) return std::nullopt;
        low = *c;
      }
      if (op.has(2)) {
        const auto c = constant_of(op.id(2));
        if (!c) return std::nullopt;
        high = *c;
      }
      return make(Kind::clip, low, high);
    }
    return std::nullopt;
  }

  /// Walks the epilogue from `current`, collecting post-ops until one does not fit. `channel` is the dim of the bias.
  ValueId epilogue(ValueId current, int channel, bool may_bias, std::vector<PostOp>& post_ops) {
    const auto at = std::find(group_.nodes.begin(), group_.nodes.end(), main_);
    std::vector<NodeId> pending;
    for (auto it = at + 1; it != group_.nodes.end(); ++it) {
      if (!graph_.node(*it).op->is_view) pending.push_back(*it);
    }
    std::size_t next = 0;
    while (next < pending.size() && post_ops.size() < 8) {
      if (leaves(current)) break;
      if (next + 1 < pending.size() && swish(current, pending[next], pending[next + 1])) {
        PostOp p;
        p.kind = PostOp::Kind::swish;
        p.alpha = 1;
        post_ops.push_back(p);
        current = graph_.node(pending[next + 1]).outputs[0];
        next += 2;
        may_bias = false;
        continue;
      }
      const Node& node = graph_.node(pending[next]);
      if (readers_here(current) != 1 || std::count(node.inputs.begin(), node.inputs.end(), current) != 1) break;
      if (!(fact(node.outputs[0]).shape == fact(current).shape) || fact(node.outputs[0]).dtype != DType::f32) break;
      if (node.inputs[0] == current) {
        if (const auto p = eltwise(pending[next])) {
          post_ops.push_back(*p);
          current = node.outputs[0];
          ++next;
          may_bias = false;
          continue;
        }
      }
      if (!binary(node, current, channel, may_bias, post_ops)) break;
      current = node.outputs[0];
      ++next;
      may_bias = false;
    }
    result_.rest.assign(pending.begin() + static_cast<std::ptrdiff_t>(next), pending.end());
    return current;
  }

  [[nodiscard]] int readers_here(ValueId v) const {
    int n = 0;
    for (NodeId id : group_.nodes)
      n += static_cast<int>(std::count(graph_.node(id).inputs.begin(), graph_.node(id).inputs.end(), v));
    return n;
  }

  /// x · sigmoid(x), as two nodes.
  [[nodiscard]] bool swish(ValueId x, NodeId first, NodeId second) const {
    const Node& s = graph_.node(first);
    const Node& m = graph_.node(second);
    if (s.op->name != "Sigmoid" || s.inputs[0] != x || m.op->name != "Mul" || leaves(s.outputs[0]) ||
        readers_here(x) != 2)
      return false;
    return (m.inputs[0] == x && m.inputs[1] == s.outputs[0]) || (m.inputs[1] == x && m.inputs[0] == s.outputs[0]);
  }

  bool binary(const Node& node, ValueId current, int channel, bool may_bias, std::vector<PostOp>& post_ops) {
    if (node.inputs.size() != 2 || !node.op->domain.empty()) return false;
    const std::string_view name = node.op->name;
    const bool left = node.inputs[0] == current;
    const ValueId other = left ? node.inputs[1] : node.inputs[0];
    if (fact(other).dtype != DType::f32) return false;
    if (const auto c = constant_of(other)) {
      PostOp p;
      p.kind = PostOp::Kind::linear;
      p.alpha = 1;
      if (name == "Add") {
        p.beta = *c;
      } else if (name == "Mul") {
        p.alpha = *c;
      } else if (name == "Sub" && left) {
        p.beta = -*c;
      } else {
        return false;
      }
      post_ops.push_back(p);
      return true;
    }
    PostOp p;
    if (name == "Add") {
      p.kind = PostOp::Kind::add;
    } else if (name == "Mul") {
      p.kind = PostOp::Kind::mul;
    } else if (name == "Sub" && left) {
      p.kind = PostOp::Kind::sub;
    } else if (name == "Div" && left) {
      p.kind = PostOp::Kind::div;
    } else {
      return false;
    }
    const int rank = fact(current).rank();
    if (fact(other).rank() > rank) return false;
    Strided o;
    try {
      o = operand(other);
      p.operand = padded(fact(other), o.strides, rank_);
    } catch (const Declined&) {
      return false;
    } catch (const ops::NotFusable&) {
      return false;
    }
    const bool along_channel = p.operand.dims.elements() == p.operand.dims[channel] &&
                               p.operand.dims[channel] == channels_ && p.operand.strides[channel] == 1;
    if (may_bias && name == "Add" && along_channel && !bias_) {
      bias_ = o;
      return true;
    }
    if (!tensors_) return false;
    operands_.push_back(o);
    post_ops.push_back(p);
    return true;
  }

  // ---- operators ----

  ContractionStep matmul(const Node& node) {
    const ValueId a = node.inputs[0];
    const ValueId b = node.inputs[1];
    const ValueId out = node.outputs[0];
    if (fact(a).dtype != DType::f32) throw Declined{fmt::format("no {} matmul", fact(a).dtype)};
    if (fact(a).rank() < 2 || fact(b).rank() < 2) throw Declined{"a vector operand"};
    const int rank = fact(out).rank();
    const Shape& dst = fact(out).shape;
    const std::int64_t k = fact(a).shape.back();
    const double work = static_cast<double>(dst.elements()) * static_cast<double>(k);
    if (work <= kSmallContraction) throw Declined{"too small to be worth the call"};
    const Strided oa = operand(a);
    const Strided ob = operand(b);
    if (rows_per_matrix(fact(b), dst) <= kFewRows && ob.strides.back() == 1)
      throw Declined{"few rows: a compiled loop reads the weights as fast"};
    onednn::MatMulSpec spec;
    rank_ = rank;
    channels_ = dst.back();
    spec.a = padded(fact(a), oa.strides, rank);
    spec.b = padded(fact(b), ob.strides, rank);
    spec.constant_b = graph_.value(ob.base).is_constant();
    spec.parts = options_.threads;
    const ValueId end = epilogue(out, rank - 1, true, spec.post_ops);
    spec.dst = {DType::f32, dst, ops::strides_of(fact(end))};
    spec.bias = bias_.has_value();
    // A batch of matrices times one matrix is one tall matrix, where the rows lie evenly.
    flatten(spec);
    onednn::Made made = onednn::make_matmul(spec);
    return finish(std::move(made), oa, &ob, spec.constant_b, end, "matmul");
  }

  /// How often each matrix of b is used.
  static std::int64_t rows_per_matrix(const ops::Fact& b, const Shape& dst) {
    std::int64_t matrices = 1;
    for (int d = 0; d + 2 < b.rank(); ++d) matrices *= b.shape[d];
    return dst.elements() / std::max<std::int64_t>(1, dst.back()) / std::max<std::int64_t>(1, matrices);
  }

  static void flatten(onednn::MatMulSpec& spec) {
    const int rank = spec.dst.dims.rank();
    if (rank <= 2) return;
    for (int d = 0; d + 2 < rank; ++d) {
      if (spec.b.dims[d] != 1) return;
    }
    const auto even = [&](const Operand& o) {
      for (int d = 0; d + 2 < rank; ++d) {
        if (o.dims[d] > 1 && o.strides[d] != o.strides[d + 1] * o.dims[d + 1]) return false;
      }
      return true;
    };
    if (!even(spec.a) || !even(spec.dst)) return;
    for (int d = 0; d + 1 < rank; ++d) {
      if (spec.a.dims[d] != spec.dst.dims[d]) return;
    }
    for (const PostOp& p : spec.post_ops) {
      if (!has_operand(p.kind)) continue;
      bool full = even(p.operand);
      for (int d = 0; d + 1 < rank; ++d) full = full && p.operand.dims[d] == spec.dst.dims[d];
      bool row = true;
      for (int d = 0; d + 1 < rank; ++d) row = row && p.operand.dims[d] == 1;
      if (!full && !row) return;
    }
    const auto flat = [&](const Operand& o) {
      Operand f{o.dtype, {1, o.dims[rank - 1]}, {o.strides[rank - 2], o.strides[rank - 1]}};
      for (int d = 0; d + 1 < rank; ++d) f.dims[0] *= o.dims[d];
      return f;
    };
    spec.a = flat(spec.a);
    spec.dst = flat(spec.dst);
    spec.b = {spec.b.dtype,
              {spec.b.dims[rank - 2], spec.b.dims[rank - 1]},
              {spec.b.strides[rank - 2], spec.b.strides[rank - 1]}};
    for (PostOp& p : spec.post_ops) {
      if (has_operand(p.kind)) p.operand = flat(p.operand);
    }
  }

  ContractionStep convolution(const Node& node) {
    const ValueId x = node.inputs[0];
    const ValueId w = node.inputs[1];
    const ValueId out = node.outputs[0];
    const bool transposed = node.op->name == "ConvTranspose";
    if (fact(x).dtype != DType::f32) throw Declined{fmt::format("no {} convolution", fact(x).dtype)};
    if (fact(x).rank() > 5) throw Declined{"more than 3 spatial dims"};
    if (!graph_.value(w).is_constant()) throw Declined{"the weights are not constant"};
    const ops::NodeFacts nf(graph_, main_);
    const ops::OpView op = nf.view();
    const Shape in = ops::spatial(fact(x).shape);
    const Shape kernel = ops::spatial(fact(w).shape);
    const ops::Window window =
        transposed ? ops::resolve_transposed_window(op, in, kernel) : ops::resolve_window(op, in, kernel);
    onednn::ConvSpec spec;
    rank_ = fact(out).rank();
    channels_ = fact(out).shape[1];
    const Strided ox = operand(x);
    const Strided ow = operand(w);
    convolution_ = true;
    spec.src = {DType::f32, fact(x).shape, tidy(fact(x).shape, ox.strides, true)};
    spec.weights = {DType::f32, fact(w).shape, ow.strides};
    spec.transposed = transposed;
    spec.groups = op.i("group");
    spec.strides = window.strides;
    spec.dilations = window.dilations;
    spec.pads_begin = window.pads_begin;
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) bias_ = operand(node.inputs[2]);
    spec.parts = options_.threads;
    const ValueId end = epilogue(out, 1, !bias_, spec.post_ops);
    spec.bias = bias_.has_value();
    spec.dst = {DType::f32, fact(out).shape, tidy(fact(out).shape, ops::strides_of(fact(end)), true)};
    drop_unit_dims(spec);
    onednn::Made made = onednn::make_convolution(spec);
    return finish(std::move(made), ox, &ow, true, end, transposed ? "deconvolution" : "convolution");
  }

  ContractionStep average(const Node& node) {
    const ValueId x = node.inputs[0];
    const ValueId out = node.outputs[0];
    const ops::NodeFacts nf(graph_, main_);
    const ops::OpView op = nf.view();
    const ops::Window window =
        ops::resolve_window(op, ops::spatial(fact(x).shape), Shape(op.attr_ints("kernel_shape")));
    const double work = static_cast<double>(fact(out).shape.elements()) * static_cast<double>(window.kernel.elements());
    if (work <= kSmallContraction) throw Declined{"too small to be worth the call"};
    onednn::PoolSpec spec;
    rank_ = fact(out).rank();
    channels_ = fact(out).shape[1];
    convolution_ = true;
    const Strided ox = operand(x);
    spec.src = {fact(x).dtype, fact(x).shape, tidy(fact(x).shape, ox.strides, true)};
    spec.kernel = window.kernel;
    spec.strides = window.strides;
    spec.dilations = window.dilations;
    spec.pads_begin = window.pads_begin;
    spec.pads_end = window.pads_end;
    spec.counts_padding = op.i("count_include_pad") != 0;
    spec.parts = options_.threads;
    const ValueId end = epilogue(out, 1, false, spec.post_ops);
    spec.dst = {fact(out).dtype, fact(out).shape, tidy(fact(out).shape, ops::strides_of(fact(end)), true)};
    return finish(onednn::make_pooling(spec), ox, nullptr, false, end, "pooling");
  }

  /// A convolution over one row is a 1D one: oneDNN blocks along the last spatial dim.
  static void drop_unit_dims(onednn::ConvSpec& spec) {
    for (int d = spec.src.dims.rank() - 1; d >= 2 && spec.src.dims.rank() > 3; --d) {
      const int s = d - 2;
      const bool unit =
          spec.src.dims[d] == 1 && spec.dst.dims[d] == 1 && spec.weights.dims[d] == 1 && spec.pads_begin[s] == 0;
      bool operands = true;
      for (const PostOp& p : spec.post_ops) operands = operands && (!has_operand(p.kind) || p.operand.dims[d] == 1);
      if (!unit || !operands) continue;
      const auto drop = [&](Operand& o) {
        o.dims.erase(d);
        o.strides.erase(d);
      };
      drop(spec.src);
      drop(spec.dst);
      drop(spec.weights);
      for (PostOp& p : spec.post_ops) {
        if (has_operand(p.kind)) drop(p.operand);
      }
      spec.strides.erase(s);
      spec.dilations.erase(s);
      spec.pads_begin.erase(s);
    }
  }

  /// `weights`: null where there are none.
  ContractionStep finish(onednn::Made made, const Strided& src, const Strided* weights, bool constant, ValueId end,
                         const char* kind) {
    if (!made.primitive) throw Declined{made.declined};
    onednn::Primitive& primitive = *made.primitive;
    read(src.base, bytes(src));
    const bool packed = constant && !primitive.weights_format().empty();
    if (packed) {
      struct Context {
        const onednn::Primitive* primitive;
        const void* source;
      };
      const auto* source = static_cast<const std::byte*>(graph_.value(weights->base).constant.data()) + bytes(*weights);
      const Context context{&primitive, source};
      result_.packed = options_.packed->get(
          *options_.memory, graph_.value(weights->base).constant, source, primitive.weights_format(),
          primitive.weights_bytes(),
          [](const void* raw, void* out) {
            const auto* c = static_cast<const Context*>(raw);
            return c->primitive->pack_weights(c->source, out);
          },
          &context);
      if (!result_.packed)
        fail(ErrorCode::out_of_memory, "no memory for {} bytes of packed weights", primitive.weights_bytes());
    } else if (weights != nullptr) {
      read(weights->base, bytes(*weights));
    }
    if (bias_) read(bias_->base, bytes(*bias_));
    for (const Strided& o : operands_) read(o.base, bytes(o));
    offsets_.push_back(0);
    result_.writes = end;
    const std::string name = primitive.name();
    const std::size_t scratch = primitive.scratch_bytes();
    result_.step = std::make_unique<OneDnnStep>(std::move(made.primitive), weights != nullptr && !packed,
                                                bias_.has_value(), offsets_, result_.packed.get());
    result_.step->record.backend = "onednn";
    result_.step->record.kernel = fmt::format("{} ({})", kind, name);
    result_.step->record.scratch_bytes = scratch;
    result_.step->record.allocates = true;
    return std::move(result_);
  }

  const Graph& graph_;
  const Group& group_;
  const BuildOptions& options_;
  bool tensors_;
  NodeId main_ = kNone;
  int rank_ = 0;
  bool convolution_ = false;
  std::int64_t channels_ = 0;
  std::optional<Strided> bias_;
  std::vector<Strided> operands_;
  std::vector<std::size_t> offsets_;
  ContractionStep result_;
};

constexpr Maker::Offer Maker::kOffers[] = {{"AveragePool", &Maker::average},
                                           {"Conv", &Maker::convolution},
                                           {"ConvTranspose", &Maker::convolution},
                                           {"MatMul", &Maker::matmul}};

}  // namespace

bool offered_to_onednn(const ops::OpDef& op) { return Maker::takes(op); }

ContractionStep make_contraction(const Graph& graph, const Group& group, const BuildOptions& options) {
  ContractionStep declined;
  try {
    Maker maker(graph, group, options, true);
    try {
      return maker.make();
    } catch (const Declined&) {
      // oneDNN's fast kernels do not take every stride of an operand; a compiled loop behind them does.
      if (!maker.reads_tensors()) throw;
      return Maker(graph, group, options, false).make();
    }
  } catch (const Declined& d) {
    declined.declined = d.reason;
  } catch (const ops::NotFusable&) {
    declined.declined = "an operand is not a strided view";
  }
  return declined;
}

}  // namespace lathe::runtime
