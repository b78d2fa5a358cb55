// Hand-made loop kernels for tests and benchmarks, and a runner that gives each buffer memory of the right size.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/loops/kernel.h"

namespace lathe::jit::testing {

using loops::Access;
using loops::Dims;
using loops::Inst;
using loops::Kernel;
using loops::Op;
using loops::Reduction;

/// Writes kernels a line per instruction.
class Maker {
 public:
  Maker(std::string name, const std::vector<std::int64_t>& outer, const std::vector<std::int64_t>& inner = {}) {
    k.name = std::move(name);
    k.outer = static_cast<int>(outer.size());
    k.inner = static_cast<int>(inner.size());
    std::size_t d = 0;
    for (const auto e : outer) k.extents[d++] = e;
    for (const auto e : inner) k.extents[d++] = e;
  }

  int buffer(DType dtype, bool output = false) {
    k.buffers.push_back({dtype, output});
    return static_cast<int>(k.buffers.size()) - 1;
  }
  static Access at(int buffer, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
    Access access;
    access.buffer = buffer;
    access.offset = offset;
    for (std::size_t d = 0; d < strides.size(); ++d) access.strides[d] = strides[d];
    return access;
  }
  int inst(Inst i) {
    k.insts.push_back(i);
    return static_cast<int>(k.insts.size()) - 1;
  }
  int load(Access access) {
    const DType dtype = k.buffers[static_cast<std::size_t>(access.buffer)].dtype;
    k.loads.push_back(std::move(access));
    return inst({.op = Op::load, .dtype = dtype, .index = static_cast<int>(k.loads.size()) - 1});
  }
  int input(DType dtype, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
    return load(at(buffer(dtype), std::move(strides), offset));
  }
  int constant(DType dtype, double v) {
    if (dtype.is_float()) return inst({.op = Op::constant, .dtype = dtype, .imm = v});
    return inst({.op = Op::constant, .dtype = dtype, .imm_int = static_cast<std::int64_t>(v)});
  }
  int number(DType dtype, double v) {
    k.numbers.push_back({v, static_cast<std::int64_t>(v)});
    return inst({.op = Op::number, .dtype = dtype, .index = static_cast<int>(k.numbers.size()) - 1});
  }
  int index(int dim) { return inst({.op = Op::loop_index, .dtype = DType::i64, .index = dim}); }
  int op(Op o, int a, int b = -1, int c = -1) {
    const bool predicate = o == Op::is_nan || o == Op::is_inf || (o >= Op::equal && o <= Op::greater_equal);
    const int source = o == Op::select ? b : a;
    return inst({.op = o, .dtype = predicate ? DType(DType::boolean) : dtype(source), .a = a, .b = b, .c = c});
  }
  int cast(int a, DType to) { return inst({.op = Op::cast, .dtype = to, .a = a}); }
  int reduce(Reduction r, int a) {
    const DType result = r >= Reduction::argmin_first ? DType(DType::i64) : dtype(a);
    return inst({.op = Op::reduce, .dtype = result, .a = a, .reduction = r});
  }
  void store(int i, Access access) { k.stores.push_back({i, std::move(access)}); }
  void output(int i, std::vector<std::int64_t> strides, std::int64_t offset = 0) {
    store(i, at(buffer(dtype(i), true), std::move(strides), offset));
  }
  [[nodiscard]] DType dtype(int i) const { return k.insts[static_cast<std::size_t>(i)].dtype; }

