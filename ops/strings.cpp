// Strings: normalizing, joining, splitting, matching, and counting n-grams.
#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ops/plain.h"

namespace lathe::ops {
namespace {

// ---- letters: upper and lower case of UTF-8 text, for the scripts whose cases lie at a fixed distance ----

/// The code point at `i`, which moves behind it; a byte that starts none stands for itself.
char32_t next_code_point(const std::string& s, std::size_t& i) {
  const auto byte = [&](std::size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0U; };
  const unsigned first = byte(i);
  const std::size_t length = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
  char32_t code = length == 1 ? first : first & (0xffU >> (length + 1));
  for (std::size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xc0U) != 0x80U) {
      ++i;
      return 0x110000U + first;  // not UTF-8: kept as it is
    }
    code = (code << 6) | (byte(i + k) & 0x3fU);
  }
  i += length;
  return first >= 0x80 && length == 1 ? 0x110000U + first : code;
}

void append_code_point(std::string& s, char32_t code) {
  if (code >= 0x110000U) {
    s += static_cast<char>(code - 0x110000U);
  } else if (code < 0x80) {
    s += static_cast<char>(code);
  } else if (code < 0x800) {
    s += {static_cast<char>(0xc0U | (code >> 6)), static_cast<char>(0x80U | (code & 0x3fU))};
  } else if (code < 0x10000) {
    s += {static_cast<char>(0xe0U | (code >> 12)), static_cast<char>(0x80U | ((code >> 6) & 0x3fU)),
          static_cast<char>(0x80U | (code & 0x3fU))};
  } else {
    s += {static_cast<char>(0xf0U | (code >> 18)), static_cast<char>(0x80U | ((code >> 12) & 0x3fU)),
          static_cast<char>(0x80U | ((code >> 6) & 0x3fU)), static_cast<char>(0x80U | (code & 0x3fU))};
  }
}

char32_t lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c >= 0xc0 && c <= 0xde && c != 0xd7) return c + 32;
  if (c >= 0x391 && c <= 0x3a9 && c != 0x3a2) return c + 32;
  if (c >= 0x400 && c <= 0x40f) return c + 80;
  if (c >= 0x410 && c <= 0x42f) return c + 32;
  if (c >= 0x531 && c <= 0x556) return c + 48;
  if (c == 0x178) return 0xff;
  const bool even_upper = (c >= 0x100 && c <= 0x137) || (c >= 0x14a && c <= 0x177) || (c >= 0x460 && c <= 0x481) ||
                          (c >= 0x1e00 && c <= 0x1e95);
  const bool odd_upper = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e);
  if ((even_upper && c % 2 == 0 && c != 0x130) || (odd_upper && c % 2 == 1)) return c + 1;
  return c;
}

char32_t upper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if (c == 0xff) return 0x178;
  if (c == 0x3c2) return 0x3a3;
  for (char32_t distance : {1U, 32U, 48U, 80U}) {
    if (c > distance && lower(c - distance) == c && c - distance != c) return c - distance;
  }
  return c;
}

std::string map_letters(const std::string& s, char32_t (*map)(char32_t)) {
  std::string result;
  for (std::size_t i = 0; i < s.size();) append_code_point(result, map(next_code_point(s, i)));
  return result;
}

// ---- StringNormalizer: another case, stop words dropped ----

constexpr Attribute kNormalizerAttributes[] = {{"case_change_action", "NONE"},
                                               {"is_case_sensitive", 0},
                                               {"locale", AttrKind::string},
                                               {"stopwords", AttrKind::strings}};

