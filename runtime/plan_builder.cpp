// Makes plans: a step per group, buffers placed by lifetime, all loops compiled together.
#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include "runtime/contraction.h"
#include "runtime/memory_plan.h"
#include "runtime/program.h"
#include "runtime/steps.h"

namespace lathe::runtime {
namespace {

using ops::Graph;
using ops::Group;
using ops::kNone;
using ops::NodeId;
using ops::ValueId;

/// What a step takes of the cache, its kernel and record included, and what oneDNN keeps of a primitive, as the heap
/// told.
constexpr std::size_t kStepBytes = 4096;
constexpr std::size_t kViewBytes = 768;
constexpr std::size_t kPrimitiveBytes = 24 << 10;

class PlanBuilder {
 public:
  PlanBuilder(Program& program, const BuildOptions& options)
      : program_(program),
        graph_(program.graph),
        options_(options),
        plan_(std::make_shared<Plan>()),
        alias_(graph_.value_count(), kNone),
        part_(graph_.value_count()) {}

  std::shared_ptr<const Plan> finish(const std::function<void()>& check) {
    note_known();
    for (const Group& group : program_.groups) {
      check();
      add_group(group);
    }
    add_outputs();
    check_order();
    place();
    compile(check);
    for (Item& item : items_) {
      plan_->scratch_bytes = std::max(plan_->scratch_bytes, item.step->record.scratch_bytes);
      plan_->steps.push_back(std::move(item.step));
    }
    for (ValueId v : graph_.inputs) plan_->inputs.push_back(*graph_.value(v).fact);
    for (ValueId v : graph_.outputs) plan_->outputs.push_back(*graph_.value(v).fact);
    plan_->charge += sizeof(Plan) + plan_->steps.size() * kStepBytes + plan_->views.size() * kViewBytes;
    for (const auto& step : plan_->steps) plan_->charge += step->record.backend == "onednn" ? kPrimitiveBytes : 0;
    return plan_;
  }

 private:
  /// A step with the values behind its slots.
  struct Item {
    std::unique_ptr<Step> step;
    std::vector<ValueId> values;  ///< one per slot
    std::vector<bool> written;    ///< one per slot
    LoopStep* loop = nullptr;
    std::vector<Tensor> packed = {};  ///< per slot: what is read instead of a constant; undefined elsewhere
    int copy_to = -1;                 ///< for copies: which graph output
  };

  [[nodiscard]] const ops::Fact& fact(ValueId v) const { return *graph_.value(v).fact; }

  /// The value whose memory `v` is.
  [[nodiscard]] ValueId root(ValueId v) const {
    while (alias_[static_cast<std::size_t>(v)] != kNone) v = alias_[static_cast<std::size_t>(v)];
    return v;
  }

  /// Where a value lies inside another, behind so many bytes.
  struct Part {
    ValueId of = kNone;
    std::size_t offset = 0;
  };

  /// The value whose memory `v` is or is a part of, and where.
  [[nodiscard]] Part home(ValueId v) const {
    Part at{root(v), 0};
    while (part_[static_cast<std::size_t>(at.of)].of != kNone) {
      const Part& p = part_[static_cast<std::size_t>(at.of)];
      at = {root(p.of), at.offset + p.offset};
    }
    return at;
  }

  [[nodiscard]] bool empty_result(const Group& group) const {
    return std::all_of(group.outputs.begin(), group.outputs.end(),
                       [&](ValueId v) { return fact(v).shape.elements() == 0; });
  }

  void add_group(const Group& group) {
    const NodeId last = group.nodes.back();
    const ops::Node& node = graph_.node(last);
    // First of all: oneDNN takes seconds to make a primitive for a result that no memory could hold.
    const ops::OnBehalfOf name(node);
    for (ValueId v : group.outputs) options_.memory->require(Tensor::byte_size(fact(v).dtype, fact(v).shape));
    std::vector<tools::Decline> declines;
    const NodeId contraction = find_contraction(group);
    if (!node.op->expr) {
      if (contraction != kNone && !empty_result(group) && offer_to_onednn(group, declines)) return;
      add_plain(last, std::move(declines));
      return;
    }
    if (empty_result(group)) return note_view(group.nodes, group.outputs, "empty");
    if (alias_view(group)) return;
    if (contraction != kNone && offer_to_onednn(group, declines)) return;
    if (contraction != kNone && !graph_.node(contraction).op->expr) {
      add_plain(contraction, std::move(declines));
      add_rest(group, {contraction}, {});
      return;
    }
    add_loop(group, std::move(declines));
  }

