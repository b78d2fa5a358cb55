// Random valid loop kernels: tensors seen through slices, windows, broadcasts and indices; maps and levels of
// reductions.
#include "tests/support/random_kernel.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <random>
#include <span>

#include "ops/ir/numeric.h"

namespace lathe::test {
namespace {

using loops::Access;
using loops::Dims;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Reduction;

constexpr double kUnknown = std::numeric_limits<double>::infinity();
constexpr std::int64_t kExtents[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130};
constexpr DType kNarrow[] = {DType::f16,    DType::bf16,   DType::f16,        DType::bf16,  DType::f8e4m3fn,
                             DType::f8e5m2, DType::f4e2m1, DType::f8e4m3fnuz, DType::i4,    DType::u4,
                             DType::u2,     DType::i2,     DType::f8e5m2fnuz, DType::f8e8m0};
constexpr DType kIntegers[] = {DType::i32, DType::i64, DType::u8,  DType::i8,
                               DType::i16, DType::u16, DType::u32, DType::u64};

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A generator whose draws do not depend on the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15U + 1) {}
  /// In [low, high].
  std::int64_t in(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return in(1, 100) <= percent; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  std::uint64_t bits() { return engine_(); }
  template <class T>
  const T& of(std::span<const T> list) {
    return list[static_cast<std::size_t>(in(0, static_cast<std::int64_t>(list.size()) - 1))];
  }
  template <class T, std::size_t N>
  const T& of(const T (&list)[N]) {
    return of(std::span<const T>(list));
  }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return of(std::span<const T>(list));
  }

 private:
  std::mt19937_64 engine_;
};

/// A value with what is known of it: |value| <= bound, and a multiple of quantum (sums of such are exact).
struct Known {
  int inst = -1;
  double bound = kUnknown;
  double quantum = 0;
};

/// One coordinate of a tensor that an access walks.
struct Coordinate {
  std::int64_t base = 0;
  std::int64_t extent = 1;
  Dims coef{};
  bool guarded = false;
  int indirect = -1;
};

class Maker {
 public:
  Maker(std::uint64_t seed, const RandomKernelOptions& options) : r_(seed), o_(options) {
    k_.name = fmt::format("random_{}", seed);
  }

  RandomKernel make() {
    out_.exact = o_.exact;
    choose_dims();
    type_ = choose_type();
    const int loads = static_cast<int>(r_.in(1, 4));
    for (int i = 0; i < loads; ++i) values_.push_back(loaded(r_.chance(60)));
    leaves();
    map(r_.in(0, 6));
    if (k_.inner > 0) {
      for (std::int64_t levels = r_.in(1, 3); levels > 0; --levels) {
        reduce();
        map(r_.in(1, 4));
      }
      if (is_smooth()) row_pattern();
    }
    stores();
    return std::move(out_);
  }

 private:
  bool is_float() const { return type_.is_float(); }
  bool is_smooth() const { return !o_.exact && is_float(); }
  std::int64_t extent(int d) const { return k_.extents[at(d)]; }
  std::int64_t inner_points() const {
    std::int64_t points = 1;
    for (int d = k_.outer; d < k_.rank(); ++d) points *= extent(d);
    return points;
  }

  void choose_dims() {
    k_.outer = static_cast<int>(r_.in(0, 3));
    k_.inner = static_cast<int>(r_.chance(40) ? 0 : r_.in(1, 2));
    std::int64_t room = o_.max_points;
    const auto first = static_cast<int>(r_.in(0, std::max(0, k_.rank() - 1)));  // the first choice has the most room
    for (int i = 0; i < k_.rank(); ++i) {
      const int d = (first + i) % k_.rank();
      std::int64_t e = r_.of(kExtents);
      while (e > room) e = r_.of(kExtents);
      if (r_.chance(2)) e = 0;
      k_.extents[at(d)] = e;
      room /= std::max<std::int64_t>(e, 1);
    }
  }

  DType choose_type() {
    if (o_.exact && o_.integers && r_.chance(35)) return r_.of(kIntegers);
    return r_.chance(80) ? DType::f32 : DType::f64;
  }

