// Tree ensembles of ai.onnx.ml: the three ways to state them become one packed form that `lathe::TreeScores` and
// `lathe::TreeClasses` walk.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "ops/ir/builder.h"
#include "ops/plain.h"
#include "ops/scores.h"

namespace lathe::ops {
namespace {

enum class Branch : std::uint8_t { leq, lt, gte, gt, eq, neq, member, leaf };
constexpr std::string_view kBranches[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                          "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
constexpr std::string_view kAggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
enum class Aggregate : std::uint8_t { average, sum, min, max };

// ---- the packed form: attributes of the internal operators ----

/// A node is six integers: branch + 16 · missing values go the true way, feature, true child, false child, and
/// the range of its members (BRANCH_MEMBER). A leaf has the range of its entries in the place of the children.
constexpr std::int64_t kFields = 6;

struct Packed {
  std::vector<std::int32_t> nodes;  // kFields each
  std::vector<double> thresholds;
  std::vector<std::int32_t> roots;
  std::vector<std::int32_t> targets;  // of leaf entries
  std::vector<double> weights;
  std::vector<double> members;
  std::vector<double> base;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(thresholds.size()); }
  void add_node(Branch branch, bool missing_true, std::int64_t feature, std::int64_t yes, std::int64_t no,
                double threshold) {
    for (std::int64_t v : {static_cast<std::int64_t>(branch) + (missing_true ? 16 : 0), feature, yes, no,
                           std::int64_t{0}, std::int64_t{0}}) {
      nodes.push_back(static_cast<std::int32_t>(v));
    }
    thresholds.push_back(threshold);
  }
  std::int32_t& field(std::int64_t node, std::int64_t f) { return nodes[static_cast<std::size_t>(node * kFields + f)]; }
};

template <class T>
Tensor vector_tensor(const std::vector<T>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

Attributes packed_attributes(const Packed& p) {
  return {{"base", vector_tensor(p.base)},       {"members", vector_tensor(p.members)},
          {"nodes", vector_tensor(p.nodes)},     {"roots", vector_tensor(p.roots)},
          {"targets", vector_tensor(p.targets)}, {"thresholds", vector_tensor(p.thresholds)},
          {"weights", vector_tensor(p.weights)}};
}

#define LATHE_PACKED_ATTRIBUTES                                                                                 \
  {"base", AttrKind::tensor}, {"members", AttrKind::tensor}, {"nodes", AttrKind::tensor, Attribute::kRequired}, \
      {"roots", AttrKind::tensor}, {"targets", AttrKind::tensor}, {"thresholds", AttrKind::tensor}, {           \
    "weights", AttrKind::tensor                                                                                 \
  }

/// Every path down from a root ends: no inner node has two parents, so a walk cannot return to where it was.
void check_acyclic(const OpView& op, const Packed& p) {
  std::vector<bool> reached(p.thresholds.size(), false);
  std::vector<std::int64_t> open(p.roots.begin(), p.roots.end());
  while (!open.empty()) {
    const std::int64_t n = open.back();
    open.pop_back();
    const auto* fields = p.nodes.data() + n * kFields;
    if ((fields[0] & 15) == static_cast<int>(Branch::leaf)) continue;
    op.require(!reached[static_cast<std::size_t>(n)], "node {} is reached in two ways: the trees are not trees", n);
    reached[static_cast<std::size_t>(n)] = true;
    open.push_back(fields[2]);
    open.push_back(fields[3]);
  }
}

// ---- the classic form: parallel lists over (tree id, node id) ----

/// A float list that may also be stated as a tensor.
std::vector<double> numbers(const OpView& op, const std::string& name) {
  const auto list = op.attr_floats(name);
  std::vector<double> values(list.begin(), list.end());
  if (const Tensor* t = op.attr_tensor(name + "_as_tensor")) {
    op.require(values.empty(), "{} and {}_as_tensor must not both be given", name, name);
    op.require(t->dtype().is_float(), "{}_as_tensor must be of floats, got {}", name, t->dtype());
    for (std::int64_t i = 0; i < t->size(); ++i) values.push_back(t->number(i));
  }
  return values;
}

template <class List>
void require_size(const OpView& op, const List& list, std::size_t count, std::string_view name) {
  op.require(list.size() == count, "{} must have {} values, got {}", name, count, list.size());
}

using NodeKey = std::pair<std::int64_t, std::int64_t>;

std::map<NodeKey, std::int64_t> number_nodes(const OpView& op) {
  const auto trees = op.attr_ints("nodes_treeids"), ids = op.attr_ints("nodes_nodeids");
  require_size(op, trees, ids.size(), "nodes_treeids");
  op.require(ids.size() < (1U << 28), "{} nodes are too many", ids.size());
  std::map<NodeKey, std::int64_t> index;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    op.require(index.emplace(NodeKey{trees[i], ids[i]}, static_cast<std::int64_t>(i)).second,
               "node {} of tree {} is stated twice", ids[i], trees[i]);
  }
  return index;
}

std::int64_t node_at(const OpView& op, const std::map<NodeKey, std::int64_t>& index, std::int64_t tree,
                     std::int64_t id) {
  const auto found = index.find({tree, id});
  op.require(found != index.end(), "tree {} has no node {}", tree, id);
  return found->second;
}

Branch branch_of(const OpView& op, const std::string& mode) {
  const auto found = std::find(std::begin(kBranches), std::end(kBranches), mode);
  op.require(found != std::end(kBranches) && *found != "BRANCH_MEMBER", "node mode '{}' is unknown", shown(mode));
  return static_cast<Branch>(found - std::begin(kBranches));
}

/// Appends the leaf entries (tree, node, target, weight) to the leaves, in the order stated.
void pack_leaves(const OpView& op, const std::map<NodeKey, std::int64_t>& index, std::string_view kind,
                 std::int64_t targets, Packed& p) {
  const std::string prefix(kind);
  const auto trees = op.attr_ints(prefix + "_treeids"), nodes = op.attr_ints(prefix + "_nodeids"),
             ids = op.attr_ints(prefix + "_ids");
  const std::vector<double> weights = numbers(op, prefix + "_weights");
  require_size(op, trees, ids.size(), prefix + "_treeids");
  require_size(op, nodes, ids.size(), prefix + "_nodeids");
  require_size(op, weights, ids.size(), prefix + "_weights");
  std::vector<std::pair<std::int64_t, std::size_t>> entries;  // (node, position)
  for (std::size_t i = 0; i < ids.size(); ++i) {
    op.require(ids[i] >= 0 && ids[i] < targets, "{}_ids must be between 0 and {}, got {}", prefix, targets - 1, ids[i]);
    entries.emplace_back(node_at(op, index, trees[i], nodes[i]), i);
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& [node, i] : entries) {
    op.require((p.field(node, 0) & 15) == static_cast<int>(Branch::leaf),
               "node {} of tree {} has a weight, but is no leaf", nodes[i], trees[i]);
    if (p.field(node, 2) == p.field(node, 3))
      p.field(node, 2) = p.field(node, 3) = static_cast<std::int32_t>(p.targets.size());
    ++p.field(node, 3);
    p.targets.push_back(static_cast<std::int32_t>(ids[i]));
    p.weights.push_back(weights[i]);
  }
}

Packed pack_classic(const OpView& op, std::string_view leaves, std::int64_t targets) {
  const std::map<NodeKey, std::int64_t> index = number_nodes(op);
  const std::size_t count = index.size();
  const auto trees = op.attr_ints("nodes_treeids"), features = op.attr_ints("nodes_featureids");
  const auto yes = op.attr_ints("nodes_truenodeids"), no = op.attr_ints("nodes_falsenodeids");
  const auto missing = op.attr_ints("nodes_missing_value_tracks_true");
  const auto modes = op.attr_strings("nodes_modes");
  const std::vector<double> values = numbers(op, "nodes_values");
  require_size(op, features, count, "nodes_featureids");
  require_size(op, yes, count, "nodes_truenodeids");
  require_size(op, no, count, "nodes_falsenodeids");
  require_size(op, modes, count, "nodes_modes");
  require_size(op, values, count, "nodes_values");
  if (!missing.empty()) require_size(op, missing, count, "nodes_missing_value_tracks_true");
  Packed p;
  std::vector<bool> child(count, false);
  for (std::size_t i = 0; i < count; ++i) {
    const Branch branch = branch_of(op, modes[i]);
    if (branch == Branch::leaf) {
      p.add_node(branch, false, 0, 0, 0, 0);
      continue;
    }
    op.require(features[i] >= 0 && features[i] < (std::int64_t{1} << 31),
               "nodes_featureids must not be negative, got {}", features[i]);
    const std::int64_t t = node_at(op, index, trees[i], yes[i]), f = node_at(op, index, trees[i], no[i]);
    child[static_cast<std::size_t>(t)] = child[static_cast<std::size_t>(f)] = true;
    p.add_node(branch, !missing.empty() && missing[i] != 0, features[i], t, f, values[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!child[i]) p.roots.push_back(static_cast<std::int32_t>(i));
  }
  pack_leaves(op, index, leaves, targets, p);
  p.base = numbers(op, "base_values");
  check_acyclic(op, p);
  return p;
}

// ---- the form of version 5: positions instead of ids, leaves apart ----

Packed pack_positions(const OpView& op) {
  const auto features = op.attr_ints("nodes_featureids");
  const auto yes = op.attr_ints("nodes_truenodeids"), no = op.attr_ints("nodes_falsenodeids");
  const auto yes_leaf = op.attr_ints("nodes_trueleafs"), no_leaf = op.attr_ints("nodes_falseleafs");
  const auto missing = op.attr_ints("nodes_missing_value_tracks_true"), leaf_targets = op.attr_ints("leaf_targetids");
  const Tensor &modes = *op.attr_tensor("nodes_modes"), &splits = *op.attr_tensor("nodes_splits"),
               &leaf_weights = *op.attr_tensor("leaf_weights");
  const Tensor* members = op.attr_tensor("membership_values");
  const std::size_t count = features.size();
  op.require(modes.dtype() == DType::u8, "nodes_modes must be u8, got {}", modes.dtype());
  for (const Tensor* t : {&splits, &leaf_weights, members}) {
    op.require(!t || t->dtype().is_float(), "splits, weights and members must be of floats, got {}",
               t ? t->dtype() : DType());
  }
  require_size(op, yes, count, "nodes_truenodeids");
  require_size(op, no, count, "nodes_falsenodeids");
  require_size(op, yes_leaf, count, "nodes_trueleafs");
  require_size(op, no_leaf, count, "nodes_falseleafs");
  if (!missing.empty()) require_size(op, missing, count, "nodes_missing_value_tracks_true");
  op.require(modes.size() == static_cast<std::int64_t>(count) && splits.size() == modes.size(),
             "nodes_modes and nodes_splits must have {} values", count);
  op.require(leaf_weights.size() == static_cast<std::int64_t>(leaf_targets.size()),
             "leaf_weights must have {} values, got {}", leaf_targets.size(), leaf_weights.size());
  op.require(count + leaf_targets.size() < (1U << 28), "{} nodes are too many", count + leaf_targets.size());
  Packed p;
  const auto child = [&](std::int64_t position, std::int64_t is_leaf) {
    const auto bound = static_cast<std::int64_t>(is_leaf != 0 ? leaf_targets.size() : count);
    op.require(position >= 0 && position < bound, "child {} is outside [0, {})", position, bound);
    return is_leaf != 0 ? position + static_cast<std::int64_t>(count) : position;
  };
  std::int64_t member = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t mode = modes.integer(at);
    op.require(mode >= 0 && mode < static_cast<std::int64_t>(Branch::leaf), "node mode {} is unknown", mode);
    op.require(features[i] >= 0 && features[i] < (std::int64_t{1} << 31),
               "nodes_featureids must not be negative, got {}", features[i]);
    p.add_node(static_cast<Branch>(mode), !missing.empty() && missing[i] != 0, features[i], child(yes[i], yes_leaf[i]),
               child(no[i], no_leaf[i]), splits.number(at));
    if (static_cast<Branch>(mode) != Branch::member) continue;
    p.field(at, 4) = static_cast<std::int32_t>(p.members.size());
    const std::int64_t end = members != nullptr ? members->size() : 0;
    for (; member < end && !std::isnan(members->number(member)); ++member) p.members.push_back(members->number(member));
    ++member;  // the NaN behind each set
    p.field(at, 5) = static_cast<std::int32_t>(p.members.size());
  }
  for (std::size_t i = 0; i < leaf_targets.size(); ++i) {
    op.require(leaf_targets[i] >= 0 && leaf_targets[i] < op.i("n_targets"),
               "leaf_targetids must be between 0 and {}, got {}", op.i("n_targets") - 1, leaf_targets[i]);
    const auto entry = static_cast<std::int64_t>(i);
    p.add_node(Branch::leaf, false, 0, entry, entry + 1, 0);
    p.targets.push_back(static_cast<std::int32_t>(leaf_targets[i]));
    p.weights.push_back(leaf_weights.number(entry));
  }
  for (std::int64_t root : op.attr_ints("tree_roots")) {
    op.require(root >= 0 && root < static_cast<std::int64_t>(count), "root {} is outside [0, {})", root, count);
    p.roots.push_back(static_cast<std::int32_t>(root));
  }
  check_acyclic(op, p);
  return p;
}

// ---- walking ----

struct Forest {
  const std::int32_t *nodes, *roots, *targets;
  const double *thresholds, *weights, *members;
  std::int64_t root_count;
  std::span<const double> base;