  /// Whether oneDNN takes a contraction and what it can of the nodes behind it; else the reason is among `declines`.
  bool offer_to_onednn(const Group& group, std::vector<tools::Decline>& declines) {
    if (!options_.onednn || options_.real_time) {
      declines.push_back(
          {"onednn", options_.onednn ? "its calls allocate, and this runs in real time" : "switched off"});
      return false;
    }
    ContractionStep made = make_contraction(graph_, group, options_);
    if (!made.step) {
      declines.push_back({"onednn", made.declined});
      return false;
    }
    add_contraction(group, std::move(made));
    return true;
  }

  /// A view whose result lies in memory just as it should (Squeeze, Unsqueeze) needs no copy.
  bool alias_view(const Group& group) {
    const bool views =
        std::all_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) { return graph_.node(n).op->is_view; });
    if (!views || group.outputs.size() != 1) return false;
    const ops::GroupKernel built = ops::build_kernel(graph_, group, false);
    const loops::Kernel& k = built.kernel;
    if (k.loads.size() != 1 || k.stores.size() != 1 || k.insts.size() != 1 || !k.loads[0].guards.empty() ||
        !k.loads[0].indirect.empty())
      return false;
    const ValueId out = group.outputs[0];
    const ValueId base = built.buffers[static_cast<std::size_t>(k.loads[0].buffer)];
    if (k.loads[0].offset != 0 || fact(base).shape.elements() != fact(out).shape.elements()) return false;
    for (int d = 0; d < k.outer; ++d) {
      const auto i = static_cast<std::size_t>(d);
      if (k.extents[i] != 1 && k.loads[0].strides[i] != k.stores[0].access.strides[i]) return false;
    }
    alias_[static_cast<std::size_t>(out)] = base;
    note_view(group.nodes, group.outputs, "alias");
    return true;
  }

  [[nodiscard]] NodeId find_contraction(const Group& group) const {
    for (NodeId n : group.nodes) {
      if (graph_.node(n).op->contraction) return n;
    }
    return kNone;
  }

  void describe(tools::StepRecord& record, const std::vector<NodeId>& nodes,
                const std::vector<ValueId>& outputs) const {
    for (NodeId n : nodes) {
      record.nodes.push_back(graph_.node(n).name);
      record.operators.emplace_back(graph_.node(n).op->name);
    }
    record.name = ops::describe(graph_.node(nodes.back()));
    for (ValueId v : outputs) {
      if (v != kNone) record.outputs.push_back(fact(v).to_string());
    }
  }

  /// Nodes for which nothing runs.
  void note_view(const std::vector<NodeId>& nodes, const std::vector<ValueId>& outputs, const char* kind) {
    tools::StepRecord record;
    describe(record, nodes, outputs);
    record.backend = "view";
    record.kernel = kind;
    plan_->views.emplace_back(items_.size(), std::move(record));
  }