  // ---- instructions ----

  int add(const Inst& inst) {
    k_.insts.push_back(inst);
    return static_cast<int>(k_.insts.size()) - 1;
  }
  int op(Op op, DType dtype, int a, int b = -1, int c = -1) {
    return add({.op = op, .dtype = dtype, .a = a, .b = b, .c = c});
  }
  DType dtype(int inst) const { return k_.insts[at(inst)].dtype; }
  int cast(int a, DType to) { return dtype(a) == to ? a : op(Op::cast, to, a); }
  int constant(DType dtype, double value) {
    if (dtype == DType::boolean) value = value != 0 ? 1 : 0;
    return add({.op = Op::constant, .dtype = dtype, .imm = value, .imm_int = static_cast<std::int64_t>(value)});
  }
  int number(DType dtype, double value) {
    if (dtype == DType::boolean) value = value != 0 ? 1 : 0;
    k_.numbers.push_back({value, static_cast<std::int64_t>(value)});
    return add({.op = Op::number, .dtype = dtype, .index = static_cast<int>(k_.numbers.size()) - 1});
  }
  int quarter(DType dtype) {
    const double value = static_cast<double>(r_.in(dtype.is_unsigned_integer() ? 0 : -4, 4)) / 4;
    return r_.chance(50) ? constant(dtype, value) : number(dtype, value);
  }

  // ---- accesses ----

  int new_buffer(DType dtype, bool output, std::int64_t elements, const Fill& fill) {
    k_.buffers.push_back({dtype, output});
    out_.elements.push_back(elements);
    out_.fills.push_back(fill);
    return static_cast<int>(k_.buffers.size()) - 1;
  }

