// What the attentions of several domains share: heads apart and together, and the attention itself in simpler
// operators.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ops/ir/builder.h"

namespace lathe::ops {

/// [batch, length, hidden] to [batch, heads, length, hidden / heads]; `heads` is a 1-D i64 of one element.
ValueId split_heads(Builder& b, ValueId x, ValueId heads);
/// [batch, heads, length, width] to [batch, length, heads · width].
ValueId merge_heads(Builder& b, ValueId x);

/// softmax(q · k' · scale, capped, masked) · v. q, k and v are [batch, heads, length, width]; each head of k and v
/// serves as many neighbours of q. Numbers are computed in q's dtype.
struct AttentionTerms {
  ValueId q = kNone, k = kNone, v = kNone;
  bool same_heads = false;       ///< the model says that q and k have equally many
  std::optional<double> scale;   ///< 1 / sqrt(width) where absent
  double softcap = 0;            ///< 0 for none
  bool causal = false;           ///< a query sees no key behind its own position
  std::int64_t left = -1;        ///< how many keys before its position it sees; -1 for all
  std::int64_t right = -1;       ///< how many behind
  ValueId mask = kNone;          ///< broadcasts to the scores: booleans, or numbers that are added
  ValueId lengths = kNone;       ///< i64 [batch]: keys from there on are masked
  ValueId past = kNone;          ///< a cache [batch, heads, length, …] behind which the queries stand
  ValueId positions = kNone;     ///< i64 [batch]: where the first query stands, in the place of `past`
  ValueId sinks = kNone;         ///< [heads]: a score of no key, which takes its part of the softmax
  std::optional<DType> softmax;  ///< the dtype of the softmax where another than q's
};

struct AttentionStages {
  ValueId scaled, capped, masked, weights;  ///< [batch, heads, queries, keys]
  ValueId y;                                ///< [batch, heads, queries, width of v]
};

AttentionStages attend(Builder& b, const AttentionTerms& terms);

}  // namespace lathe::ops
