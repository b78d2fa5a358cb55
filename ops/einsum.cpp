// Einsum: products of operands summed over the labels that the result leaves out. Two operands become a matrix product
// where the labels allow it; everything else is one loop nest, `lathe::EinsumLoop`.
#include <algorithm>
#include <cctype>
#include <map>

#include "ops/ir/builder.h"
#include "ops/ir/loop_builder.h"

namespace lathe::ops {
namespace {

constexpr Attribute kAttributes[] = {{"equation", AttrKind::string, Attribute::kRequired}};
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Labels per dim, one letter each; ellipses have become letters of their own.
struct Equation {
  std::vector<std::string> terms;
  std::string result;
  std::map<char, std::int64_t> extents;

  [[nodiscard]] std::string text() const {
    std::string t;
    for (const std::string& term : terms) t += (t.empty() ? "" : ",") + term;
    return t + "->" + result;
  }
  /// Labels of the operands that the result leaves out, in the order they appear.
  [[nodiscard]] std::string summed() const {
    std::string s;
    for (const std::string& term : terms) {
      for (char c : term) {
        if (result.find(c) == std::string::npos && s.find(c) == std::string::npos) s += c;
      }
    }
    return s;
  }
};

std::vector<std::string> split_terms(std::string_view text) {
  std::vector<std::string> terms(1);
  for (char c : text) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  return terms;
}

void check_term(const OpView& op, const std::string& term) {
  std::string letters = term;
  const std::size_t dots = letters.find("...");
  if (dots != std::string::npos) letters.erase(dots, 3);
  op.require(letters.find_first_not_of(kLetters) == std::string::npos,
             "equation term '{}' must hold letters and at most one ellipsis", shown(term));
}

int letter_count(const std::string& term) {
  return static_cast<int>(std::count_if(term.begin(), term.end(), [](char c) { return c != '.'; }));
}

/// Letters that no term uses stand for the dims under an ellipsis, aligned right.
std::string ellipsis_letters(const OpView& op, const std::string& text, int count) {
  std::string free;
  for (char c : kLetters) {
    if (text.find(c) == std::string::npos) free += c;
  }
  op.require(count <= static_cast<int>(free.size()), "the equation needs more than {} labels", kLetters.size());
  return free.substr(0, static_cast<std::size_t>(count));
}

void replace_ellipsis(std::string& term, const std::string& letters, int count) {
  const std::size_t dots = term.find("...");
  if (dots != std::string::npos)
    term.replace(dots, 3, letters.substr(letters.size() - static_cast<std::size_t>(count)));
}

/// Without "->": every label that appears once, in alphabetical order, behind the ellipsis.
std::string implicit_result(const std::vector<std::string>& terms) {
  std::map<char, int> uses;
  bool ellipsis = false;
  for (const std::string& term : terms) {
    for (char c : term) ++uses[c];
    ellipsis = ellipsis || term.find("...") != std::string::npos;
  }
  std::string result = ellipsis ? "..." : "";
  for (const auto& [c, n] : uses) {
    if (c != '.' && n == 1) result += c;
  }
  return result;
}

Equation parse(const OpView& op) {
  std::string text;
  for (char c : op.s("equation")) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) text += c;
  }
  const std::size_t arrow = text.find("->");
  Equation e;
  e.terms = split_terms(std::string_view(text).substr(0, arrow));
  op.require(static_cast<int>(e.terms.size()) == op.inputs(), "the equation has {} terms for {} inputs", e.terms.size(),
             op.inputs());
  for (const std::string& term : e.terms) check_term(op, term);
  e.result = arrow == std::string::npos ? implicit_result(e.terms) : text.substr(arrow + 2);
  check_term(op, e.result);

  int most = 0;
  std::vector<int> under(e.terms.size(), 0);  // dims under each term's ellipsis
  for (std::size_t i = 0; i < e.terms.size(); ++i) {
    const int rank = op.in(static_cast<int>(i)).rank();
    const bool ellipsis = e.terms[i].find("...") != std::string::npos;
    const int named = letter_count(e.terms[i]);
    op.require(ellipsis ? rank >= named : rank == named, "term '{}' does not fit input {} of rank {}",
               shown(e.terms[i]), i, rank);
    under[i] = rank - named;
    most = std::max(most, under[i]);
  }
  const std::string letters = ellipsis_letters(op, text, most);
  for (std::size_t i = 0; i < e.terms.size(); ++i) replace_ellipsis(e.terms[i], letters, under[i]);
  replace_ellipsis(e.result, letters, most);