  /// Strides of a tensor with gaps now and then, dims in any order: sets them through `visit(dim, stride)`, and returns
  /// the number of elements.
  template <class F>
  std::int64_t lay_out(std::vector<Coordinate>& coordinates, bool shuffled, F visit) {
    std::vector<std::size_t> order(coordinates.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); shuffled && i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(r_.in(0, static_cast<std::int64_t>(i) - 1))]);
    }
    std::int64_t stride = r_.chance(10) ? 2 : 1;
    std::int64_t elements = 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::int64_t e = coordinates[order[i]].extent;
      visit(order[i], stride);
      if (e == 0) elements = 0;
      elements += elements == 0 ? 0 : (e - 1) * stride;
      stride *= e + (r_.chance(15) ? r_.in(1, 3) : 0);
      stride = std::max<std::int64_t>(stride, 1);
    }
    return elements;
  }

  Coordinate slice(int d) {
    Coordinate c;
    const std::int64_t step = r_.chance(15) ? 2 : 1;
    const std::int64_t before = r_.chance(15) ? r_.in(1, 3) : 0;
    const std::int64_t last = before + step * std::max<std::int64_t>(extent(d) - 1, 0);
    c.extent = extent(d) == 0 ? 0 : last + 1 + (r_.chance(15) ? r_.in(1, 3) : 0);
    const bool reversed = r_.chance(12);
    c.base = reversed ? last : before;
    c.coef[at(d)] = reversed ? -step : step;
    return c;
  }

  /// Shifted past the ends of the tensor, or two dims in one coordinate as a convolution has them.
  Coordinate window(int d) {
    Coordinate c;
    c.guarded = true;
    c.extent = std::max<std::int64_t>(extent(d) + r_.in(-3, 3), 0);
    c.coef[at(d)] = r_.chance(20) ? 2 : r_.chance(20) ? -1 : 1;
    c.base = c.coef[at(d)] < 0 ? extent(d) - 1 + r_.in(-2, 2) : -r_.in(0, 3);
    if (r_.chance(40)) c.coef[at(static_cast<int>(r_.in(0, k_.rank() - 1)))] += r_.in(1, 2);
    return c;
  }

  /// An i64 in range of `extent` from a buffer or from a loop variable.
  Coordinate gather() {
    Coordinate c;
    c.extent = r_.in(1, 40);
    if (r_.chance(70) || k_.rank() == 0) {
      const DType stored = r_.chance(60) ? DType::i64 : DType::i32;
      c.indirect = cast(load(stored, {Fill::index, c.extent}, false), DType::i64);
    } else {
      const int i =
          add({.op = Op::loop_index, .dtype = DType::i64, .index = static_cast<int>(r_.in(0, k_.rank() - 1))});
      c.indirect = op(Op::mod, DType::i64, i, constant(DType::i64, static_cast<double>(c.extent)));
    }
    return c;
  }

  /// A load through slices, broadcasts, windows and indices.
  int load(DType dtype, const Fill& fill, bool rich) {
    std::vector<Coordinate> coordinates;
    const int broadcast_percent = r_.chance(30) ? 50 : 5;
    for (int d = 0; d < k_.rank(); ++d) {
      if (r_.chance(broadcast_percent)) continue;
      coordinates.push_back(rich && r_.chance(12) ? window(d) : slice(d));
    }
    if (rich && o_.indirect && r_.chance(12)) {
      coordinates.insert(coordinates.begin() + r_.in(0, static_cast<std::int64_t>(coordinates.size())), gather());
    }
    Access access;
    const std::int64_t elements = lay_out(coordinates, r_.chance(25), [&](std::size_t i, std::int64_t stride) {
      const Coordinate& c = coordinates[i];
      access.offset += c.base * stride;
      for (int d = 0; d < k_.rank(); ++d) access.strides[at(d)] += c.coef[at(d)] * stride;
      if (c.guarded) access.guards.push_back({c.base, c.extent, c.coef});
      if (c.indirect >= 0) access.indirect.push_back({c.indirect, c.extent, stride});
    });
    if (!access.guards.empty()) access.fallback = quarter(dtype);
    access.buffer = new_buffer(dtype, false, elements, fill);
    k_.loads.push_back(access);
    return add({.op = Op::load, .dtype = dtype, .index = static_cast<int>(k_.loads.size()) - 1});
  }

  DType stored_type(bool tame) {
    if (!o_.narrow || r_.chance(55)) return r_.chance(10) && o_.exact ? DType(DType::boolean) : type_;
    DType dtype = r_.of(kNarrow);
    while ((tame || !o_.exact) && (dtype == DType::f8e8m0 || !dtype.is_float())) dtype = r_.of(kNarrow);
    return dtype;
  }

  /// A load cast to the type computed in. Of a tame one bound and quantum are known.
  Known loaded(bool tame) {
    tame = tame || !o_.exact;
    const DType dtype = stored_type(tame);
    const Fill fill{tame ? Fill::tame : Fill::diverse};
    const int value = cast(load(dtype, fill, true), type_);
    if (!tame || !is_float()) return {value};
    return {value, 4, 0.25};
  }

  void leaves() {
    if (r_.chance(70)) values_.push_back({quarter(type_), 1, 0.25});
    if (r_.chance(15) && k_.rank() > 0) {
      const auto d = static_cast<int>(r_.in(0, k_.rank() - 1));
      const int i = add({.op = Op::loop_index, .dtype = DType::i64, .index = d});
      values_.push_back({cast(i, type_), static_cast<double>(extent(d)), 1});
    }
  }

  // ---- maps ----

  /// Any value, the latest ones more often.
  const Known& any() {
    const auto n = static_cast<std::int64_t>(values_.size());
    return values_[static_cast<std::size_t>(r_.chance(50) ? std::max<std::int64_t>(0, n - r_.in(1, 3))
                                                          : r_.in(0, n - 1))];
  }

  void map(std::int64_t count) {
    for (; count > 0; --count) values_.push_back(is_smooth() ? smooth() : is_float() ? float_map() : integer_map());
  }

  Known float_map() {
    constexpr Op kUnary[] = {Op::neg,   Op::abs,   Op::sign, Op::floor,     Op::ceil,
                             Op::round, Op::trunc, Op::sqrt, Op::reciprocal};
    constexpr Op kBinary[] = {Op::add, Op::sub, Op::mul, Op::add,  Op::sub, Op::mul,
                              Op::div, Op::min, Op::max, Op::fmod, Op::mod};
    const Known a = any();
    const Known b = any();
    if (r_.chance(12)) return {choose(a, b), std::max(a.bound, b.bound), std::min(a.quantum, b.quantum)};
    if (r_.chance(10)) return {op(Op::fma, type_, a.inst, b.inst, any().inst)};
    if (r_.chance(8)) return {cast(cast(a.inst, r_.of(kIntegers)), type_)};
    if (r_.chance(25)) {
      const Op o = r_.of(kUnary);
      const int value = op(o, type_, a.inst);
      return o == Op::neg || o == Op::abs ? Known{value, a.bound, a.quantum} : Known{value};
    }
    const Op o = r_.of(kBinary);
    const int value = op(o, type_, a.inst, b.inst);
    const double quantum = std::min(a.quantum, b.quantum);
    switch (o) {
      case Op::add:
      case Op::sub:
        return rounded({value, a.bound + b.bound, quantum});
      case Op::mul:
        return rounded({value, a.bound * b.bound, a.quantum * b.quantum});
      case Op::min:
      case Op::max:
        return {value, std::max(a.bound, b.bound), quantum};
      default:
        return {value};
    }
  }

  /// Keeps what is known only while every such value is exact in f32.
  static Known rounded(Known k) {
    if (!(k.quantum > 0) || !(k.bound / k.quantum < 0x1p23)) return {k.inst};
    return k;
  }

  /// A select on a comparison of the two.
  int choose(const Known& a, const Known& b) {
    constexpr Op kComparisons[] = {Op::equal, Op::not_equal, Op::less, Op::less_equal, Op::greater, Op::greater_equal};
    int condition = op(r_.of(kComparisons), DType::boolean, a.inst, any().inst);
    if (is_float() && r_.chance(30)) {
      const int special = op(r_.chance(50) ? Op::is_nan : Op::is_inf, DType::boolean, b.inst);
      constexpr Op kLogical[] = {Op::logical_and, Op::logical_or, Op::logical_xor};
      condition = op(r_.of(kLogical), DType::boolean, condition, special);
    }
    if (r_.chance(30)) condition = op(Op::logical_not, DType::boolean, condition);
    return op(Op::select, type_, condition, a.inst, b.inst);
  }

  Known integer_map() {
    constexpr Op kUnary[] = {Op::neg, Op::abs, Op::sign, Op::bit_not};
    constexpr Op kBinary[] = {Op::add, Op::sub,     Op::mul,    Op::div,     Op::mod,        Op::fmod,        Op::min,
                              Op::max, Op::bit_and, Op::bit_or, Op::bit_xor, Op::shift_left, Op::shift_right, Op::pow};
    const Known a = any();
    const Known b = any();
    if (r_.chance(15)) return {choose(a, b)};
    if (r_.chance(10)) return {cast(cast(a.inst, r_.chance(50) ? r_.of(kIntegers) : DType(DType::f32)), type_)};
    if (r_.chance(20)) return {op(r_.of(kUnary), type_, a.inst)};
    return {op(r_.of(kBinary), type_, a.inst, b.inst)};
  }

  /// Functions without jumps, of moderate values: errors stay small.
  Known smooth() {
    constexpr Op kBounded[] = {Op::tanh, Op::sigmoid, Op::erf, Op::sin, Op::cos, Op::atan, Op::tanh};
    const int a = any().inst;
    const int bounded = op(r_.of(kBounded), type_, a);
    const int other = any().inst;
    switch (r_.in(0, 9)) {
      case 0:
        return {op(Op::exp, type_, bounded)};
      case 1:
        return {op(Op::log, type_, op(Op::add, type_, op(Op::abs, type_, a), constant(type_, 1)))};
      case 2:
        return {op(Op::sqrt, type_, op(Op::add, type_, op(Op::abs, type_, a), constant(type_, 0.5)))};
      case 3:
        return {op(Op::mul, type_, bounded, op(Op::sigmoid, type_, other))};
      case 4:
        return {op(Op::sub, type_, bounded, op(Op::tanh, type_, other))};
      case 5:
        return {op(Op::div, type_, bounded, op(Op::add, type_, op(Op::abs, type_, other), constant(type_, 1)))};
      case 6:
        return {op(Op::max, type_, bounded, op(Op::mul, type_, bounded, quarter(type_)))};
      case 7:
        return {op(Op::pow, type_, op(Op::add, type_, op(Op::abs, type_, bounded), constant(type_, 0.5)),
                   constant(type_, 1.5))};
      case 8:
        return {op(Op::fma, type_, bounded, op(Op::cos, type_, other), quarter(type_))};
      default:
        return {bounded};
    }
  }

  // ---- reductions ----

  void reduce() {
    if (is_smooth()) {
      values_.push_back({smooth_reduction(any().inst)});
    } else if (r_.chance(25)) {
      constexpr Reduction kArgs[] = {Reduction::argmin_first, Reduction::argmin_last, Reduction::argmax_first,
                                     Reduction::argmax_last};
      const int position = reduction(r_.of(kArgs), DType::i64, any().inst);
      if (r_.chance(50)) row_outputs_.push_back(position);
      values_.push_back({cast(position, type_)});
    } else if (is_float()) {
      values_.push_back(exact_float_reduction(any()));
    } else {
      constexpr Reduction kAll[] = {Reduction::sum, Reduction::prod, Reduction::min, Reduction::max};
      values_.push_back({reduction(r_.of(kAll), type_, any().inst)});
    }
    row_outputs_.push_back(values_.back().inst);
  }

  int reduction(Reduction kind, DType dtype, int a) {
    return add({.op = Op::reduce, .dtype = dtype, .a = a, .reduction = kind});
  }

  Known exact_float_reduction(const Known& a) {
    const auto points = static_cast<double>(std::max<std::int64_t>(inner_points(), 1));
    if (r_.chance(60)) {
      for (const Known& value : {a, any(), any(), any()}) {
        const Known sum = rounded({value.inst, value.bound * points, value.quantum});
        if (sum.quantum > 0) return {reduction(Reduction::sum, type_, value.inst), sum.bound, sum.quantum};
      }
    }
    // Adding +0 leaves no -0, whose place among zeros would be seen in the result.
    const int no_negative_zero = op(Op::add, type_, a.inst, constant(type_, 0));
    const int value = reduction(r_.chance(50) ? Reduction::min : Reduction::max, type_, no_negative_zero);
    return inner_points() == 0 ? Known{value} : Known{value, a.bound, a.quantum};
  }

  int smooth_reduction(int a) {
    const auto points = static_cast<double>(std::max<std::int64_t>(inner_points(), 1));
    const int bounded = op(Op::tanh, type_, a);
    if (inner_points() == 0) return reduction(Reduction::sum, type_, bounded);
    switch (r_.in(0, 3)) {
      case 0:
        return reduction(Reduction::max, type_, a);
      case 1:
        return reduction(Reduction::min, type_, bounded);
      case 2: {
        const int scaled = op(Op::mul, type_, bounded, constant(type_, 0.5 / points));
        return reduction(Reduction::prod, type_, op(Op::add, type_, scaled, constant(type_, 1)));
      }
      default: {
        const int sum = reduction(Reduction::sum, type_, bounded);
        return op(Op::mul, type_, sum, number(type_, 1 / points));
      }
    }
  }

  /// Softmax or layer normalization of the latest value.
  void row_pattern() {
    const int x = op(Op::tanh, type_, values_.back().inst);
    const int scale = number(type_, 1.0 / static_cast<double>(std::max<std::int64_t>(inner_points(), 1)));
    if (r_.chance(40)) {
      const int shifted = op(Op::sub, type_, x, reduction(Reduction::max, type_, x));
      const int e = op(Op::exp, type_, shifted);
      values_.push_back({op(Op::div, type_, e, reduction(Reduction::sum, type_, e))});
    } else if (r_.chance(50)) {
      const int mean = op(Op::mul, type_, reduction(Reduction::sum, type_, x), scale);
      const int centered = op(Op::sub, type_, x, mean);
      const int squares = reduction(Reduction::sum, type_, op(Op::mul, type_, centered, centered));
      const int variance = op(Op::fma, type_, squares, scale, constant(type_, 0.125));
      const int deviation = op(Op::sqrt, type_, variance);
      values_.push_back({op(Op::mul, type_, centered, op(Op::reciprocal, type_, deviation))});
      row_outputs_.push_back(variance);
    }
  }

  // ---- stores ----

  void store(int value, bool full) {
    const int dims = full ? k_.rank() : k_.outer;
    std::vector<Coordinate> coordinates(at(dims));
    std::vector<bool> reversed(at(dims));
    for (int d = 0; d < dims; ++d) {
      coordinates[at(d)].extent = extent(d);
      reversed[at(d)] = r_.chance(8);
    }
    Access access;
    const std::int64_t elements = lay_out(coordinates, r_.chance(20), [&](std::size_t d, std::int64_t stride) {
      access.strides[d] = reversed[d] ? -stride : stride;
      if (reversed[d]) access.offset += (coordinates[d].extent - 1) * stride;
    });
    access.buffer = new_buffer(dtype(value), true, elements, {});
    k_.stores.push_back({value, access});
  }

  /// A value to be stored, cast now and then.
  int result(int value) {
    if (is_smooth()) {
      constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f64, DType::f32};
      return o_.narrow && r_.chance(20) ? cast(value, r_.of(kFloats)) : value;
    }
    if (o_.narrow && r_.chance(20)) return cast(value, r_.of(kNarrow));
    if (o_.integers && r_.chance(15)) return cast(value, r_.of(kIntegers));
    return r_.chance(5) ? cast(value, DType::boolean) : value;
  }

  void stores() {
    const std::int64_t count = r_.in(0, 2);
    std::vector<int> results = {result(values_.back().inst)};
    for (std::int64_t i = 0; i < count; ++i) {
      results.push_back(result(!row_outputs_.empty() && r_.chance(50) ? r_.of(row_outputs_) : any().inst));
    }
    const std::vector<bool> full = loops::full_instructions(k_);
    for (const int value : results) store(value, full[at(value)] || (k_.inner > 0 && r_.chance(20)));
  }

  Random r_;
  RandomKernelOptions o_;
  RandomKernel out_;
  Kernel& k_ = out_.kernel;
  DType type_;
  std::vector<Known> values_;     // of the type computed in
  std::vector<int> row_outputs_;  // reductions
};