  explicit Forest(const OpView& op)
      : nodes(op.attr_tensor("nodes")->view<std::int32_t>().data()),
        roots(op.attr_tensor("roots")->view<std::int32_t>().data()),
        targets(op.attr_tensor("targets")->view<std::int32_t>().data()),
        thresholds(op.attr_tensor("thresholds")->view<double>().data()),
        weights(op.attr_tensor("weights")->view<double>().data()),
        members(op.attr_tensor("members")->view<double>().data()),
        root_count(op.attr_tensor("roots")->size()),
        base(op.attr_tensor("base")->view<double>()) {}

  [[nodiscard]] bool goes_true(const std::int32_t* node, double threshold, double x) const {
    if (std::isnan(x) && (node[0] & 16) != 0) return true;
    switch (static_cast<Branch>(node[0] & 15)) {
      case Branch::leq:
        return x <= threshold;
      case Branch::lt:
        return x < threshold;
      case Branch::gte:
        return x >= threshold;
      case Branch::gt:
        return x > threshold;
      case Branch::eq:
        return x == threshold;
      case Branch::neq:
        return x != threshold;
      case Branch::member:
        return std::find(members + node[4], members + node[5], x) != members + node[5];
      case Branch::leaf:
        break;
    }
    return false;
  }

  /// The leaf that a row of features ends in.
  template <class T>
  const std::int32_t* leaf(std::int32_t root, const T* row) const {
    std::int32_t n = root;
    while (true) {
      const std::int32_t* node = nodes + n * kFields;
      const auto branch = static_cast<Branch>(node[0] & 15);
      if (branch == Branch::leaf) return node;
      n = goes_true(node, thresholds[n], static_cast<double>(row[node[1]])) ? node[2] : node[3];
    }
  }
};

/// The sum (average, least, largest) of what each tree says, per target; `hit` tells which targets any leaf spoke of.
template <class T>
void score_row(const Forest& forest, Aggregate aggregate, const T* row, std::span<double> scores,
               std::pmr::vector<bool>& hit) {
  std::fill(scores.begin(), scores.end(), 0.0);
  hit.assign(scores.size(), false);
  for (std::int64_t t = 0; t < forest.root_count; ++t) {
    const std::int32_t* leaf = forest.leaf(forest.roots[t], row);
    for (std::int32_t e = leaf[2]; e < leaf[3]; ++e) {
      const auto target = static_cast<std::size_t>(forest.targets[e]);
      double& score = scores[target];
      const double weight = forest.weights[e];
      if (aggregate == Aggregate::min || aggregate == Aggregate::max) {
        score = !hit[target] ? weight : aggregate == Aggregate::min ? std::min(score, weight) : std::max(score, weight);
      } else {
        score += weight;
      }
      hit[target] = true;
    }
  }
  if (aggregate == Aggregate::average && forest.root_count > 0) {
    for (double& s : scores) s /= static_cast<double>(forest.root_count);
  }
}

/// Rows of x: [features] is one row.
Shape rows_of(const OpView& op, std::int64_t columns) {
  const Shape& x = op.in(0).shape;
  op.require(x.rank() == 1 || x.rank() == 2, "x must have 1 or 2 dims, got shape {}", x);
  return {x.rank() == 2 ? x[0] : 1, columns};
}

void check_features(const OpView& op, const Tensor& nodes) {
  const auto fields = nodes.view<std::int32_t>();
  const std::int64_t features = op.in(0).shape.back();
  for (std::size_t n = 0; n < fields.size(); n += kFields) {
    const bool leaf = (fields[n] & 15) == static_cast<int>(Branch::leaf);
    op.require(leaf || fields[n + 1] < features, "the trees read feature {}, but x has {}", fields[n + 1], features);
  }
}

/// body(forest, row pointer, row number, memory) over all rows of x, whatever its dtype.
template <class Body>
void for_each_row(KernelContext& ctx, const Body& body) {
  const Forest forest(ctx.op());
  const Tensor x = widened(ctx, ctx.in(0));
  const std::int64_t features = x.shape().back();
  const std::int64_t rows = x.shape().rank() == 2 ? x.shape()[0] : 1;
  dispatch_numeric(x.dtype(), [&](auto* type) {
    const auto* data = x.view<std::remove_pointer_t<decltype(type)>>().data();
    ctx.parallel(rows, 1 + 2048 / (forest.root_count + 1), [&](std::int64_t begin, std::int64_t end, auto* memory) {
      for (std::int64_t r = begin; r < end; ++r) body(forest, data + r * features, r, memory);
    });
  });
}

// ---- lathe::TreeScores: a score per target ----

constexpr Attribute kScoresAttributes[] = {LATHE_PACKED_ATTRIBUTES,
                                           {"aggregate", AttrKind::integer, Attribute::kRequired},
                                           {"dtype", AttrKind::integer, Attribute::kRequired},
                                           {"n_targets", AttrKind::integer, Attribute::kRequired},
                                           {"post_transform", AttrKind::integer, Attribute::kRequired}};

Facts infer_scores(const OpView& op) {
  check_features(op, *op.attr_tensor("nodes"));
  return {Fact(static_cast<DType::Code>(op.i("dtype")), rows_of(op, op.i("n_targets")))};
}

void kernel_scores(KernelContext& ctx) {
  const std::int64_t targets = ctx.op().i("n_targets");
  const auto aggregate = static_cast<Aggregate>(ctx.op().i("aggregate"));
  const auto transform = static_cast<PostTransform>(ctx.op().i("post_transform"));
  Tensor wide = ctx.temporary(DType::f64, ctx.out(0).shape());
  double* out = wide.mutable_view<double>().data();
  for_each_row(ctx, [&](const Forest& forest, const auto* row, std::int64_t r, auto* memory) {
    const std::span<double> scores(out + r * targets, static_cast<std::size_t>(targets));
    std::pmr::vector<bool> hit(memory);
    score_row(forest, aggregate, row, scores, hit);
    for (std::size_t t = 0; t < scores.size() && !forest.base.empty(); ++t)
      scores[t] += forest.base[forest.base.size() == 1 ? 0 : t];
    transform_scores(transform, scores);
  });
  assign(ctx.out(0), wide);
}

// ---- lathe::TreeClasses: a label and the scores of all classes ----

constexpr Attribute kClassesAttributes[] = {LATHE_PACKED_ATTRIBUTES,
                                            {"classlabels_int64s", AttrKind::integers},
                                            {"classlabels_strings", AttrKind::strings},
                                            {"post_transform", "NONE"}};

Facts infer_classes(const OpView& op) {
  const ClassLabels labels(op, "classlabels_int64s", "classlabels_strings");
  check_features(op, *op.attr_tensor("nodes"));
  const Shape z = rows_of(op, labels.count());
  return {Fact(labels.dtype(), {z[0]}), Fact(DType::f32, z)};
}

/// Two classes, of which only one is ever spoken of: its score decides for both.
bool single_class(const Forest& forest, std::span<const std::int32_t> targets, std::int64_t classes) {
  if (classes != 2 || targets.empty() || forest.base.size() > 1) return false;
  return std::all_of(targets.begin(), targets.end(), [&](std::int32_t t) { return t == targets[0]; });
}

/// The class of a row; its scores become the transformed ones.
std::int64_t classify(const Forest& forest, bool single, SingleScore kind, PostTransform transform,
                      std::span<double> scores, std::pmr::vector<bool>& hit) {
  if (single) {
    const std::size_t target = hit[1] ? 1 : 0;
    if (target == 0)
      return classify_single(kind, transform, scores[0] + (forest.base.empty() ? 0 : forest.base[0]), scores);
    const double score = scores[1];
    transform_scores(transform, scores);
    return score > (kind == SingleScore::probability ? 0.5 : 0.0) ? 1 : 0;
  }
  for (std::size_t c = 0; c < scores.size() && c < forest.base.size(); ++c) {
    scores[c] += forest.base[c];
    hit[c] = true;
  }
  std::size_t best = 0;
  for (std::size_t c = 1; c < scores.size(); ++c) {
    if (hit[c] && (!hit[best] || scores[c] > scores[best])) best = c;
  }
  transform_scores(transform, scores);
  return static_cast<std::int64_t>(best);
}

void kernel_classes(KernelContext& ctx) {
  const ClassLabels labels(ctx.op(), "classlabels_int64s", "classlabels_strings");
  const PostTransform transform = post_transform(ctx.op(), ctx.op().s("post_transform"));
  const auto weights = ctx.op().attr_tensor("weights")->view<double>();
  const bool positive = std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; });
  const SingleScore kind = positive ? SingleScore::probability : SingleScore::signed_score;
  const auto targets = ctx.op().attr_tensor("targets")->view<std::int32_t>();
  Tensor y = ctx.wants(0) ? ctx.out(0) : Tensor();
  float* z = ctx.wants(1) ? ctx.out<float>(1).data() : nullptr;
  for_each_row(ctx, [&](const Forest& forest, const auto* row, std::int64_t r, auto* memory) {
    std::pmr::vector<double> scores(static_cast<std::size_t>(labels.count()), memory);
    std::pmr::vector<bool> hit(memory);
    score_row(forest, Aggregate::sum, row, scores, hit);
    const std::int64_t label =
        classify(forest, single_class(forest, targets, labels.count()), kind, transform, scores, hit);
    if (y.defined()) labels.write(y, r, label);
    for (std::size_t c = 0; c < scores.size() && z != nullptr; ++c) {
      z[r * labels.count() + static_cast<std::int64_t>(c)] = static_cast<float>(scores[c]);
    }
  });
}

