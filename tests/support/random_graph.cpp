// Random models: every step adds a few nodes that all sets of shapes allow.
#include "tests/support/random_graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "tests/fuzz/random.h"
#include "tests/support/onnx_writer.h"

namespace lathe::tests {
namespace {

using onnx::attr;
using onnx::Bytes;
using onnx::Ints;
using onnx::Names;

constexpr std::size_t kSets = 5;
constexpr std::int64_t kMostElements = 3000;
constexpr double kMostMagnitude = 200;

using Dim = std::vector<std::int64_t>;  ///< the extent in every set of shapes

struct Value {
  std::string name;
  std::vector<Dim> dims;
  double magnitude = 1;  ///< no element is larger

  [[nodiscard]] int rank() const { return static_cast<int>(dims.size()); }
  [[nodiscard]] const Dim& dim(int d) const { return dims[static_cast<std::size_t>(d)]; }
};

Dim fixed(std::int64_t extent) { return Dim(kSets, extent); }
bool is_fixed(const Dim& d) { return std::equal(d.begin() + 1, d.end(), d.begin()); }
bool is_one(const Dim& d) { return d == fixed(1); }
bool has_zero(const Dim& d) { return std::find(d.begin(), d.end(), 0) != d.end(); }

Dim product(const Dim& a, const Dim& b) {
  Dim result = a;
  for (std::size_t k = 0; k < kSets; ++k) result[k] *= b[k];
  return result;
}

Dim elements(const std::vector<Dim>& dims) {
  return std::accumulate(dims.begin(), dims.end(), fixed(1), [](const Dim& a, const Dim& b) { return product(a, b); });
}

template <class F>
Dim each(const Dim& d, const F& f) {
  Dim result;
  for (std::int64_t extent : d) result.push_back(f(extent));
  return result;
}

std::optional<std::vector<Dim>> broadcast(std::vector<Dim> a, std::vector<Dim> b) {
  if (a.size() < b.size()) std::swap(a, b);
  b.insert(b.begin(), a.size() - b.size(), fixed(1));
  for (std::size_t d = 0; d < a.size(); ++d) {
    for (std::size_t k = 0; k < kSets; ++k) {
      if (a[d][k] == 1) a[d][k] = b[d][k];
      if (a[d][k] != b[d][k] && b[d][k] != 1) return std::nullopt;
    }
  }
  return a;
}

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15U + 1), seed_(seed) {
    constexpr int kOpsets[] = {11, 13, 18, 21};
    opset_ = kOpsets[random_.below(4)];
    zeros_ = random_.one_in(12);
    for (Dim& symbol : symbols_) {
      for (std::size_t k = 0; k < kSets; ++k) symbol.push_back(zeros_ && random_.one_in(5) ? 0 : extent());
    }
    for (std::size_t i = 1 + random_.below(3); i > 0; --i) add_input();
  }

  RandomGraph make(int steps) {
    const int wanted = std::min(steps, 3 + static_cast<int>(random_.below(12)));
    for (int made = 0, tried = 0; made < wanted && tried < 200; ++tried) made += step() ? 1 : 0;
    add_outputs();
    RandomGraph result{onnx::model({.graph = graph_, .opset = opset_}), {}, flags_};
    for (std::size_t k = 0; k < kSets; ++k) {
      Shapes shapes;
      for (const Value& v : inputs_) shapes.push_back({v.name, shape(v, k)});
      result.shapes.push_back(shapes);
    }
    return result;
  }

 private:
  // ---- drawing ----