void kernel_normalizer(KernelContext& ctx) {
  const OpView& op = ctx.op();
  const Shape& shape = ctx.in(0).shape();
  const bool one_row = shape.rank() == 2 && shape[0] == 1;
  op.require(shape.rank() == 1 || one_row, "x must have shape C or 1 x C, got {}", shape);
  const std::string_view action = op.s("case_change_action");
  op.require(action == "NONE" || action == "LOWER" || action == "UPPER",
             "case_change_action must be NONE, LOWER or UPPER, got '{}'", shown(action));
  const bool sensitive = op.i("is_case_sensitive") != 0;
  const auto key = [&](const std::string& s) { return sensitive ? s : map_letters(s, lower); };
  std::set<std::string> stop;
  for (const std::string& word : op.attr_strings("stopwords")) stop.insert(key(word));
  std::vector<std::string> kept;
  for (const std::string& word : ctx.in<std::string>(0)) {
    if (stop.count(key(word)) != 0) continue;
    kept.push_back(action == "LOWER" ? map_letters(word, lower) : action == "UPPER" ? map_letters(word, upper) : word);
  }
  if (kept.empty()) kept.emplace_back();
  const auto count = static_cast<std::int64_t>(kept.size());
  ctx.set(0, Tensor::from(kept, one_row ? Shape{1, count} : Shape{count}));
}

// ---- StringConcat ----

Facts infer_concat(const OpView& op) { return {Fact(DType::string, op.broadcast_all())}; }

/// The element of a tensor that broadcasts to `shape` at flat position i.
std::int64_t broadcast_position(const Shape& from, const Shape& shape, std::int64_t i) {
  std::int64_t position = 0, stride = 1;
  for (int d = shape.rank() - 1, f = from.rank() - 1; d >= 0; --d, --f) {
    if (f >= 0 && from[f] != 1) position += i % shape[d] * stride;
    if (f >= 0) stride *= from[f];
    i /= shape[d];
  }
  return position;
}

void kernel_concat(KernelContext& ctx) {
  auto y = ctx.out<std::string>(0);
  const Shape shape = ctx.out(0).shape();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    y[i] = ctx.in<std::string>(0)[static_cast<std::size_t>(broadcast_position(ctx.in(0).shape(), shape, at))] +
           ctx.in<std::string>(1)[static_cast<std::size_t>(broadcast_position(ctx.in(1).shape(), shape, at))];
  }
}

// ---- StringSplit: the parts of each string along a new last axis, filled up with empty ones ----

constexpr Attribute kSplitAttributes[] = {{"delimiter", ""}, {"maxsplit", AttrKind::integer}};

std::vector<std::string> split(const std::string& s, std::string_view delimiter, std::int64_t most) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  std::vector<std::string> parts;
  std::size_t begin = delimiter.empty() ? s.find_first_not_of(kSpace) : 0;
  while (begin != std::string::npos && begin <= s.size()) {
    if (delimiter.empty() && begin == s.size()) break;
    const bool last = static_cast<std::int64_t>(parts.size()) == most;
    const std::size_t end = last                ? std::string::npos
                            : delimiter.empty() ? s.find_first_of(kSpace, begin)
                                                : s.find(delimiter, begin);
    parts.push_back(s.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) break;
    begin = delimiter.empty() ? s.find_first_not_of(kSpace, end) : end + delimiter.size();
  }
  return parts;
}

void kernel_split(KernelContext& ctx) {
  const std::int64_t most = ctx.op().has_attr("maxsplit") ? ctx.op().i("maxsplit") : -1;
  std::vector<std::vector<std::string>> rows;
  std::size_t width = 0;
  for (const std::string& s : ctx.in<std::string>(0)) {
    rows.push_back(split(s, ctx.op().s("delimiter"), most));
    width = std::max(width, rows.back().size());
  }
  Shape out = ctx.in(0).shape();
  ctx.op().require(out.rank() < Shape::kMaxRank, "x has {} dims, one more is not supported", out.rank());
  out.push_back(static_cast<std::int64_t>(width));
  Tensor y = ctx.allocate(0, DType::string, out);
  Tensor counts(DType::i64, ctx.in(0).shape());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(),
              y.mutable_view<std::string>().begin() + static_cast<std::ptrdiff_t>(i * width));
    counts.mutable_view<std::int64_t>()[i] = static_cast<std::int64_t>(rows[i].size());
  }
  if (ctx.wants(1)) ctx.set(1, counts);
}

// ---- RegexFullMatch ----

constexpr Attribute kRegexAttributes[] = {{"pattern", ""}};

Facts infer_regex(const OpView& op) { return {Fact(DType::boolean, op.in(0).shape)}; }