  Kernel k;
};

/// y = gelu(x + bias) with the tanh form, over rows × columns.
inline Kernel gelu_tanh(std::int64_t rows, std::int64_t columns) {
  Maker m("bias_gelu", {rows, columns});
  const auto f = DType::f32;
  const int x = m.op(Op::add, m.input(f, {columns, 1}), m.input(f, {0, 1}));
  const int cube = m.op(Op::mul, m.op(Op::mul, x, x), x);
  const int inner = m.op(Op::fma, cube, m.constant(f, 0.044715), x);
  const int t = m.op(Op::tanh, m.op(Op::mul, inner, m.constant(f, 0.7978845608)));
  const int half = m.op(Op::mul, x, m.constant(f, 0.5));
  m.output(m.op(Op::mul, half, m.op(Op::add, t, m.constant(f, 1))), {columns, 1});
  return m.k;
}

inline Kernel unary(Op op, std::int64_t n, DType dtype = DType::f32) {
  Maker m("unary", {n});
  m.output(m.op(op, m.input(dtype, {1})), {1});
  return m.k;
}

/// y[r] = Σ x[r, :]²
inline Kernel row_sums(std::int64_t rows, std::int64_t n) {
  Maker m("row_sums", {rows}, {n});
  const int x = m.input(DType::f32, {n, 1});
  m.output(m.reduce(Reduction::sum, m.op(Op::mul, x, x)), {1, 0});
  return m.k;
}

/// y[r, c] = x[r, c] · scale[r] + x[r, 0]
inline Kernel scaled_rows(std::int64_t rows, std::int64_t columns) {
  Maker m("scaled_rows", {rows, columns});
  const int scaled = m.op(Op::mul, m.input(DType::f32, {columns, 1}), m.input(DType::f32, {1, 0}));
  m.output(m.op(Op::add, scaled, m.input(DType::f32, {columns, 0})), {columns, 1});
  return m.k;
}

inline Kernel softmax(std::int64_t rows, std::int64_t n) {
  Maker m("softmax", {rows}, {n});
  const int x = m.input(DType::f32, {n, 1});
  const int e = m.op(Op::exp, m.op(Op::sub, x, m.reduce(Reduction::max, x)));
  m.output(m.op(Op::div, e, m.reduce(Reduction::sum, e)), {n, 1});
  return m.k;
}

inline Kernel layer_norm(std::int64_t rows, std::int64_t n) {
  Maker m("layer_norm", {rows}, {n});
  const auto f = DType::f32;
  const int x = m.input(f, {n, 1});
  const int scale = m.input(f, {0, 1});
  const int bias = m.input(f, {0, 1});
  const int inverse = m.number(f, 1.0 / static_cast<double>(n));
  const int d = m.op(Op::sub, x, m.op(Op::mul, m.reduce(Reduction::sum, x), inverse));
  const int variance = m.op(Op::mul, m.reduce(Reduction::sum, m.op(Op::mul, d, d)), inverse);
  const int deviation = m.op(Op::sqrt, m.op(Op::add, variance, m.constant(f, 1e-5)));
  const int normal = m.op(Op::mul, d, m.op(Op::reciprocal, deviation));
  m.output(m.op(Op::add, m.op(Op::mul, normal, scale), bias), {n, 1});
  return m.k;
}

/// c[m, n] = act(Σ a[m, k] b[k, n] + bias[n]).
inline Kernel matmul(std::int64_t rows, std::int64_t k, std::int64_t n, DType f = DType::f32, bool tanh = false) {
  if (rows == 1) {
    Maker m("gemv", {n}, {k});
    const int sum = m.reduce(Reduction::sum, m.op(Op::mul, m.input(f, {0, 1}), m.input(f, {1, n})));
    const int y = m.op(Op::add, sum, m.input(f, {1, 0}));
    m.output(tanh ? m.op(Op::tanh, y) : y, {1, 0});
    return m.k;
  }
  Maker m("matmul", {rows, n}, {k});
  const int sum = m.reduce(Reduction::sum, m.op(Op::mul, m.input(f, {k, 0, 1}), m.input(f, {0, 1, n})));
  const int y = m.op(Op::add, sum, m.input(f, {0, 1, 0}));
  m.output(tanh ? m.op(Op::tanh, y) : y, {n, 1, 0});
  return m.k;
}

/// A copy that stores the transpose: out[c, r] = in[r, c].
inline Kernel transpose(std::int64_t rows, std::int64_t columns, DType dtype = DType::f32) {
  Maker m("transpose", {columns, rows});
  m.output(m.input(dtype, {1, columns}), {rows, 1});
  return m.k;
}

/// Max pooling, channels last, window 3×3, stride 2, padded by 1.
inline Kernel max_pool(std::int64_t h, std::int64_t w, std::int64_t channels) {
  Maker m("max_pool", {(h + 1) / 2, (w + 1) / 2, channels}, {3, 3});
  const int none = m.constant(DType::f32, -std::numeric_limits<double>::infinity());
  Access access = Maker::at(m.buffer(DType::f32), {2 * w * channels, 2 * channels, 1, w * channels, channels},
                            -w * channels - channels);
  loops::Guard rows{-1, h, {}};
  rows.coef[0] = 2;
  rows.coef[3] = 1;
  loops::Guard columns{-1, w, {}};
  columns.coef[1] = 2;
  columns.coef[4] = 1;
  access.guards = {rows, columns};
  access.fallback = none;
  m.output(m.reduce(Reduction::max, m.load(access)), {(w + 1) / 2 * channels, channels, 1, 0, 0});
  return m.k;
}

/// Rows of a table by an index from data.
inline Kernel gather_rows(std::int64_t count, std::int64_t table_rows, std::int64_t width) {
  Maker m("gather", {count, width});
  const int index = m.input(DType::i64, {1, 0});
  Access access = Maker::at(m.buffer(DType::f32), {0, 1});
  access.indirect = {{index, table_rows, width}};
  m.output(m.load(access), {width, 1});
  return m.k;
}

}  // namespace lathe::jit::testing
