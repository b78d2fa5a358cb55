// Random graphs answer alike with all passes and with none, whatever shapes come in whatever order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include <lathe/tools.h>

#include "tests/fuzz/random.h"
#include "tests/support/engine_of.h"
#include "tests/support/random_graph.h"
#include "tests/support/rounds.h"

namespace lathe::tests {
namespace {

constexpr double kTolerance = 2e-5;

/// What an environment variable says, or what stands in its place.
std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* value = std::getenv(variable);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

Inputs random_inputs(const RandomGraph& graph, const Shapes& shapes, fuzz::Random& random) {
  Inputs inputs;
  for (const NamedShape& s : shapes) {
    Tensor x(DType::f32, s.shape);
    for (float& v : x.mutable_view<float>()) v = static_cast<float>(random.unit() * 2 - 1);
    inputs.add(s.name, x);
  }
  for (const std::string& flag : graph.flags) inputs.add(flag, Tensor::scalar(random.one_in(2)));
  return inputs;
}

/// Where two runs differ; empty where they do not.
std::string difference(const Result<Outputs>& a, const Result<Outputs>& b) {
  if (!a || !b) return fmt::format("{} / {}", a ? "ran" : a.error().message, b ? "ran" : b.error().message);
  for (std::size_t i = 0; i < a->size(); ++i) {
    const Tensor& x = (*a)[i].tensor();
    const Tensor& y = (*b)[i].tensor();
    if (!(x.shape() == y.shape()))
      return fmt::format("output {}: {} / {}", i, x.shape().to_string(), y.shape().to_string());
    double largest = 1;
    for (float v : x.view<float>()) largest = std::isfinite(v) ? std::max<double>(largest, std::abs(v)) : largest;
    for (std::int64_t e = 0; e < x.size(); ++e) {
      const double v = x.number(e);
      const double w = y.number(e);
      const bool same = v == w || (std::isnan(v) && std::isnan(w)) || std::abs(v - w) <= kTolerance * largest;
      if (!same) return fmt::format("output {} element {}: {} / {}", i, e, v, w);
    }
  }
  return {};
}

/// Runs a graph on its shapes in random order by an engine with `options` and by one without passes whose operators
/// follow their definitions one by one; says how they differ.
std::string difference(std::uint64_t seed, int steps, const EngineOptions& options) {
  const RandomGraph graph = random_graph(seed, steps);
  const auto engine = try_engine_of(graph.model, options);
  const auto plain = try_engine_of(graph.model, {.threads = 1, .passes = "-all", .backends = {"plain"}});
  if (!engine || !plain) return fmt::format("not loaded: {}", (engine ? plain : engine).error().message);
  fuzz::Random random(seed);
  for (std::size_t run = 0; run < graph.shapes.size() + 2; ++run) {
    const Shapes& shapes = graph.shapes[random.below(graph.shapes.size())];
    const Inputs inputs = random_inputs(graph, shapes, random);
    const std::string text = difference(plain->try_run(inputs), engine->try_run(inputs));
    if (text.empty()) continue;
    std::string of;
    for (const NamedShape& s : shapes) of += fmt::format(" {}: {}", s.name, s.shape.to_string());
    return fmt::format("run {}, {}: {}\n{}", run, of, text,
                       tools::graph(*plain, tools::Stage::frozen, tools::GraphFormat::text));
  }
  return {};
}

/// LATHE_RANDOM_GRAPHS says how many graphs, LATHE_RANDOM_SEED which comes first.
void check(std::uint64_t first, std::uint64_t count, const EngineOptions& options) {
  first = number("LATHE_RANDOM_SEED", first);
  count = number("LATHE_RANDOM_GRAPHS", count);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    constexpr int kSteps = 14;
    if (difference(seed, kSteps, options).empty()) continue;
    int steps = 1;
    while (steps < kSteps && difference(seed, steps, options).empty()) ++steps;
    ADD_FAILURE() << "seed " << seed << ", " << steps << " steps, " << difference(seed, steps, options);
  }
}

// Without compiled code, which takes most of the time, the kernels that fusion makes are evaluated as they are
// described.
TEST(RandomGraphs, AllPassesKeepTheAnswers) {
  check(1, test::rounds(600), {.threads = 1, .backends = {"onednn", "plain"}});
}

TEST(RandomGraphs, PlainKernelsAfterAllPassesKeepTheAnswers) {
  check(1001, test::rounds(300), {.threads = 1, .backends = {"plain"}});
}

TEST(RandomGraphs, UnfusedNodesKeepTheAnswers) {
  check(2001, test::rounds(200), {.threads = 1, .passes = "-graph_fuse", .backends = {"onednn", "plain"}});
}

TEST(RandomGraphs, FusionAloneKeepsTheAnswers) {
  std::string others;
  for (const std::string& word : tools::pass_switches()) {
    if (word != "-all" && word != "-graph_fuse") others += (others.empty() ? "" : ",") + word;
  }
  check(3001, test::rounds(200), {.threads = 1, .passes = others, .backends = {"onednn", "plain"}});
}

TEST(RandomGraphs, CompiledCodeKeepsTheAnswers) { check(4001, test::rounds(24), {.threads = 1}); }

TEST(RandomGraphs, CompiledLoopsAloneKeepTheAnswers) {
  check(5001, test::rounds(24), {.threads = 1, .backends = {"jit", "plain"}});
}

}  // namespace
}  // namespace lathe::tests