void kernel_regex(KernelContext& ctx) {
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 pattern(std::string(ctx.op().s("pattern")), options);
  ctx.op().require(pattern.ok(), "pattern '{}' is wrong: {}", shown(ctx.op().s("pattern")), pattern.error());
  auto y = ctx.out<bool>(0);
  std::size_t i = 0;
  for (const std::string& s : ctx.in<std::string>(0)) y[i++] = RE2::FullMatch(s, pattern);
}

// ---- TfIdfVectorizer: how often each known n-gram occurs, weighted ----

constexpr Attribute kTfIdfAttributes[] = {{"max_gram_length", AttrKind::integer, Attribute::kRequired},
                                          {"max_skip_count", AttrKind::integer, Attribute::kRequired},
                                          {"min_gram_length", AttrKind::integer, Attribute::kRequired},
                                          {"mode", AttrKind::string, Attribute::kRequired},
                                          {"ngram_counts", AttrKind::integers, Attribute::kRequired},
                                          {"ngram_indexes", AttrKind::integers, Attribute::kRequired},
                                          {"pool_int64s", AttrKind::integers},
                                          {"pool_strings", AttrKind::strings},
                                          {"weights", AttrKind::numbers}};

std::int64_t vocabulary_size(const OpView& op) {
  const auto indexes = op.attr_ints("ngram_indexes");
  std::int64_t most = -1;
  for (std::int64_t i : indexes) {
    op.require(i >= 0 && i < (std::int64_t{1} << 31), "ngram_indexes must not be negative, got {}", i);
    most = std::max(most, i);
  }
  return most + 1;
}

Facts infer_tf_idf(const OpView& op) {
  const Fact& x = op.in(0);
  op.require(x.rank() <= 2, "x must have at most 2 dims, got shape {}", x.shape);
  const std::string_view mode = op.s("mode");
  op.require(mode == "TF" || mode == "IDF" || mode == "TFIDF", "mode must be TF, IDF or TFIDF, got '{}'", shown(mode));
  op.require((x.dtype == DType::string) != op.attr_strings("pool_strings").empty(),
             "the pool and x must both hold strings or both integers");
  op.require(
      op.i("min_gram_length") >= 1 && op.i("max_gram_length") >= op.i("min_gram_length") && op.i("max_skip_count") >= 0,
      "gram lengths must be positive and ascending and max_skip_count not negative, got {}, {} and {}",
      op.i("min_gram_length"), op.i("max_gram_length"), op.i("max_skip_count"));
  const auto weights = op.attr_floats("weights");
  op.require(weights.empty() || weights.size() == op.attr_ints("ngram_indexes").size(),
             "weights must have {} values, got {}", op.attr_ints("ngram_indexes").size(), weights.size());
  const std::int64_t columns = vocabulary_size(op);
  return {Fact(DType::f32, x.rank() == 2 ? Shape{x.shape[0], columns} : Shape{columns})};
}

/// The known n-grams of the lengths asked for, and which one (counted over the pool) each is.
template <class T>
std::map<std::vector<T>, std::size_t> read_pool(const OpView& op, std::span<const T> pool) {
  const auto starts = op.attr_ints("ngram_counts");
  std::map<std::vector<T>, std::size_t> grams;
  std::size_t id = 0;
  for (std::size_t n = 0; n < starts.size(); ++n) {
    const auto total = static_cast<std::int64_t>(pool.size()), length = static_cast<std::int64_t>(n) + 1;
    const std::int64_t begin = starts[n], end = n + 1 < starts.size() ? starts[n + 1] : total;
    op.require(begin >= 0 && begin <= end && end <= total && (end - begin) % length == 0,
               "ngram_counts do not divide the pool of {} values", total);
    for (std::int64_t i = begin; i < end; i += length, ++id) {
      if (length < op.i("min_gram_length") || length > op.i("max_gram_length")) continue;
      grams.emplace(std::vector<T>(pool.begin() + i, pool.begin() + i + length), id);
    }
  }
  op.require(id <= op.attr_ints("ngram_indexes").size(), "the pool holds {} n-grams, ngram_indexes has {} values", id,
             op.attr_ints("ngram_indexes").size());
  return grams;
}