// ---- the operators ----

#define LATHE_CLASSIC_ATTRIBUTES                                                                   \
  {"base_values", AttrKind::numbers}, {"base_values_as_tensor", AttrKind::tensor},                 \
      {"nodes_falsenodeids", AttrKind::integers}, {"nodes_featureids", AttrKind::integers},        \
      {"nodes_hitrates", AttrKind::numbers}, {"nodes_hitrates_as_tensor", AttrKind::tensor},       \
      {"nodes_missing_value_tracks_true", AttrKind::integers}, {"nodes_modes", AttrKind::strings}, \
      {"nodes_nodeids", AttrKind::integers}, {"nodes_treeids", AttrKind::integers},                \
      {"nodes_truenodeids", AttrKind::integers}, {"nodes_values", AttrKind::numbers}, {            \
    "nodes_values_as_tensor", AttrKind::tensor                                                     \
  }
constexpr Attribute kClassifierAttributes[] = {LATHE_CLASSIC_ATTRIBUTES,
                                               {"class_ids", AttrKind::integers},
                                               {"class_nodeids", AttrKind::integers},
                                               {"class_treeids", AttrKind::integers},
                                               {"class_weights", AttrKind::numbers},
                                               {"class_weights_as_tensor", AttrKind::tensor},
                                               {"classlabels_int64s", AttrKind::integers},
                                               {"classlabels_strings", AttrKind::strings},
                                               {"post_transform", "NONE"}};