std::size_t bytes_in_buffer(DType dtype) { return dtype.is_packed() ? 1 : static_cast<std::size_t>(dtype.bits()) / 8; }

double diverse_float(Random& r) {
  constexpr double kSpecial[] = {kUnknown,     -kUnknown,    std::numeric_limits<double>::quiet_NaN(),
                                 -0.0,         0.0,          1e-42,
                                 -3e38,        2147483648.0, -2147483648.0,
                                 4294967296.0, 65504,        65520,
                                 1e19};
  const std::int64_t sort = r.in(0, 9);
  if (sort < 6) return r.unit() * 8 - 4;
  if (sort < 8) return static_cast<double>(r.in(-300, 300));
  return sort == 8 ? (r.unit() - 0.5) * std::pow(10.0, static_cast<double>(r.in(-6, 12))) : r.of(kSpecial);
}

std::uint64_t random_element(Random& r, DType dtype, const Fill& fill) {
  if (dtype == DType::boolean) return static_cast<std::uint64_t>(r.in(0, 1));
  if (fill.kind == Fill::index) {
    return numeric::truncate(dtype, static_cast<std::uint64_t>(r.in(-fill.extent, fill.extent - 1)));
  }
  if (dtype.is_float()) {
    const double value = fill.kind == Fill::tame ? static_cast<double>(r.in(-16, 16)) / 4 : diverse_float(r);
    return numeric::float_bits(dtype, value);
  }
  const bool small = fill.kind == Fill::tame || r.chance(70);
  return numeric::truncate(dtype, small ? static_cast<std::uint64_t>(r.in(-4, 8)) : r.bits() >> r.in(0, 63));
}