  for (std::size_t i = 0; i < e.terms.size(); ++i) {
    const Shape& shape = op.in(static_cast<int>(i)).shape;
    for (int d = 0; d < shape.rank(); ++d) {
      std::int64_t& extent = e.extents.try_emplace(e.terms[i][static_cast<std::size_t>(d)], 1).first->second;
      op.require(shape[d] == extent || shape[d] == 1 || extent == 1, "label '{}' has extents {} and {}",
                 e.terms[i][static_cast<std::size_t>(d)], extent, shape[d]);
      if (shape[d] != 1) extent = shape[d];
    }
  }
  for (std::size_t i = 0; i < e.result.size(); ++i) {
    op.require(e.extents.count(e.result[i]) == 1 && e.result.find(e.result[i], i + 1) == std::string::npos,
               "label '{}' of the result must appear in a term, and once in the result", e.result[i]);
  }
  return e;
}

Facts infer(const OpView& op) {
  const DType dtype = op.in(0).dtype;
  const Equation e = parse(op);
  Shape out;
  for (char c : e.result) out.push_back(e.extents.at(c));
  return {Fact(dtype, out)};
}

// ---- the loop nest ----

Scalar expr(const OpView& op, LoopBuilder& b, int, const Coords& at) {
  const Equation e = parse(op);
  std::map<char, Coord> place;
  for (std::size_t d = 0; d < e.result.size(); ++d) place[e.result[d]] = at[static_cast<int>(d)];
  const std::string summed = e.summed();
  if (!summed.empty()) {
    std::vector<std::int64_t> extents;
    for (char c : summed) extents.push_back(e.extents.at(c));
    const std::vector<Coord> inner = b.inner(extents);
    for (std::size_t i = 0; i < summed.size(); ++i) place[summed[i]] = inner[i];
  }
  Scalar product{-1};
  for (int i = 0; i < op.inputs(); ++i) {
    Coords c;
    for (int d = 0; d < op.in(i).rank(); ++d) {
      c.push_back(op.in(i).shape[d] == 1 ? Coord{}
                                         : place[e.terms[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)]]);
    }
    const Scalar x = b.in(i, c);
    product = i == 0 ? x : b.binary(loops::Op::mul, product, x);
  }
  return summed.empty() ? product : b.reduce(loops::Reduction::sum, product);
}

// ---- as a matrix product ----

/// The labels of a product of two operands by the part they play.
struct Roles {
  std::string batch, rows, columns, inner;
};

bool repeats(const std::string& term) {
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term.find(term[i], i + 1) != std::string::npos) return true;
  }
  return false;
}

/// True where the equation is a matrix product: no label twice in a term, none summed in one term alone, and what both
/// have in common apart from batches has one extent.
bool find_roles(const OpView& op, const Equation& e, Roles& r) {
  if (repeats(e.terms[0]) || repeats(e.terms[1])) return false;
  for (std::size_t i = 0; i < e.terms[0].size(); ++i) {
    const char c = e.terms[0][i];
    const std::size_t other = e.terms[1].find(c);
    const bool kept = e.result.find(c) != std::string::npos;
    if (other == std::string::npos) {
      if (!kept) return false;
      r.rows += c;
    } else if (kept) {
      r.batch += c;
    } else {
      if ((op.in(0).shape[static_cast<int>(i)] == 1) != (op.in(1).shape[static_cast<int>(other)] == 1)) return false;
      r.inner += c;
    }
  }
  for (char c : e.terms[1]) {
    if (e.terms[0].find(c) != std::string::npos) continue;
    if (e.result.find(c) == std::string::npos) return false;
    r.columns += c;
  }
  return !r.inner.empty();
}

ValueId permuted(Builder& b, ValueId x, const std::string& from, const std::string& to) {
  if (from == to) return x;
  std::vector<std::int64_t> perm;
  for (char c : to) perm.push_back(static_cast<std::int64_t>(from.find(c)));
  return b.transpose(x, std::move(perm));
}

/// The extents of dims [begin, end) of x multiplied, as a 1-D value of one element.
ValueId merged_extent(Builder& b, ValueId x, int begin, int end) {
  if (begin == end) return b.ints({1});
  ValueId all = b.shape_of(x, begin, begin + 1);
  for (int d = begin + 1; d < end; ++d) all = b.op("Mul", {all, b.shape_of(x, d, d + 1)});
  return all;
}