constexpr Attribute kRegressorAttributes[] = {LATHE_CLASSIC_ATTRIBUTES,
                                              {"aggregate_function", "SUM"},
                                              {"n_targets", AttrKind::integer},
                                              {"post_transform", "NONE"},
                                              {"target_ids", AttrKind::integers},
                                              {"target_nodeids", AttrKind::integers},
                                              {"target_treeids", AttrKind::integers},
                                              {"target_weights", AttrKind::numbers},
                                              {"target_weights_as_tensor", AttrKind::tensor}};
constexpr Attribute kEnsembleAttributes[] = {{"aggregate_function", 1},
                                             {"leaf_targetids", AttrKind::integers, Attribute::kRequired},
                                             {"leaf_weights", AttrKind::tensor, Attribute::kRequired},
                                             {"membership_values", AttrKind::tensor},
                                             {"n_targets", AttrKind::integer},
                                             {"nodes_falseleafs", AttrKind::integers, Attribute::kRequired},
                                             {"nodes_falsenodeids", AttrKind::integers, Attribute::kRequired},
                                             {"nodes_featureids", AttrKind::integers, Attribute::kRequired},
                                             {"nodes_hitrates", AttrKind::tensor},
                                             {"nodes_missing_value_tracks_true", AttrKind::integers},
                                             {"nodes_modes", AttrKind::tensor, Attribute::kRequired},
                                             {"nodes_splits", AttrKind::tensor, Attribute::kRequired},
                                             {"nodes_trueleafs", AttrKind::integers, Attribute::kRequired},
                                             {"nodes_truenodeids", AttrKind::integers, Attribute::kRequired},
                                             {"post_transform", 0},
                                             {"tree_roots", AttrKind::integers, Attribute::kRequired}};