std::uint64_t element(DType dtype, const void* buffer, std::int64_t i) {
  if (!dtype.is_packed()) return numeric::load(dtype, buffer, i);
  return static_cast<const std::uint8_t*>(buffer)[i];
}

/// Half the distance of neighbours near 1.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::f32:
      return 0;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0x1p-1;
  }
}

bool agree(DType dtype, std::uint64_t expected, std::uint64_t actual, bool exact) {
  if (expected == actual) return true;
  if (!dtype.is_float()) return false;
  const double x = numeric::float_value(dtype, expected);
  const double y = numeric::float_value(dtype, actual);
  if (x == y || (x != x && y != y)) return true;
  return !exact && std::abs(x - y) <= 1e-4 + (2e-4 + 2 * rounding_of(dtype)) * std::abs(x);
}

}  // namespace

RandomKernel random_kernel(std::uint64_t seed, const RandomKernelOptions& options) {
  RandomKernel made = Maker(seed, options).make();
  assert(loops::verify(made.kernel).empty());
  return made;
}

KernelMemory::KernelMemory(const RandomKernel& kernel, std::uint64_t seed) {
  Random r(seed);
  for (std::size_t i = 0; i < kernel.elements.size(); ++i) {
    const loops::Buffer& buffer = kernel.kernel.buffers[i];
    const std::size_t width = bytes_in_buffer(buffer.dtype);
    const std::size_t bytes = static_cast<std::size_t>(kernel.elements[i]) * width;
    void* const data = allocate(bytes);
    buffers_.push_back(data);
    if (buffer.output) {
      std::memset(data, 0x5a, bytes);
      continue;
    }
    for (std::int64_t e = 0; e < kernel.elements[i]; ++e) {
      const std::uint64_t bits = random_element(r, buffer.dtype, kernel.fills[i]);
      if (buffer.dtype.is_packed()) {
        static_cast<std::uint8_t*>(data)[e] = numeric::byte_of_packed(buffer.dtype, bits);
      } else {
        numeric::store(buffer.dtype, data, e, bits);
      }
    }
  }
}