  int below(int n) { return static_cast<int>(random_.below(static_cast<std::size_t>(n))); }
  bool one_in(std::size_t n) { return random_.one_in(n); }
  std::int64_t extent() {
    constexpr std::int64_t kExtents[] = {1, 2, 2, 3, 4, 4, 6};
    return kExtents[below(7)];
  }
  float number() { return static_cast<float>(random_.unit() * 3 - 1.5); }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[random_.below(list.size())];
  }
  /// A value, most likely one of the last; the last where steps build on each other.
  Value any() {
    if (chained_) return values_.back();
    const std::size_t back = one_in(3) ? random_.below(values_.size()) : std::min(values_.size() - 1, random_.below(2));
    return values_[values_.size() - 1 - back];
  }
  Names sides(const std::string& a, const std::string& b) { return one_in(2) ? Names{a, b} : Names{b, a}; }

  // ---- writing ----

  std::string name(const std::string& stem) { return stem + std::to_string(names_++); }
  static Shape shape(const Value& v, std::size_t set) {
    Shape s;
    for (const Dim& d : v.dims) s.push_back(d[set]);
    return s;
  }
  std::string constant(const Ints& dims, double scale = 1) {
    std::vector<float> values(
        static_cast<std::size_t>(std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>())));
    for (float& v : values) v = static_cast<float>(number() * scale);
    graph_.initializers.push_back(onnx::tensor(name("c"), dims, values));
    return "c" + std::to_string(names_ - 1);
  }
  std::string integers(const Ints& values) {
    graph_.initializers.push_back(onnx::tensor(name("i"), {static_cast<std::int64_t>(values.size())}, values));
    return "i" + std::to_string(names_ - 1);
  }
  std::string scalar(std::int64_t value) {
    graph_.initializers.push_back(onnx::tensor(name("i"), {}, Ints{value}));
    return "i" + std::to_string(names_ - 1);
  }
  std::string node(const std::string& op, const Names& inputs, const std::vector<Bytes>& attributes = {}) {
    const std::string y = name("v");
    graph_.nodes.push_back({op, inputs, {y}, attributes, "n" + y});
    return y;
  }
  bool fits(const std::vector<Dim>& dims) {
    const Dim count = elements(dims);
    return dims.size() <= 6 && std::all_of(count.begin(), count.end(),
                                           [&](std::int64_t n) { return n <= kMostElements && (zeros_ || n > 0); });
  }
  /// Adds what `y` names to the values; a Tanh behind it where it could be large.
  bool keep(const std::string& y, const std::vector<Dim>& dims, double magnitude) {
    if (one_in(4)) {
      std::vector<onnx::DimSpec> declared;
      for (const Dim& d : dims)
        declared.push_back(is_fixed(d) ? onnx::DimSpec(static_cast<int>(d[0])) : onnx::DimSpec((y + "?").c_str()));
      graph_.value_infos.push_back(onnx::value(y, DType::f32, declared));
    }
    values_.push_back({y, dims, magnitude});
    if (magnitude > kMostMagnitude) values_.push_back({node("Tanh", {y}), dims, 1});
    return true;
  }
  bool add(const std::string& op, const Names& inputs, const std::vector<Dim>& dims, double magnitude,
           const std::vector<Bytes>& attributes = {}) {
    return fits(dims) && keep(node(op, inputs, attributes), dims, magnitude);
  }
  /// A node whose axes became an input at some opset.
  std::string with_axes(const std::string& op, const std::string& x, const Ints& axes, int since,
                        std::vector<Bytes> attributes = {}) {
    if (opset_ >= since) return node(op, {x, integers(axes)}, attributes);
    attributes.push_back(attr("axes", axes));
    return node(op, {x}, attributes);
  }

  void add_input() {
    Value v{name("x"), {}, 1};
    std::vector<onnx::DimSpec> declared;
    const int rank = one_in(8) ? below(2) : 2 + below(3);
    for (int d = 0; d < rank; ++d) {
      const int symbol = below(6);
      const bool inner = d > 0 && (d == 1 || d == rank - 1);  // what weights ask for
      if (symbol < 3 && !(inner && one_in(2))) {
        v.dims.push_back(symbols_[symbol]);
        declared.emplace_back(("s" + std::to_string(symbol)).c_str());
      } else {
        const std::int64_t e = extent();
        v.dims.push_back(fixed(e));
        declared.emplace_back(static_cast<int>(e));
      }
    }
    graph_.inputs.push_back(one_in(5) ? onnx::value(v.name, DType::f32) : onnx::value(v.name, DType::f32, declared));
    inputs_.push_back(v);
    values_.push_back(v);
  }

  void add_outputs() {
    fuzz::Random random(seed_);
    std::vector<std::string> read;
    for (const onnx::NodeSpec& n : graph_.nodes) read.insert(read.end(), n.inputs.begin(), n.inputs.end());
    std::vector<Bytes> outputs;
    for (std::size_t i = inputs_.size(); i < values_.size(); ++i) {
      const bool is_read = std::find(read.begin(), read.end(), values_[i].name) != read.end();
      if (!is_read || random.one_in(8)) outputs.push_back(onnx::value(values_[i].name, DType::f32));
    }
    if (random.one_in(2)) std::reverse(outputs.begin(), outputs.end());
    graph_.outputs = outputs;
  }

  // ---- shape arithmetic ----

  /// i64[1]: the extent of dim `d` of `v`.
  std::string extent_of(const Value& v, int d) {
    if (opset_ >= 15 && one_in(3)) return node("Shape", {v.name}, {attr("start", d), attr("end", d + 1)});
    const std::string s = node("Shape", {v.name});
    switch (below(3)) {
      case 0:
        return node("Slice", {s, integers({d}), integers({d + 1})});
      case 1:
        return node("Gather", {s, integers({one_in(2) ? d : d - v.rank()})}, {attr("axis", 0)});
      default:
        return with_axes("Unsqueeze", node("Gather", {s, scalar(d)}, {attr("axis", 0)}), {0}, 13);
    }
  }
  /// i64[1] with these extents, computed; nothing where there is no way.
  std::optional<std::string> computed(const Value& x, const Dim& d) {
    for (int tries = 0; tries < 4; ++tries) {
      const Value v = tries < 3 ? any() : x;
      for (int i = 0; i < v.rank(); ++i) {
        if (v.dim(i) == d && !one_in(4)) return extent_of(v, i);
      }
    }
    for (int i = 0; i < x.rank(); ++i) {
      if (x.dim(i) == d) return extent_of(x, i);
      for (std::int64_t n : {2, 3, 4, 6}) {
        if (product(d, fixed(n)) == x.dim(i)) return node("Div", {extent_of(x, i), integers({n})});
      }
      Dim merged = x.dim(i);
      std::string text;
      for (int j = i + 1; j < x.rank(); ++j) {
        merged = product(merged, x.dim(j));
        if (merged != d) continue;
        text = extent_of(x, i);
        for (int k = i + 1; k <= j; ++k) text = node("Mul", {text, extent_of(x, k)});
        return text;
      }
    }
    if (is_fixed(d)) return integers({d[0]});
    return std::nullopt;
  }
  /// The target that makes `dims` of `x`, in one of the ways there are; nothing where none is found.
  std::optional<std::string> target(const Value& x, const std::vector<Dim>& dims, bool& allow_zero) {
    for (const Value& v : values_) {
      if (v.dims == dims && !dims.empty() && one_in(3)) {
        allow_zero = has_zero(elements(dims));
        return node("Shape", {v.name});
      }
    }
    const bool empty = has_zero(elements(x.dims));
    allow_zero = empty;
    if (empty && opset_ < 14) return std::nullopt;
    bool has_rest = empty;
    bool copies = false;
    Names pieces;
    Ints numbers;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      std::vector<std::int64_t> choices;
      if (is_fixed(dims[i])) choices.insert(choices.end(), 2, dims[i][0]);
      if (!empty && i < x.dims.size() && x.dims[i] == dims[i]) choices.insert(choices.end(), 2, 0);
      if (!has_rest) choices.push_back(-1);
      std::optional<std::string> piece;
      if (choices.empty() || one_in(3)) piece = computed(x, dims[i]);
      if (!piece && choices.empty()) return std::nullopt;
      const std::int64_t n = piece ? 1 : of(choices);
      has_rest = has_rest || n == -1;
      copies = copies || n == 0;
      numbers.push_back(n);
      pieces.push_back(piece.value_or(""));
    }
    allow_zero = allow_zero || (!copies && opset_ >= 14 && one_in(8));
    const auto is_number = [](const std::string& piece) { return piece.empty(); };
    if (std::all_of(pieces.begin(), pieces.end(), is_number)) return integers(numbers);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].empty()) pieces[i] = integers({numbers[i]});
    }
    return pieces.size() == 1 ? pieces[0] : node("Concat", pieces, {attr("axis", 0)});
  }
  bool reshape(const Value& x, const std::vector<Dim>& dims) {
    if (!fits(dims)) return false;
    bool allow_zero = false;
    const auto to = target(x, dims, allow_zero);
    if (!to) return false;
    std::vector<Bytes> attributes;
    if (allow_zero) attributes.push_back(attr("allowzero", 1));
    if (allow_zero && opset_ < 14) return false;
    return keep(node("Reshape", {x.name, *to}, attributes), dims, x.magnitude);
  }

  // ---- steps ----

  bool step() {
    using Step = bool (Maker::*)();
    constexpr Step kSteps[] = {&Maker::unary,
                               &Maker::with_constant,
                               &Maker::with_constant,
                               &Maker::with_constant,
                               &Maker::binary,
                               &Maker::transpose,
                               &Maker::transpose,
                               &Maker::squeeze,
                               &Maker::unsqueeze,
                               &Maker::flatten,
                               &Maker::slice,
                               &Maker::expand,
                               &Maker::split,
                               &Maker::concat,
                               &Maker::any_reshape,
                               &Maker::any_reshape,
                               &Maker::any_reshape,
                               &Maker::blocks,
                               &Maker::blocks,
                               &Maker::heads,
                               &Maker::heads,
                               &Maker::blocks_by_chance,
                               &Maker::blocks_by_chance,
                               &Maker::scaled_convolution,
                               &Maker::scaled_convolution,
                               &Maker::matmul,
                               &Maker::products,
                               &Maker::convolution,
                               &Maker::transposed_convolution,
                               &Maker::normalization,
                               &Maker::pool,
                               &Maker::reduce,
                               &Maker::softmax,
                               &Maker::branch,
                               &Maker::gather,
                               &Maker::pad,
                               &Maker::scale};
    return (this->*kSteps[random_.below(std::size(kSteps))])();
  }

  bool unary() {
    constexpr const char* kOps[] = {"Relu", "Tanh", "Neg", "Abs", "Sigmoid", "Identity"};
    const Value x = any();
    return add(kOps[below(6)], {x.name}, x.dims, std::max(1.0, x.magnitude));
  }

  bool scale() {
    const Value x = any();
    const int ones = one_in(2) ? 0 : below(3);
    std::vector<Dim> dims = x.dims;
    if (ones > x.rank()) dims.insert(dims.begin(), static_cast<std::size_t>(ones - x.rank()), fixed(1));
    if (!fits(dims)) return false;
    return add("Mul", sides(x.name, constant(Ints(static_cast<std::size_t>(ones), 1))), dims, 1.5 * x.magnitude);
  }

  bool shift() { return with_constant("Add"); }
  bool with_constant() {
    constexpr const char* kOps[] = {"Add", "Add", "Sub", "Mul", "Mul"};
    return with_constant(kOps[below(5)]);
  }
  bool with_constant(const std::string& op) {
    const Value x = any();
    std::vector<Dim> dims;
    for (const Dim& d : x.dims) dims.push_back(is_fixed(d) && !one_in(3) ? d : fixed(1));
    if (one_in(2) && !dims.empty()) {  // one dim
      const std::size_t kept = random_.below(dims.size());
      for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = d == kept ? dims[d] : fixed(1);
    }
    while (!dims.empty() && is_one(dims[0]) && !one_in(3)) dims.erase(dims.begin());
    if (one_in(6)) dims.insert(dims.begin(), fixed(one_in(2) ? 1 : 2));
    for (std::size_t d = 0; d < dims.size() && one_in(6); ++d) {
      if (is_one(dims[d])) dims[d] = fixed(extent());
    }
    const auto result = broadcast(x.dims, dims);
    if (!result || !fits(*result)) return false;
    Ints extents;
    for (const Dim& d : dims) extents.push_back(d[0]);
    const double magnitude = op == "Mul" ? x.magnitude * 1.5 : x.magnitude + 1.5;
    return add(op, sides(x.name, constant(extents)), *result, magnitude);
  }

  bool binary() {
    const Value a = any();
    const Value b = one_in(4) ? a : of(values_);
    const auto dims = broadcast(a.dims, b.dims);
    if (!dims) return false;
    if (one_in(3)) return add("Mul", {a.name, b.name}, *dims, a.magnitude * b.magnitude);
    return add(one_in(3) ? "Sub" : "Add", {a.name, b.name}, *dims, a.magnitude + b.magnitude);
  }

  Ints permutation(int rank) {
    Ints perm(static_cast<std::size_t>(rank));
    std::iota(perm.begin(), perm.end(), 0);
    for (int i = rank - 1; i > 0; --i)
      std::swap(perm[static_cast<std::size_t>(i)], perm[random_.below(static_cast<std::size_t>(i) + 1)]);
    return perm;
  }
  bool transpose(const Value& x, Ints perm) {
    std::vector<Bytes> attributes = {attr("perm", perm)};
    if (one_in(5)) {
      std::iota(perm.rbegin(), perm.rend(), 0);
      attributes.clear();
    }
    std::vector<Dim> dims;
    for (std::int64_t axis : perm) dims.push_back(x.dims[static_cast<std::size_t>(axis)]);
    return add("Transpose", {x.name}, dims, x.magnitude, attributes);
  }
  bool transpose() {
    const Value x = any();
    return x.rank() > 1 && transpose(x, permutation(x.rank()));
  }

  bool squeeze() {
    const Value x = any();
    Ints axes;
    std::vector<Dim> dims;
    for (int d = 0; d < x.rank(); ++d) {
      const bool drop = is_one(x.dim(d)) && !one_in(3);
      if (drop) {
        axes.push_back(one_in(2) ? d - x.rank() : d);
      } else {
        dims.push_back(x.dim(d));
      }
    }
    return !axes.empty() && keep(with_axes("Squeeze", x.name, axes, 13), dims, x.magnitude);
  }

  bool unsqueeze() {
    const Value x = any();
    const int count = 1 + below(2);
    std::vector<Dim> dims = x.dims;
    Ints axes;
    for (int i = 0; i < count; ++i) {  // ascending, so that each names its place in the result
      const int from = axes.empty() ? 0 : static_cast<int>(axes.back()) + 1;
      const int at = from + below(static_cast<int>(dims.size()) - from + 1);
      dims.insert(dims.begin() + at, fixed(1));
      axes.push_back(at);
    }
    return fits(dims) && keep(with_axes("Unsqueeze", x.name, axes, 13), dims, x.magnitude);
  }

  bool flatten() {
    const Value x = any();
    const int axis = below(x.rank() + 1);
    const std::vector<Dim> dims = {elements({x.dims.begin(), x.dims.begin() + axis}),
                                   elements({x.dims.begin() + axis, x.dims.end()})};
    return add("Flatten", {x.name}, dims, x.magnitude, {attr("axis", axis)});
  }

  bool slice() {
    const Value x = any();
    if (x.rank() == 0) return false;
    const int d = below(x.rank());
    const std::int64_t step = one_in(2) ? 1 : one_in(2) ? 2 : one_in(2) ? -1 : -2;
    std::int64_t start = below(3) - (one_in(3) ? 2 : 0);
    std::int64_t end = one_in(3) ? INT64_MAX : below(4) - (one_in(2) ? 4 : 0);
    if (step < 0) {
      start = one_in(2) ? -1 : below(4);
      end = one_in(2) ? INT64_MIN : 0;
    }
    std::vector<Dim> dims = x.dims;
    dims[static_cast<std::size_t>(d)] = each(x.dim(d), [&](std::int64_t n) {
      const std::int64_t low = step > 0 ? 0 : -1;
      const std::int64_t high = step > 0 ? n : n - 1;
      const std::int64_t from = std::clamp(start < 0 ? start + n : start, std::min(low + (step < 0), high), high);
      const std::int64_t to = std::clamp(end < 0 && end != INT64_MIN ? end + n : end, low, std::max(low, high));
      const std::int64_t distance = step > 0 ? to - from : from - to;
      return n == 0 || distance <= 0 ? 0 : (distance - 1) / std::abs(step) + 1;
    });
    if (!fits(dims)) return false;
    return add("Slice",
               {x.name, integers({start}), integers({end}), integers({one_in(2) ? d : d - x.rank()}), integers({step})},
               dims, x.magnitude);
  }

  bool expand() {
    const Value x = any();
    if (one_in(2)) {
      const Value u = of(values_);
      const auto dims = broadcast(x.dims, u.dims);
      return dims && fits(*dims) && u.rank() > 0 &&
             add("Expand", {x.name, node("Shape", {u.name})}, *dims, x.magnitude);
    }
    std::vector<Dim> to;
    for (const Dim& d : x.dims) to.push_back(is_one(d) ? fixed(extent()) : is_fixed(d) && one_in(2) ? d : fixed(1));
    if (one_in(3)) to.insert(to.begin(), fixed(extent()));
    const auto dims = broadcast(x.dims, to);
    if (!dims || !fits(*dims) || to.empty()) return false;
    Ints extents;
    for (const Dim& d : to) extents.push_back(d[0]);
    return add("Expand", {x.name, integers(extents)}, *dims, x.magnitude);
  }

  bool split() {
    const Value x = any();
    if (x.rank() == 0) return false;
    const int d = below(x.rank());
    const Dim& whole = x.dim(d);
    const bool even = std::all_of(whole.begin(), whole.end(), [](std::int64_t n) { return n > 0 && n % 2 == 0; });
    std::vector<Bytes> attributes = {attr("axis", d)};
    Names inputs = {x.name};
    Dim first;
    if (is_fixed(whole) && whole[0] >= 2) {
      const std::int64_t part = 1 + below(static_cast<int>(whole[0]) - 1);
      first = fixed(part);
      if (opset_ >= 13) {
        inputs.push_back(integers({part, whole[0] - part}));
      } else {
        attributes.push_back(attr("split", Ints{part, whole[0] - part}));
      }
    } else if (even) {
      first = each(whole, [](std::int64_t n) { return n / 2; });
      if (opset_ >= 18) attributes.push_back(attr("num_outputs", 2));
    } else {
      return false;
    }
    Value a{name("v"), x.dims, x.magnitude};
    Value b{name("v"), x.dims, x.magnitude};
    for (std::size_t k = 0; k < kSets; ++k) {
      a.dims[static_cast<std::size_t>(d)][k] = first[k];
      b.dims[static_cast<std::size_t>(d)][k] = whole[k] - first[k];
    }
    graph_.nodes.push_back({"Split", inputs, {a.name, b.name}, attributes, "n" + a.name});
    values_.push_back(a);
    values_.push_back(b);
    return true;
  }

  bool concat() {
    const Value a = any();
    if (a.rank() == 0) return false;
    const auto d = random_.below(a.dims.size());
    Names inputs = {a.name};
    std::vector<Dim> dims = a.dims;
    double magnitude = a.magnitude;
    for (int tries = 0; tries < 12 && inputs.size() < 3; ++tries) {
      const Value b = tries == 11 && inputs.size() == 1 ? a : of(values_);
      std::vector<Dim> same = b.dims;
      if (same.size() <= d) continue;
      same[d] = a.dims[d];
      if (same != a.dims) continue;
      inputs.push_back(b.name);
      for (std::size_t k = 0; k < kSets; ++k) dims[d][k] += b.dims[d][k];
      magnitude = std::max(magnitude, b.magnitude);
    }
    return add("Concat", inputs, dims, magnitude, {attr("axis", static_cast<int>(d))});
  }

  bool any_reshape() {
    const Value x = any();
    std::vector<Dim> dims = x.dims;
    switch (below(4)) {
      case 0: {  // the shape of another value
        std::vector<std::vector<Dim>> others;
        for (const Value& v : values_) {
          if (v.dims != x.dims && elements(v.dims) == elements(x.dims)) others.push_back(v.dims);
        }
        return !others.empty() && reshape(x, of(others));
      }
      case 1: {  // some extent and the rest
        const std::int64_t n = extent();
        const Dim count = elements(x.dims);
        if (std::any_of(count.begin(), count.end(), [&](std::int64_t c) { return c % n != 0; })) return false;
        const Dim rest = each(count, [&](std::int64_t c) { return c / n; });
        return reshape(x, one_in(2) ? std::vector<Dim>{fixed(n), rest} : std::vector<Dim>{rest, fixed(n)});
      }
      default:
        break;
    }
    for (int changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t d = dims.empty() ? 0 : random_.below(dims.size());
      switch (below(4)) {
        case 0:
          dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(random_.below(dims.size() + 1)), fixed(1));
          break;
        case 1: {
          const std::int64_t n = 2 + below(2);
          if (dims.empty() || std::any_of(dims[d].begin(), dims[d].end(), [&](std::int64_t e) { return e % n != 0; }))
            break;
          const Dim rest = each(dims[d], [&](std::int64_t e) { return e / n; });
          dims[d] = one_in(2) ? rest : fixed(n);
          dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(d) + 1, dims[d] == rest ? fixed(n) : rest);
          break;
        }
        default:
          if (d + 1 >= dims.size()) break;
          dims[d] = product(dims[d], dims[d + 1]);
          dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
      }
    }
    return reshape(x, dims);
  }

  /// Merges neighbours, moves what comes of them and splits it again.
  bool blocks() {
    const Value x = any();
    if (x.rank() < 2) return false;
    std::vector<std::vector<Dim>> parts;
    for (const Dim& d : x.dims) {
      if (parts.empty() || one_in(2)) parts.emplace_back();
      parts.back().push_back(d);
    }
    std::vector<Dim> merged;
    for (const auto& part : parts) merged.push_back(elements(part));
    if (!reshape(x, merged)) return false;
    const Ints perm = permutation(static_cast<int>(parts.size()));
    if (!transpose(values_.back(), perm)) return true;
    std::vector<Dim> split;
    for (std::int64_t axis : perm) {
      const auto& part = parts[static_cast<std::size_t>(axis)];
      split.insert(split.end(), part.begin(), part.end());
    }
    if (one_in(6) && split.size() > 1) std::swap(split[0], split[1]);
    if (elements(split) == elements(values_.back().dims)) reshape(values_.back(), split);
    return true;
  }

  /// The same in numbers that fit one set of shapes, and others by chance.
  bool blocks_by_chance() {
    const Value x = any();
    if (x.rank() < 2) return false;
    const std::size_t set = random_.below(kSets);
    std::vector<Ints> parts;
    for (std::int64_t n : shape(x, set)) {
      if (parts.empty() || one_in(2)) parts.emplace_back();
      parts.back().push_back(n);
    }
    Ints merged;
    for (const Ints& part : parts)
      merged.push_back(std::accumulate(part.begin(), part.end(), std::int64_t{1}, std::multiplies<>()));
    const Ints perm = permutation(static_cast<int>(parts.size()));
    Ints split;
    for (std::int64_t axis : perm) {
      const Ints& part = parts[static_cast<std::size_t>(axis)];
      split.insert(split.end(), part.begin(), part.end());
    }
    if (!reshape_to_numbers(x, merged)) return false;
    if (transpose(values_.back(), perm)) reshape_to_numbers(values_.back(), split);
    return true;
  }

  bool reshape_to_numbers(const Value& x, Ints numbers) {
    const Dim count = elements(x.dims);
    if (numbers.empty() || has_zero(count)) return false;
    const std::size_t rest = random_.below(numbers.size());
    numbers[rest] = 1;
    const std::int64_t others = std::accumulate(numbers.begin(), numbers.end(), std::int64_t{1}, std::multiplies<>());
    if (others == 0 || std::any_of(count.begin(), count.end(), [&](std::int64_t n) { return n % others != 0; }))
      return false;
    std::vector<Dim> dims;
    for (std::int64_t n : numbers) dims.push_back(fixed(n));
    dims[rest] = each(count, [&](std::int64_t n) { return n / others; });
    numbers[rest] = -1;
    return add("Reshape", {x.name, integers(numbers)}, dims, x.magnitude);
  }

  /// A projection, split to heads, moved and scaled.
  bool heads() {
    if (!matmul()) return false;
    chained_ = true;
    if (!one_in(3)) shift();
    const Value x = any();
    if (x.rank() >= 2 && is_fixed(x.dims.back())) {
      const std::int64_t n = x.dims.back()[0];
      std::vector<Dim> dims = x.dims;
      dims.back() = fixed(n % 2 == 0 ? 2 : 1);
      dims.push_back(fixed(n % 2 == 0 ? n / 2 : n));
      reshape(x, dims);
    }
    for (int i = below(4); i > 0; --i) {
      if (one_in(5)) {
        shift();
      } else {
        view();
      }
    }
    scale();
    chained_ = false;
    return true;
  }

  /// A convolution between scales and shifts.
  bool scaled_convolution() {
    const std::size_t before = values_.size();
    if (one_in(2)) per_channel(any());
    chained_ = values_.size() > before;
    if (convolution(one_in(3))) {
      chained_ = true;
      for (int i = 1 + below(3); i > 0; --i) {
        if (one_in(4)) {
          view();
        } else if (one_in(4)) {
          scale();
        } else if (one_in(3)) {
          normalization();
        } else {
          per_channel(any());
        }
      }
    }
    chained_ = false;
    return values_.size() > before;
  }

  bool per_channel(const Value& x) {
    if (x.rank() < 2 || !is_fixed(x.dim(1))) return false;
    Ints extents(static_cast<std::size_t>(x.rank() - 1 + below(2)), 1);
    extents[extents.size() - static_cast<std::size_t>(x.rank()) + 1] = x.dim(1)[0];
    const Names both = sides(x.name, constant(extents));
    return one_in(3) ? add("Add", both, x.dims, x.magnitude + 1.5) : add("Mul", both, x.dims, x.magnitude * 1.5);
  }

  bool view() {
    using Step = bool (Maker::*)();
    constexpr Step kSteps[] = {&Maker::transpose, &Maker::transpose, &Maker::squeeze,     &Maker::unsqueeze,
                               &Maker::slice,     &Maker::expand,    &Maker::any_reshape, &Maker::blocks};
    return (this->*kSteps[random_.below(std::size(kSteps))])();
  }

  std::string weight(const Ints& dims, std::int64_t terms) {
    for (const auto& [given, extents] : weights_) {
      if (extents == dims && one_in(3)) return given;
    }
    weights_.emplace_back(constant(dims, 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(terms, 1)))), dims);
    return weights_.back().first;
  }

  bool matmul() {
    const Value x = any();
    if (x.rank() == 0 || !is_fixed(x.dims.back()) || x.dims.back()[0] == 0) return false;
    const std::int64_t k = x.dims.back()[0];
    std::vector<Dim> dims = x.dims;
    const double magnitude = x.magnitude * 1.5 * std::sqrt(static_cast<double>(k));
    if (one_in(10)) {
      dims.pop_back();
      return fits(dims) && add("MatMul", {x.name, weight({k}, k)}, dims, magnitude);
    }
    const std::int64_t n = 2 * extent();
    dims.back() = fixed(n);
    return fits(dims) && add("MatMul", {x.name, weight({k, n}, k)}, dims, magnitude);
  }

  bool products() {
    const Value a = any();
    if (a.rank() < 2) return false;
    Value b = of(values_);
    if (one_in(2)) {
      Ints perm(a.dims.size());
      std::iota(perm.begin(), perm.end(), 0);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      b = a;
      b.name = node("Transpose", {a.name}, {attr("perm", perm)});
      std::swap(b.dims[b.dims.size() - 1], b.dims[b.dims.size() - 2]);
    }
    if (b.rank() < 2 || b.dims[b.dims.size() - 2] != a.dims.back()) return false;
    auto dims = broadcast({a.dims.begin(), a.dims.end() - 2}, {b.dims.begin(), b.dims.end() - 2});
    if (!dims) return false;
    dims->push_back(a.dims[a.dims.size() - 2]);
    dims->push_back(b.dims.back());
    const auto k = *std::max_element(a.dims.back().begin(), a.dims.back().end());
    return add("MatMul", {a.name, b.name}, *dims, a.magnitude * b.magnitude * static_cast<double>(k) + 1);
  }

  /// Windows over the dims behind the second: what they make, the node's attributes, their extents.
  struct Windows {
    std::vector<Dim> dims;
    std::vector<Bytes> attributes;
    Ints kernel;
  };
  std::optional<Windows> windows(const Value& x, bool transposed, bool padded = true) {
    Windows w;
    Ints begin, end, strides, dilations;
    for (int d = 2; d < x.rank(); ++d) {
      w.kernel.push_back(1 + below(3));
      begin.push_back(padded && one_in(2) ? std::min<std::int64_t>(1, w.kernel.back() - 1) : 0);
      end.push_back(padded && one_in(2) ? std::min<std::int64_t>(1, w.kernel.back() - 1) : 0);
      strides.push_back(1 + (one_in(4) ? 1 : 0));
      dilations.push_back(1 + (one_in(6) && padded ? 1 : 0));
      const std::int64_t reach = dilations.back() * (w.kernel.back() - 1) + 1;
      const std::int64_t pads = begin.back() + end.back();
      w.dims.push_back(each(x.dim(d), [&](std::int64_t n) {
        if (transposed) return n == 0 ? 0 : strides.back() * (n - 1) + reach - pads;
        return n + pads < reach ? 0 : (n + pads - reach) / strides.back() + 1;
      }));
      for (std::int64_t n : w.dims.back()) {
        if (n < 1) return std::nullopt;
      }
      if (has_zero(x.dim(d))) return std::nullopt;
    }
    Ints pads = begin;
    pads.insert(pads.end(), end.begin(), end.end());
    w.attributes = {attr("kernel_shape", w.kernel), attr("pads", pads), attr("strides", strides)};
    if (padded) w.attributes.push_back(attr("dilations", dilations));
    return w;
  }

  bool convolution() { return convolution(false); }
  bool transposed_convolution() { return convolution(true); }
  bool convolution(bool transposed) {
    const Value x = any();
    if (x.rank() < 3 || x.rank() > 4 || !is_fixed(x.dim(1)) || x.dim(1)[0] == 0) return false;
    const std::int64_t channels = x.dim(1)[0];
    const std::int64_t group = one_in(4) ? channels : channels % 2 == 0 && one_in(4) ? 2 : 1;
    const std::int64_t out = group * (1 + below(group == 1 ? 5 : 2));
    auto w = windows(x, transposed);
    if (!w) return false;
    Ints extents = transposed ? Ints{channels, out / group} : Ints{out, channels / group};
    extents.insert(extents.end(), w->kernel.begin(), w->kernel.end());
    const std::int64_t terms =
        std::accumulate(w->kernel.begin(), w->kernel.end(), channels / group, std::multiplies<>());
    std::vector<Dim> dims = {x.dim(0), fixed(out)};
    dims.insert(dims.end(), w->dims.begin(), w->dims.end());
    if (!fits(dims)) return false;
    w->attributes.push_back(attr("group", static_cast<int>(group)));
    Names inputs = {x.name, weight(extents, terms)};
    if (one_in(2)) inputs.push_back(constant({out}));
    return add(transposed ? "ConvTranspose" : "Conv", inputs, dims,
               x.magnitude * 1.5 * std::sqrt(static_cast<double>(terms)) + 1.5, w->attributes);
  }

  bool normalization() {
    const Value x = any();
    if (x.rank() < 2 || !is_fixed(x.dim(1)) || x.dim(1)[0] == 0) return false;
    const std::int64_t c = x.dim(1)[0];
    const std::string variance = name("c");
    std::vector<float> values(static_cast<std::size_t>(c));
    for (float& v : values) v = 0.5F + std::abs(number());
    graph_.initializers.push_back(onnx::tensor(variance, {c}, values));
    return add("BatchNormalization", {x.name, constant({c}), constant({c}), constant({c}), variance}, x.dims,
               3 * (x.magnitude + 1.5) + 1.5);
  }

  bool pool() {
    const Value x = any();
    if (x.rank() < 3 || x.rank() > 4) return false;
    const bool most = one_in(2);
    const auto w = windows(x, false, most);
    if (!w) return false;
    std::vector<Dim> dims = {x.dim(0), x.dim(1)};
    dims.insert(dims.end(), w->dims.begin(), w->dims.end());
    return add(most ? "MaxPool" : "AveragePool", {x.name}, dims, x.magnitude, w->attributes);
  }

  bool reduce() {
    constexpr const char* kOps[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1"};
    const Value x = any();
    if (has_zero(elements(x.dims)) || x.rank() == 0) return false;
    const int op = below(5);
    const int keep_dims = below(2);
    Ints axes;
    std::vector<Dim> dims;
    double terms = 1;
    for (int d = 0; d < x.rank(); ++d) {
      if (!one_in(2)) {
        dims.push_back(x.dim(d));
        continue;
      }
      axes.push_back(one_in(2) ? d : d - x.rank());
      terms *= static_cast<double>(*std::max_element(x.dim(d).begin(), x.dim(d).end()));
      if (keep_dims != 0) dims.push_back(fixed(1));
    }
    if (axes.empty()) return false;
    return keep(with_axes(kOps[op], x.name, axes, op == 0 ? 13 : 18, {attr("keepdims", keep_dims)}), dims,
                x.magnitude * (op == 0 || op == 4 ? terms : 1));
  }

  bool softmax() {
    const Value x = any();
    return x.rank() > 0 && !has_zero(elements(x.dims)) &&
           add("Softmax", {x.name}, x.dims, 1, {attr("axis", below(x.rank()))});
  }

  bool gather() {
    const Value x = any();
    if (x.rank() == 0) return false;
    const auto d = random_.below(x.dims.size());
    if (has_zero(x.dims[d])) return false;
    std::vector<Dim> dims = x.dims;
    const auto axis = attr("axis", static_cast<int>(d));
    if (one_in(2)) {
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
      return add("Gather", {x.name, scalar(-below(2))}, dims, x.magnitude, {axis});
    }
    dims[d] = fixed(3);
    return fits(dims) && add("Gather", {x.name, integers({0, -1, 0})}, dims, x.magnitude, {axis});
  }

  bool pad() {
    const Value x = any();
    if (x.rank() == 0) return false;
    Ints pads;
    std::vector<Dim> dims = x.dims;
    for (int i = 0; i < 2 * x.rank(); ++i) {
      pads.push_back(one_in(3) ? 1 : 0);
      Dim& d = dims[static_cast<std::size_t>(i % x.rank())];
      d = each(d, [&](std::int64_t n) { return n + pads.back(); });
    }
    return fits(dims) && add("Pad", {x.name, integers(pads)}, dims, x.magnitude);
  }

  /// Two branches that read the value from outside.
  bool branch() {
    const Value x = any();
    if (flags_.empty() || one_in(2)) {
      flags_.push_back(name("flag"));
      graph_.inputs.push_back(onnx::value(flags_.back(), DType::boolean, {}));
    }
    const std::string c = constant({});
    const std::string stem = name("b");
    const auto body = [&](const onnx::NodeSpec& first) {
      return onnx::graph({.nodes = {first, {"Mul", {stem + "a", c}, {stem}}},
                          .outputs = {onnx::value(stem, DType::f32)},
                          .name = stem});
    };
    const onnx::NodeSpec other = one_in(2) ? onnx::NodeSpec{"Neg", {x.name}, {stem + "a"}}
                                           : onnx::NodeSpec{"Add", {x.name, of(inputs_).name}, {stem + "a"}};
    const bool adds = other.op == "Add";
    if (adds && broadcast(x.dims, value(other.inputs[1]).dims) != std::optional(x.dims)) return false;
    return add("If", {flags_.back()}, x.dims, 1.5 * (x.magnitude + 1),
               {onnx::attr_graph("then_branch", body(other)),
                onnx::attr_graph("else_branch", body({"Identity", {x.name}, {stem + "a"}}))});
  }
  const Value& value(const std::string& wanted) {
    return *std::find_if(values_.begin(), values_.end(), [&](const Value& v) { return v.name == wanted; });
  }

  fuzz::Random random_;
  std::uint64_t seed_;
  int opset_ = 21;
  bool zeros_ = false;
  Dim symbols_[3];
  int names_ = 0;
  bool chained_ = false;
  onnx::GraphSpec graph_;
  std::vector<Value> inputs_;
  std::vector<Value> values_;
  std::vector<std::string> flags_;
  std::vector<std::pair<std::string, Ints>> weights_;
};

}  // namespace

RandomGraph random_graph(std::uint64_t seed, int steps) { return Maker(seed).make(steps); }

}  // namespace lathe::tests