#undef LATHE_CLASSIC_ATTRIBUTES
#undef LATHE_PACKED_ATTRIBUTES

void check_input(const OpView& op) {
  const DType x = op.in(0).dtype;
  op.require(x == DType::f32 || x == DType::f64 || x == DType::i64 || x == DType::i32,
             "x must be f32, f64, i32 or i64, got {}", x);
}

Facts infer_classifier(const OpView& op) {
  check_input(op);
  const ClassLabels labels(op, "classlabels_int64s", "classlabels_strings");
  const Shape z = rows_of(op, labels.count());
  return {Fact(labels.dtype(), {z[0]}), Fact(DType::f32, z)};
}

std::vector<ValueId> lower_classifier(const OpView& op, Builder& b) {
  const ClassLabels labels(op, "classlabels_int64s", "classlabels_strings");
  Attributes a = packed_attributes(pack_classic(op, "class", labels.count()));
  for (const char* name : {"classlabels_int64s", "classlabels_strings", "post_transform"}) {
    if (const AttrValue* v = op.node().attributes.find(name)) a.set(name, *v);
  }
  return b.ops("lathe::TreeClasses", {op.id(0)}, op.outputs(), std::move(a));
}

std::int64_t target_count(const OpView& op) {
  const std::int64_t n = op.has_attr("n_targets") ? op.i("n_targets") : 1;
  op.require(n >= 1 && n < (std::int64_t{1} << 31), "n_targets must be positive, got {}", n);
  return n;
}