  /// Nodes whose results were computed with the shapes.
  void note_known() {
    for (NodeId id : graph_.order()) {
      const std::vector<ValueId>& outputs = graph_.node(id).outputs;
      const bool known =
          std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) { return v == kNone || graph_.value(v).value(); });
      if (known) note_view({id}, outputs, "known");
    }
  }

  void add_plain(NodeId id, std::vector<tools::Decline> declines) {
    const ops::Node& node = graph_.node(id);
    const bool same_memory = (node.op->name == "Reshape" || node.op->name == "Identity") && node.op->domain.empty();
    if (same_memory && fact(node.inputs[0]).layout.row_major) {
      alias_[static_cast<std::size_t>(node.outputs[0])] = node.inputs[0];
      note_view({id}, {node.outputs[0]}, "alias");
      return;
    }
    if (node.op->name == "Concat" && node.op->domain.empty()) {
      add_concat(id);
      return;
    }
    if (!options_.plain)
      fail(ErrorCode::unsupported, "the backend 'plain' is switched off, and {} needs it", ops::describe(node));
    Item item;
    item.step = std::make_unique<PlainStep>(graph_, id);
    item.step->record.declines = std::move(declines);
    describe(item.step->record, {id}, {});
    item.step->record.backend = "plain";
    item.step->record.kernel = std::string(node.op->name);
    item.step->record.allocates = !node.op->real_time;
    if (!node.op->real_time) {
      item.step->record.why_not_real_time = node.op->custom ? "runs a custom operator that does not say `real_time`"
                                                            : "runs a plain kernel, which allocates";
    }
    for (ValueId v : node.inputs) {
      if (v == kNone) continue;
      item.values.push_back(v);
      item.written.push_back(false);
    }
    for (ValueId v : node.outputs) {
      if (v == kNone) continue;
      item.values.push_back(v);
      item.written.push_back(true);
      item.step->record.outputs.push_back(fact(v).to_string());
    }
    items_.push_back(std::move(item));
  }

  /// Whether `in` can be made where it belongs in `out`, `offset` bytes in: a run of its memory that nobody else lays
  /// claim to, written by steps of this plan.
  bool place_part(ValueId in, ValueId out, int axis, std::size_t offset) {
    const ops::Fact &from = fact(in), &to = fact(out);
    if (from.dtype.bits() % 8 != 0 || !(from.layout == to.layout)) return false;
    for (int p = 0; to.layout.dim_at(p) != axis; ++p) {
      if (to.shape[to.layout.dim_at(p)] != 1) return false;
    }
    const ValueId r = root(in);
    const ops::ValueDef& made = graph_.value(r);
    if (made.producer == kNone || made.value() || fact(r).shape.elements() != from.shape.elements() ||
        part_[static_cast<std::size_t>(r)].of != kNone)
      return false;
    if (std::any_of(graph_.outputs.begin(), graph_.outputs.end(), [&](ValueId v) { return home(v).of == r; }))
      return false;
    part_[static_cast<std::size_t>(r)] = {out, offset};
    return true;
  }

  /// What can be made in its slice of the output is; the others are copied, by a loop each.
  void add_concat(NodeId id) {
    const ops::Node& node = graph_.node(id);
    const ValueId out = node.outputs[0];
    const ops::NodeFacts nf(graph_, id);
    const int axis = nf.view().axis("axis", fact(out).rank());
    const Shape to = ops::strides_of(fact(out));
    std::int64_t start = 0;
    bool copied = false;
    for (ValueId in : node.inputs) {
      const ops::Fact& from = fact(in);
      const std::int64_t at = start;
      start += from.shape[axis];
      if (from.shape.elements() == 0) continue;
      if (place_part(in, out, axis, static_cast<std::size_t>(at * to[axis] * (from.dtype.bits() / 8)))) continue;
      copied = true;
      loops::Kernel k;
      k.name = "Concat";
      k.outer = from.rank();
      const Shape strides = ops::strides_of(from);
      loops::Access load;
      loops::Access store;
      store.buffer = 1;
      store.offset = at * to[axis];
      for (int p = 0; p < from.rank(); ++p) {
        const int d = fact(out).layout.dim_at(p);
        const auto var = static_cast<std::size_t>(p);
        k.extents[var] = from.shape[d];
        load.strides[var] = strides[d];
        store.strides[var] = to[d];
      }
      k.buffers = {{from.dtype, false}, {from.dtype, true}};
      k.loads = {load};
      loops::Inst inst;
      inst.op = loops::Op::load;
      inst.dtype = from.dtype;
      inst.index = 0;
      k.insts = {inst};
      k.stores = {{0, store}};
      loops::canonicalize(k);
      Item item;
      auto step = std::make_unique<LoopStep>(std::move(k));
      describe(step->record, {id}, {out});
      step->record.backend = "jit";
      step->record.kernel = "copy";
      item.values = {in, out};
      item.written = {false, true};
      item.loop = step.get();
      item.step = std::move(step);
      items_.push_back(std::move(item));
    }
    if (!copied) note_view({id}, {out}, "alias");
  }

  void add_contraction(const Group& group, ContractionStep made) {
    Item item;
    std::vector<NodeId> mine;
    for (NodeId n : group.nodes) {
      if (std::find(made.rest.begin(), made.rest.end(), n) == made.rest.end()) mine.push_back(n);
    }
    std::vector<NodeId> run = mine;
    std::erase_if(run, [&](NodeId n) { return graph_.node(n).op->is_view; });  // the others may read through them too
    describe(item.step ? item.step->record : made.step->record, mine, {made.writes});
    item.step = std::move(made.step);
    item.values = made.reads;
    item.written.assign(made.reads.size(), false);
    item.values.push_back(made.writes);
    item.written.push_back(true);
    if (made.packed) plan_->keep.push_back(std::move(made.packed));
    items_.push_back(std::move(item));
    if (!made.rest.empty()) add_rest(group, run, {{"onednn", "not among its post-ops"}});
  }

  /// What remains of a group when `run` of its nodes run on their own, as one loop.
  void add_rest(const Group& group, const std::vector<NodeId>& run, std::vector<tools::Decline> declines) {
    Group rest;
    for (NodeId n : group.nodes) {
      if (std::find(run.begin(), run.end(), n) == run.end()) rest.nodes.push_back(n);
    }
    for (ValueId v : group.outputs) {
      if (std::find(run.begin(), run.end(), graph_.value(v).producer) == run.end()) rest.outputs.push_back(v);
    }
    rest.domain = rest.outputs.front();
    add_loop(rest, std::move(declines));
  }

  void add_loop(const Group& group, std::vector<tools::Decline> declines) {
    ops::GroupKernel built = ops::build_kernel(graph_, group);
    Item item;
    auto step = std::make_unique<LoopStep>(std::move(built.kernel));
    describe(step->record, group.nodes, group.outputs);
    step->record.backend = "jit";
    step->record.kernel = step->kernel.inner == 0            ? "pointwise"
                          : find_contraction(group) != kNone ? "contraction"
                                                             : "row";
    step->record.declines = std::move(declines);
    for (std::size_t b = 0; b < built.buffers.size(); ++b) {
      item.values.push_back(built.buffers[b]);
      item.written.push_back(step->kernel.buffers[b].output);
    }
    if (options_.real_time && find_contraction(group) != kNone) pack_weights(step->kernel, item);
    item.loop = step.get();
    item.step = std::move(step);
    items_.push_back(std::move(item));
  }

  /// Constants that a contraction reads with a stride along the dim in which its result is contiguous are put in the
  /// order of its loops, that dim innermost: so vectors of them are loaded whole.
  void pack_weights(loops::Kernel& kernel, Item& item) {
    const loops::Access& result = kernel.stores.front().access;
    int along = -1;
    for (int d = 0; d < kernel.outer; ++d) {
      if (result.strides[static_cast<std::size_t>(d)] == 1 && kernel.extents[static_cast<std::size_t>(d)] > 1)
        along = d;
    }
    if (along < 0) return;
    item.packed.resize(item.values.size());
    for (loops::Access& load : kernel.loads) {
      const ops::ValueDef& value = graph_.value(root(item.values[static_cast<std::size_t>(load.buffer)]));
      const bool shared = std::count_if(kernel.loads.begin(), kernel.loads.end(),
                                        [&](const loops::Access& other) { return other.buffer == load.buffer; }) > 1;
      if (!value.is_constant() || shared || !load.guards.empty() || !load.indirect.empty() ||
          load.strides[static_cast<std::size_t>(along)] <= 1)
        continue;
      pack(kernel, load, along, value.constant, item.packed[static_cast<std::size_t>(load.buffer)]);
    }
  }

  void pack(const loops::Kernel& kernel, loops::Access& load, int along, const Tensor& constant, Tensor& packed) {
    std::vector<int> order;  // innermost first
    order.push_back(along);
    for (int d = kernel.rank(); d-- > 0;) {
      if (d != along && load.strides[static_cast<std::size_t>(d)] != 0) order.push_back(d);
    }
    struct Walk {
      const std::byte* from;
      std::size_t element;
      std::vector<std::int64_t> extents, strides;
    } walk{
        static_cast<const std::byte*>(constant.data()), static_cast<std::size_t>(constant.dtype().bits() / 8), {}, {}};
    walk.from += load.offset * static_cast<std::int64_t>(walk.element);
    std::string key = fmt::format("loop:{}", load.offset);
    std::int64_t count = 1;
    loops::Dims strides{};
    for (const int d : order) {
      const auto i = static_cast<std::size_t>(d);
      walk.extents.push_back(kernel.extents[i]);
      walk.strides.push_back(load.strides[i]);
      key += fmt::format(",{}:{}", kernel.extents[i], load.strides[i]);
      strides[i] = count;
      count *= kernel.extents[i];
    }
    const std::size_t bytes = static_cast<std::size_t>(count) * walk.element;
    if (count == 0 || bytes > constant.bytes()) return;
    std::shared_ptr<const void> memory = options_.packed->get(
        *options_.memory, constant, constant.data(), key, bytes,
        [](const void* raw, void* to) {
          const Walk& w = *static_cast<const Walk*>(raw);
          auto* out = static_cast<std::byte*>(to);
          std::vector<std::int64_t> at(w.extents.size(), 0);
          std::int64_t offset = 0;
          for (std::size_t d = 0; d < at.size();) {
            std::memcpy(out, w.from + offset * static_cast<std::int64_t>(w.element), w.element);
            out += w.element;
            for (d = 0; d < at.size(); ++d) {
              offset += w.strides[d];
              if (++at[d] < w.extents[d]) break;
              offset -= w.strides[d] * w.extents[d];
              at[d] = 0;
            }
          }
          return true;
        },
        &walk);
    if (!memory) fail(ErrorCode::out_of_memory, "no memory for {} bytes of packed weights", bytes);
    load.offset = 0;
    load.strides = strides;
    packed = Tensor::borrow(constant.dtype(), {count}, const_cast<void*>(memory.get()), memory);
  }

  /// Decides which value is written straight into which graph output; the others are copied at the end.
  void add_outputs() {
    output_of_.assign(graph_.value_count(), -1);
    std::vector<bool> made(graph_.value_count(), false);
    for (const Item& item : items_) {
      for (std::size_t s = 0; s < item.values.size(); ++s) {
        if (item.written[s]) made[static_cast<std::size_t>(home(item.values[s]).of)] = true;
      }
    }
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const ValueId v = graph_.outputs[o];
      if (fact(v).shape.elements() == 0) continue;
      const ValueId r = root(v);
      if (home(v).of == r && made[static_cast<std::size_t>(r)] && output_of_[static_cast<std::size_t>(r)] < 0) {
        output_of_[static_cast<std::size_t>(r)] = static_cast<int>(o);
        continue;
      }
      Item item;
      item.step = std::make_unique<CopyStep>(Tensor::byte_size(fact(v).dtype, fact(v).shape));
      item.step->record.name = fmt::format("output '{}'", shown(graph_.value(v).name));
      item.step->record.backend = "plain";
      item.step->record.kernel = "copy";
      item.step->record.outputs = {fact(v).to_string()};
      item.values = {v, v};
      item.written = {false, true};
      item.copy_to = static_cast<int>(o);
      items_.push_back(std::move(item));
    }
  }

  /// Our own fault (ErrorCode::internal) where a step reads what no step before it has written.
  void check_order() const {
    std::vector<std::size_t> writer(graph_.value_count(), items_.size());  // the first, by value
    for (std::size_t i = items_.size(); i-- > 0;) {
      const Item& item = items_[i];
      for (std::size_t s = 0; s < item.values.size(); ++s) {
        if (item.written[s] && item.copy_to < 0) writer[static_cast<std::size_t>(root(item.values[s]))] = i;
      }
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      for (std::size_t s = 0; s < item.values.size(); ++s) {
        const ValueId read = root(item.values[s]);
        const std::size_t by = writer[static_cast<std::size_t>(read)];
        if (!item.written[s] && by != items_.size() && by >= i)
          fail(ErrorCode::internal, "{} reads '{}' before it is computed", item.step->record.name,
               shown(graph_.value(read).name));
      }
    }
  }

  void compile(const std::function<void()>& check) {
    std::vector<const loops::Kernel*> kernels;
    for (const Item& item : items_) {
      if (item.loop) kernels.push_back(&item.loop->kernel);
    }
    if (kernels.empty()) return;
    if (!options_.jit) {
      if (!options_.plain)
        fail(ErrorCode::unsupported,
             "{} of the steps need the backend 'jit' (or 'plain', slower), which is switched off", kernels.size());
      for (Item& item : items_) {
        if (item.loop) item.loop->finish_plain();
      }
      return;
    }
    jit::Options jit = options_.compiling();
    jit.check = check;
    const auto code = jit::Compiler::get()->compile(kernels, jit, &plan_->spent);
    for (const auto& kernel : code) {
      if (program_.code.try_emplace(kernel.get(), kernel).second) program_.code_bytes += kernel->code_bytes;
    }
    std::size_t next = 0;
    for (Item& item : items_) {
      if (!item.loop) continue;
      item.loop->finish(code[next++], options_.threads);
    }
    plan_->kernels = kernels.size();
  }

  [[nodiscard]] static bool same_walk(const loops::Kernel& k, int in, int out) {
    const loops::Access* walk = nullptr;
    for (const loops::Store& s : k.stores) {
      if (s.access.buffer == out) walk = &s.access;
    }
    if (!walk ||
        k.buffers[static_cast<std::size_t>(in)].dtype.bits() != k.buffers[static_cast<std::size_t>(out)].dtype.bits())
      return false;
    // A row value stored once must not overwrite what later inner iterations still read.
    return std::all_of(k.loads.begin(), k.loads.end(), [&](const loops::Access& l) {
      return l.buffer != in ||
             (l.offset == walk->offset && l.strides == walk->strides && l.guards.empty() && l.indirect.empty());
    });
  }

  /// Lets a kernel write over an input that dies with it.
  void reuse_dying_inputs(std::vector<int>& last) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      if (!item.loop) continue;
      for (std::size_t o = 0; o < item.values.size(); ++o) {
        if (!item.written[o]) continue;
        const ValueId out = item.values[o];
        if (output_of_[static_cast<std::size_t>(out)] >= 0 || home(out).of != out) continue;
        for (std::size_t n = 0; n < item.values.size(); ++n) {
          if (item.written[n]) continue;
          const ValueId in = home(item.values[n]).of;
          const bool dies =
              in_arena(in) && last[static_cast<std::size_t>(in)] == static_cast<int>(i) && !taken_.count({i, in});
          if (!dies ||
              Tensor::byte_size(fact(in).dtype, fact(in).shape) != Tensor::byte_size(fact(out).dtype, fact(out).shape))
            continue;
          const bool once =
              std::count_if(item.values.begin(), item.values.end(), [&](ValueId v) { return home(v).of == in; }) == 1;
          if (!once || !same_walk(item.loop->kernel, static_cast<int>(n), static_cast<int>(o))) continue;
          taken_.insert({i, in});
          alias_[static_cast<std::size_t>(out)] = in;
          last[static_cast<std::size_t>(in)] =
              std::max(last[static_cast<std::size_t>(in)], last[static_cast<std::size_t>(out)]);
          break;
        }
      }
    }
  }

  [[nodiscard]] bool in_arena(ValueId r) const {
    return output_of_[static_cast<std::size_t>(r)] < 0 && !graph_.value(r).value() && !is_input(r);
  }
  [[nodiscard]] bool is_input(ValueId v) const {
    return std::find(graph_.inputs.begin(), graph_.inputs.end(), v) != graph_.inputs.end();
  }

  void place() {
    std::vector<int> first(graph_.value_count(), -1);
    std::vector<int> last(graph_.value_count(), -1);
    const auto measure = [&] {
      std::fill(first.begin(), first.end(), -1);
      std::fill(last.begin(), last.end(), -1);
      for (std::size_t i = 0; i < items_.size(); ++i) {
        for (ValueId v : items_[i].values) {
          const auto r = static_cast<std::size_t>(home(v).of);
          if (first[r] < 0) first[r] = static_cast<int>(i);
          last[r] = static_cast<int>(i);
        }
      }
    };
    measure();
    reuse_dying_inputs(last);
    measure();
    const std::size_t margin = options_.canaries ? kCanaryBytes : 0;
    std::vector<Lifetime> lives;
    std::vector<ValueId> owners;
    for (std::size_t v = 0; v < first.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      if (first[v] < 0 || home(id).of != id || !in_arena(id)) continue;
      const std::size_t bytes = std::max<std::size_t>(Tensor::byte_size(fact(id).dtype, fact(id).shape), 1);
      lives.push_back({bytes + 2 * margin, first[v], last[v]});
      owners.push_back(id);
    }
    const MemoryPlan memory = plan_memory(lives);
    plan_->arena_bytes = memory.bytes;
    const auto largest = std::max_element(lives.begin(), lives.end(),
                                          [](const Lifetime& a, const Lifetime& b) { return a.bytes < b.bytes; });
    if (largest != lives.end()) plan_->largest = items_[static_cast<std::size_t>(largest->first)].step->record.name;
    {
      const ops::OnBehalfOf name(plan_->largest);
      options_.memory->require(plan_->arena_bytes);
    }
    plan_->writers.assign(graph_.outputs.size(), -1);
    std::vector<std::size_t> offset(graph_.value_count(), 0);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const std::size_t at = memory.offsets[i] + margin;
      offset[static_cast<std::size_t>(owners[i])] = at;
      if (margin > 0) plan_->watched.push_back({at, lives[i].bytes - 2 * margin, lives[i].first, lives[i].last});
    }
    for (Item& item : items_) {
      for (std::size_t s = 0; s < item.values.size(); ++s) {
        const Slot slot = slot_of(item, s, offset);
        item.step->slots.push_back(slot);
        if (item.written[s] && slot.where == Slot::Where::output)
          plan_->writers[static_cast<std::size_t>(slot.index)] = static_cast<int>(&item - items_.data());
      }
    }
  }

  Slot slot_of(const Item& item, std::size_t s, const std::vector<std::size_t>& offset) {
    const Part at = home(item.values[s]);
    const ValueId r = at.of;
    Slot slot;
    if (item.copy_to >= 0 && item.written[s]) {
      slot.where = Slot::Where::output;
      slot.index = item.copy_to;
    } else if (output_of_[static_cast<std::size_t>(r)] >= 0) {
      slot.where = Slot::Where::output;
      slot.index = output_of_[static_cast<std::size_t>(r)];
      slot.offset = at.offset;
    } else if (s < item.packed.size() && item.packed[s].defined()) {
      slot.where = Slot::Where::constant;
      slot.index = constant(item.packed[s], true);
    } else if (const Tensor* t = graph_.value(r).value()) {
      slot.where = Slot::Where::constant;
      slot.index = constant(*t, graph_.value(r).is_constant());
    } else if (is_input(r)) {
      slot.where = Slot::Where::input;
      slot.index =
          static_cast<std::int32_t>(std::find(graph_.inputs.begin(), graph_.inputs.end(), r) - graph_.inputs.begin());
    } else {
      slot.offset = offset[static_cast<std::size_t>(r)] + at.offset;
    }
    return slot;
  }

  /// `shared`: the memory is the graph's, not the plan's own.
  std::int32_t constant(const Tensor& t, bool shared) {
    for (std::size_t i = 0; i < plan_->constants.size(); ++i) {
      if (plan_->constants[i].data() == t.data()) return static_cast<std::int32_t>(i);
    }
    plan_->constants.push_back(t);
    if (!shared) plan_->charge += t.bytes();
    return static_cast<std::int32_t>(plan_->constants.size() - 1);
  }

  Program& program_;
  const Graph& graph_;
  const BuildOptions& options_;
  std::shared_ptr<Plan> plan_;
  std::vector<Item> items_;
  std::vector<ValueId> alias_;
  std::vector<Part> part_;
  std::vector<int> output_of_;
  std::set<std::pair<std::size_t, ValueId>> taken_;
};

}  // namespace

std::shared_ptr<const Plan> make_plan(Program& program, const BuildOptions& options,
                                      const std::function<void()>& check) {
  return PlanBuilder(program, options).finish(check);
}

std::shared_ptr<const void> PackedWeights::get(DataMemory& memory, const Tensor& constant, const void* source,
                                               const std::string& key, std::size_t bytes, Pack pack,
                                               const void* context) {
  const std::string whole = fmt::format("{}:{}", source, key);
  const std::lock_guard lock(mutex_);
  if (auto known = entries_.find(whole)) return known;
  struct Packed {
    std::shared_ptr<void> memory;
    Tensor constant;
  };
  const auto holder = std::make_shared<Packed>(Packed{memory.allocate(Use::packed_weights, bytes), constant});
  if (!pack(context, holder->memory.get())) return nullptr;
  std::shared_ptr<const void> packed(holder, holder->memory.get());
  entries_.add(whole, packed);
  return packed;
}

}  // namespace lathe::runtime