/// Counts in one row: n-grams whose items stand 1 to max_skip_count + 1 apart; single items once.
template <class T>
void count_grams(const OpView& op, const std::map<std::vector<T>, std::size_t>& grams, std::span<const T> row,
                 std::vector<std::int64_t>& counts) {
  const auto length = static_cast<std::int64_t>(row.size());
  for (std::int64_t distance = 1; distance <= op.i("max_skip_count") + 1; ++distance) {
    for (std::int64_t n = op.i("min_gram_length"); n <= op.i("max_gram_length"); ++n) {
      if ((n == 1 && distance > 1) || (n > 1 && distance > length / (n - 1))) continue;
      for (std::int64_t first = 0; first + distance * (n - 1) < length; ++first) {
        std::vector<T> gram;
        for (std::int64_t k = 0; k < n; ++k) gram.push_back(row[static_cast<std::size_t>(first + distance * k)]);
        const auto found = grams.find(gram);
        if (found != grams.end()) ++counts[found->second];
      }
    }
    if (distance > length) break;
  }
}

template <class T>
void tf_idf(KernelContext& ctx, std::span<const T> pool, std::span<const T> x) {
  const OpView& op = ctx.op();
  const auto grams = read_pool(op, pool);
  const auto indexes = op.attr_ints("ngram_indexes");
  const auto weights = op.attr_floats("weights");
  const std::string_view mode = op.s("mode");
  const Shape& shape = ctx.in(0).shape();
  const std::int64_t rows = shape.rank() == 2 ? shape[0] : 1, width = shape.rank() == 0 ? 1 : shape.back(),
                     columns = vocabulary_size(op);
  auto y = ctx.out<float>(0);
  std::fill(y.begin(), y.end(), 0.0F);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::int64_t> counts(indexes.size(), 0);
    count_grams(op, grams, x.subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width)), counts);
    for (std::size_t g = 0; g < counts.size(); ++g) {
      if (counts[g] == 0) continue;
      const double frequency = mode == "IDF" ? 1 : static_cast<double>(counts[g]);
      const double weight = mode == "TF" || weights.empty() ? 1 : weights[g];
      y[static_cast<std::size_t>(r * columns + indexes[g])] += static_cast<float>(frequency * weight);
    }
  }
}

void kernel_tf_idf(KernelContext& ctx) {
  if (ctx.in(0).dtype() == DType::string)
    return tf_idf<std::string>(ctx, ctx.op().attr_strings("pool_strings"), ctx.in<std::string>(0));
  const Tensor x = ctx.in(0).cast(DType::i64);
  tf_idf<std::int64_t>(ctx, ctx.op().attr_ints("pool_int64s"), x.view<std::int64_t>());
}

}  // namespace

extern const OpDef op_string_normalizer;
constinit const OpDef op_string_normalizer = {.name = "StringNormalizer",
                                              .attributes = kNormalizerAttributes,
                                              .forms = {10, 10},
                                              .takes = DType::string,
                                              .dynamic_output = true,
                                              .kernel = kernel_normalizer};

extern const OpDef op_string_concat;
constinit const OpDef op_string_concat = {.name = "StringConcat",
                                          .inputs = 2,
                                          .forms = {20, 20},
                                          .takes = DType::string,
                                          .infer = infer_concat,
                                          .kernel = kernel_concat};

extern const OpDef op_string_split;
constinit const OpDef op_string_split = {.name = "StringSplit",
                                         .outputs = {1, 2},
                                         .attributes = kSplitAttributes,
                                         .forms = {20, 20},
                                         .takes = DType::string,
                                         .dynamic_output = true,
                                         .kernel = kernel_split};

extern const OpDef op_regex_full_match;
constinit const OpDef op_regex_full_match = {.name = "RegexFullMatch",
                                             .attributes = kRegexAttributes,
                                             .forms = {20, 20},
                                             .takes = DType::string,
                                             .infer = infer_regex,
                                             .kernel = kernel_regex};

extern const OpDef op_tf_idf_vectorizer;
constinit const OpDef op_tf_idf_vectorizer = {.name = "TfIdfVectorizer",
                                              .attributes = kTfIdfAttributes,
                                              .forms = {9, 9},
                                              .takes = kIndices | DType::string,
                                              .infer = infer_tf_idf,
                                              .kernel = kernel_tf_idf};

}  // namespace lathe::ops