Facts infer_regressor(const OpView& op) {
  check_input(op);
  return {Fact(DType::f32, rows_of(op, target_count(op)))};
}

std::vector<ValueId> lower_to_scores(const OpView& op, Builder& b, const Packed& packed, std::int64_t aggregate,
                                     PostTransform transform, DType dtype) {
  const std::int64_t targets = target_count(op);
  op.require(packed.base.size() <= 1 || static_cast<std::int64_t>(packed.base.size()) == targets,
             "base_values must have {} values, got {}", targets, packed.base.size());
  Attributes a = packed_attributes(packed);
  a.set("aggregate", aggregate);
  a.set("dtype", std::int64_t{dtype});
  a.set("n_targets", targets);
  a.set("post_transform", static_cast<std::int64_t>(transform));
  return {b.op("lathe::TreeScores", {op.id(0)}, std::move(a))};
}

std::vector<ValueId> lower_regressor(const OpView& op, Builder& b) {
  const std::string_view name = op.s("aggregate_function");
  const auto found = std::find(std::begin(kAggregates), std::end(kAggregates), name);
  op.require(found != std::end(kAggregates), "aggregate_function '{}' is unknown", shown(name));
  return lower_to_scores(op, b, pack_classic(op, "target", target_count(op)), found - std::begin(kAggregates),
                         post_transform(op, op.s("post_transform")), DType::f32);
}