/// [batch…, first…, second…] with the last two groups merged to one dim each.
ValueId as_matrices(Builder& b, ValueId x, std::size_t batch, std::size_t first, std::size_t second) {
  if (first == 1 && second == 1) return x;
  const auto n = static_cast<int>(batch), m = static_cast<int>(batch + first),
             k = static_cast<int>(batch + first + second);
  std::vector<ValueId> parts;
  if (n > 0) parts.push_back(b.shape_of(x, 0, n));
  parts.push_back(merged_extent(b, x, n, m));
  parts.push_back(merged_extent(b, x, m, k));
  return b.reshape(x, b.concat(parts, 0));
}

ValueId matrix_product(const OpView& op, Builder& b, const Equation& e, const Roles& r) {
  const ValueId left = permuted(b, op.id(0), e.terms[0], r.batch + r.rows + r.inner);
  const ValueId right = permuted(b, op.id(1), e.terms[1], r.batch + r.inner + r.columns);
  ValueId y = b.matmul(as_matrices(b, left, r.batch.size(), r.rows.size(), r.inner.size()),
                       as_matrices(b, right, r.batch.size(), r.inner.size(), r.columns.size()));
  if (r.rows.size() != 1 || r.columns.size() != 1) {
    const auto n = static_cast<int>(r.batch.size());
    std::vector<ValueId> parts;
    if (n > 0) parts.push_back(b.shape_of(y, 0, n));
    if (!r.rows.empty()) parts.push_back(b.shape_of(left, n, n + static_cast<int>(r.rows.size())));
    if (!r.columns.empty()) {
      const auto first = n + static_cast<int>(r.inner.size());
      parts.push_back(b.shape_of(right, first, first + static_cast<int>(r.columns.size())));
    }
    y = parts.empty() ? b.reshape(y, std::vector<std::int64_t>{}) : b.reshape(y, b.concat(parts, 0));
  }
  return permuted(b, y, r.batch + r.rows + r.columns, e.result);
}

/// The first two operands contracted, with the labels that the others or the result need.
ValueId first_pair(const OpView& op, Builder& b, const Equation& e, std::string& kept) {
  std::string needed = e.result;
  for (std::size_t i = 2; i < e.terms.size(); ++i) needed += e.terms[i];
  for (char c : e.terms[0] + e.terms[1]) {
    if (needed.find(c) != std::string::npos && kept.find(c) == std::string::npos) kept += c;
  }
  return b.op("Einsum", {op.id(0), op.id(1)}, {{"equation", e.terms[0] + "," + e.terms[1] + "->" + kept}});
}

std::vector<ValueId> lower(const OpView& op, Builder& b) {
  const Equation e = parse(op);
  if (e.terms.size() > 2) {
    Equation rest;
    rest.result = e.result;
    std::string kept;
    std::vector<ValueId> inputs = {first_pair(op, b, e, kept)};
    rest.terms = {kept};
    for (std::size_t i = 2; i < e.terms.size(); ++i) {
      inputs.push_back(op.id(static_cast<int>(i)));
      rest.terms.push_back(e.terms[i]);
    }
    return {b.op("Einsum", std::move(inputs), {{"equation", rest.text()}})};
  }
  Roles roles;
  const DType dtype = op.in(0).dtype;
  const bool has_matmul = dtype.is_float() || dtype.bits() >= 32;
  if (e.terms.size() == 2 && has_matmul && find_roles(op, e, roles)) return {matrix_product(op, b, e, roles)};
  std::vector<ValueId> inputs;
  for (int i = 0; i < op.inputs(); ++i) inputs.push_back(op.id(i));
  return {b.op("lathe::EinsumLoop", std::move(inputs), {{"equation", e.text()}})};
}

}  // namespace

extern const OpDef op_einsum;
constinit const OpDef op_einsum = {.name = "Einsum",
                                   .inputs = {1, Arity::kMany},
                                   .attributes = kAttributes,
                                   .forms = {12, 28},
                                   .takes = kNumbers,
                                   .infer = infer,
                                   .lower = lower};

extern const OpDef op_lathe_einsum_loop;
constinit const OpDef op_lathe_einsum_loop = {.name = "EinsumLoop",
                                              .domain = "lathe",
                                              .inputs = {1, Arity::kMany},
                                              .attributes = kAttributes,
                                              .infer = infer,
                                              .expr = expr,
                                              .contraction = true};

}  // namespace lathe::ops