KernelMemory::~KernelMemory() {
  for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.size);
}

void* KernelMemory::allocate(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t usable = (bytes + page - 1) / page * page;
  const std::size_t size = usable + 2 * page;
  void* const begin = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  mappings_.push_back({begin, size});
  auto* const first = static_cast<std::byte*>(begin) + page;
  if (usable != 0 && mprotect(first, usable, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  return first + (usable - bytes);
}

loops::KernelArgs whole_range(const loops::Kernel& kernel, const KernelMemory& memory) {
  return {.buffers = memory.buffers(),
          .params = nullptr,
          .begin = 0,
          .end = kernel.outer > 0 ? kernel.extents[0] : 1,
          .scratch = nullptr,
          .error = nullptr};
}

std::string difference(const RandomKernel& kernel, const KernelMemory& expected, const KernelMemory& actual) {
  for (std::size_t i = 0; i < kernel.elements.size(); ++i) {
    const loops::Buffer& buffer = kernel.kernel.buffers[i];
    if (!buffer.output) continue;
    for (std::int64_t e = 0; e < kernel.elements[i]; ++e) {
      const std::uint64_t x = element(buffer.dtype, expected.buffer(static_cast<int>(i)), e);
      const std::uint64_t y = element(buffer.dtype, actual.buffer(static_cast<int>(i)), e);
      if (agree(buffer.dtype, x, y, kernel.exact)) continue;
      const auto show = [&](std::uint64_t bits) {
        return buffer.dtype.is_float() ? fmt::format("{} ({:#x})", numeric::float_value(buffer.dtype, bits), bits)
                                       : fmt::format("{}", numeric::integer_value(buffer.dtype, bits));
      };
      return fmt::format("b{}[{}] of {}: expected {}, got {}\n{}", i, e, kernel.elements[i], show(x), show(y),
                         loops::to_string(kernel.kernel));
    }
  }
  return {};
}

}  // namespace lathe::test