Facts infer_ensemble(const OpView& op) {
  const DType x = op.in(0).dtype;
  op.require(x == DType::f32 || x == DType::f64 || x == DType::f16, "x must be f16, f32 or f64, got {}", x);
  return {Fact(x, rows_of(op, target_count(op)))};
}

std::vector<ValueId> lower_ensemble(const OpView& op, Builder& b) {
  const std::int64_t aggregate = op.i("aggregate_function"), transform = op.i("post_transform");
  op.require(aggregate >= 0 && aggregate <= 3, "aggregate_function must be between 0 and 3, got {}", aggregate);
  op.require(transform >= 0 && transform <= 4, "post_transform must be between 0 and 4, got {}", transform);
  return lower_to_scores(op, b, pack_positions(op), aggregate, static_cast<PostTransform>(transform), op.in(0).dtype);
}

}  // namespace

extern const OpDef op_ml_tree_ensemble_classifier;
constinit const OpDef op_ml_tree_ensemble_classifier = {.name = "TreeEnsembleClassifier",
                                                        .domain = "ai.onnx.ml",
                                                        .outputs = {1, 2},
                                                        .attributes = kClassifierAttributes,
                                                        .forms = 5,
                                                        .takes = kIndices | DType::f32 | DType::f64,
                                                        .infer = infer_classifier,
                                                        .lower = lower_classifier};

extern const OpDef op_ml_tree_ensemble_regressor;
constinit const OpDef op_ml_tree_ensemble_regressor = {.name = "TreeEnsembleRegressor",
                                                       .domain = "ai.onnx.ml",
                                                       .attributes = kRegressorAttributes,
                                                       .forms = 5,
                                                       .takes = kIndices | DType::f32 | DType::f64,
                                                       .infer = infer_regressor,
                                                       .lower = lower_regressor};

extern const OpDef op_ml_tree_ensemble;
constinit const OpDef op_ml_tree_ensemble = {.name = "TreeEnsemble",
                                             .domain = "ai.onnx.ml",
                                             .attributes = kEnsembleAttributes,
                                             .forms = {5, 5},
                                             .takes = DTypes(DType::f32) | DType::f64 | DType::f16,
                                             .infer = infer_ensemble,
                                             .lower = lower_ensemble};

extern const OpDef op_lathe_tree_scores;
constinit const OpDef op_lathe_tree_scores = {.name = "TreeScores",
                                              .domain = "lathe",
                                              .attributes = kScoresAttributes,
                                              .infer = infer_scores,
                                              .kernel = kernel_scores,
                                              .real_time = true};

extern const OpDef op_lathe_tree_classes;
constinit const OpDef op_lathe_tree_classes = {.name = "TreeClasses",
                                               .domain = "lathe",
                                               .outputs = {1, 2},
                                               .attributes = kClassesAttributes,
                                               .infer = infer_classes,
                                               .kernel = kernel_classes,
                                               .real_time = true};

}  // namespace lathe::ops
