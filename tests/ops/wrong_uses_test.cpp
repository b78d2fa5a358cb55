// Wrong uses of every operator: each is refused in words that name the node and the rule that it breaks.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ops/ir/text.h"
#include "tests/ops/run_op.h"
#include "tests/ops/wrong_uses.h"

namespace lathe::ops {
namespace {

std::vector<std::string> split(std::string_view text, std::string_view at) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(at);
    if (const std::string_view part = text.substr(0, end); !part.empty()) parts.emplace_back(part);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + at.size());
  }
  return parts;
}

/// The row's use of one operator as the text of a graph.
std::string graph_of(const std::string& op, std::string_view use) {
  const auto [domain, base] = split_name(op);
  const OpDef* definition = find_operator(base, domain);
  int outputs = definition ? std::max(definition->outputs.least, 1) : 1;
  const std::size_t open = use.find('(');
  if (open > 0) outputs = use[0] - '0';
  const std::size_t close = use.rfind(") {") == std::string_view::npos ? use.size() - 1 : use.rfind(") {");
  std::string inputs, constants, arguments, results;
  int i = 0;
  for (const std::string& part : split(use.substr(open + 1, close - open - 1), "; ")) {
    const std::string name = fmt::format("%x{}", i++);
    if (!arguments.empty()) arguments += ", ";
    arguments += part == "_" ? "_" : name;
    if (part.find("] ") != std::string::npos) {
      constants += fmt::format("  {} = constant {}\n", name, part);
    } else if (part != "_") {
      inputs += fmt::format("{}{}: {}", inputs.empty() ? "" : ", ", name, part);
    }
  }
  for (int o = 0; o < outputs; ++o) results += fmt::format("{}%y{}", o > 0 ? ", " : "", o);
  return fmt::format("graph g({}) {{\n{}  {} = {}({}){} @the_node\n  return {}\n}}\n", inputs, constants, results, op,
                     arguments, use.substr(close + 1), results);
}

/// What the operator says to it.
std::string message_of(const std::string& text) {
  try {
    const Graph graph = parse_text(text);
    const Node& node = graph.node(graph.order().front());
    std::vector<Value> values;
    Node alone;
    alone.op = node.op;
    alone.name = node.name;
    alone.attributes = node.attributes;
    for (ValueId id : node.inputs) {
      alone.inputs.push_back(id == kNone ? kNone : static_cast<ValueId>(values.size()));
      const ValueDef* value = id == kNone ? nullptr : &graph.value(id);
      if (!value) {
        values.emplace_back();
      } else if (value->is_constant()) {
        values.emplace_back(value->constant);
      } else {
        Shape shape;
        for (const Dim& d : *value->declared->dims) shape.push_back(d.extent);
        values.emplace_back(Tensor(value->declared->dtype, shape));
      }
    }
    for (std::size_t o = 0; o < node.outputs.size(); ++o)
      alone.outputs.push_back(static_cast<ValueId>(node.inputs.size() + o));
    check_schema(alone);
    evaluate_node(alone, values);
  } catch (const Failure& failure) {
    return failure.error.message;
  }
  return "it was taken";
}

TEST(WrongUses, AreRefusedByNameAndRule) {
  for (const Row& row : kRows) {
    for (const std::string& op : split(row.operators, " ")) {
      const std::string message = message_of(graph_of(op, row.use));
      const std::size_t node = message.find(" 'the_node': ");
      EXPECT_TRUE(node != std::string::npos && message.find(row.rule, node) != std::string::npos)
          << op << row.use << "\n  says " << message << "\n  expected 'the_node': " << row.rule;
    }
  }
}

/// Those that take anything have only their schema to break.
bool is_tested(const OpDef& op) {
  constexpr std::string_view kTakesAnything[] = {
      "Identity", "Shape", "Size", "NonZero", "Optional", "OptionalGetElement", "OptionalHasElement"};
  if (std::find(std::begin(kTakesAnything), std::end(kTakesAnything), op.name) != std::end(kTakesAnything))
    return false;
  return op.domain != "lathe" && op.region == Region::none && (op.inputs.most > 0 || !op.attributes.empty());
}

std::string full_name(const OpDef& op) {
  return op.domain.empty() ? std::string(op.name) : fmt::format("{}::{}", op.domain, op.name);
}

TEST(WrongUses, OfEveryOperator) {
  std::set<std::string, std::less<>> named;
  for (const Row& row : kRows) {
    for (std::string& op : split(row.operators, " ")) named.insert(std::move(op));
  }
  for (const OpDef* op : all_operators()) {
    EXPECT_TRUE(!is_tested(*op) || named.contains(full_name(*op))) << full_name(*op) << " has no row";
  }
}

// ---- what the schema alone decides ----

Node node_of(const OpDef& op, int inputs) {
  Node node;
  node.op = &op;
  node.name = "the_node";
  for (int i = 0; i < inputs; ++i) node.inputs.push_back(i);
  for (int o = 0; o < std::max(op.outputs.least, 1); ++o) node.outputs.push_back(inputs + o);
  for (const Attribute& a : op.attributes) {
    if (!a.required) continue;
    switch (a.kind) {
      case AttrKind::number:
        node.attributes.set(std::string(a.name), 1.0);
        break;
      case AttrKind::string:
        node.attributes.set(std::string(a.name), std::string());
        break;
      case AttrKind::tensor:
        node.attributes.set(std::string(a.name), floats({1}));
        break;
      case AttrKind::integers:
        node.attributes.set(std::string(a.name), std::vector<std::int64_t>());
        break;
      case AttrKind::numbers:
        node.attributes.set(std::string(a.name), std::vector<double>());
        break;
      case AttrKind::strings:
        node.attributes.set(std::string(a.name), std::vector<std::string>());
        break;
      default:
        node.attributes.set(std::string(a.name), std::int64_t{1});
    }
  }
  return node;
}

void expect_refused(const Node& node, const std::string& rule) {
  try {
    check_schema(node);
    ADD_FAILURE() << describe(node) << " was taken, expected: " << rule;
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.message, fmt::format("{} 'the_node': {}", node.op->name, rule));
  }
}

TEST(WrongUses, OfTheSchemaOfEveryOperator) {
  for (const OpDef* op : all_operators()) {
    if (op->region != Region::none) continue;
    const int least = op->inputs.least, most = op->inputs.most;
    const std::string range = least == most          ? fmt::format("{}", least)
                              : most >= Arity::kMany ? fmt::format("at least {}", least)
                                                     : fmt::format("{} to {}", least, most);
    check_schema(node_of(*op, least));
    if (most < Arity::kMany)
      expect_refused(node_of(*op, most + 1), fmt::format("{} inputs, expected {}", most + 1, range));
    if (least > 0) expect_refused(node_of(*op, least - 1), fmt::format("{} inputs, expected {}", least - 1, range));
    if (most < Arity::kMany) {
      for (int i = 0; i < least; ++i) {
        Node node = node_of(*op, least);
        node.inputs[static_cast<std::size_t>(i)] = kNone;
        expect_refused(node, fmt::format("input {} is required", i));
      }
    }
    Node unknown = node_of(*op, least);
    unknown.attributes.set("no_such", std::int64_t{1});
    expect_refused(unknown, "unknown attribute 'no_such'");
    for (const Attribute& a : op->attributes) {
      Node node = node_of(*op, least);
      if (a.required) {
        node.attributes.erase(a.name);
        expect_refused(node, fmt::format("attribute '{}' is required", a.name));
      }
      node.attributes.set(std::string(a.name), a.kind == AttrKind::strings ? AttrValue(std::int64_t{1})
                                                                           : AttrValue(std::vector<std::string>{"x"}));
      constexpr std::string_view kKinds[] = {"an integer", "a float", "a string", "a tensor", "integers",
                                             "floats",     "strings", "tensors",  "a type"};
      expect_refused(node, fmt::format("attribute '{}' must be {}", a.name, kKinds[static_cast<std::size_t>(a.kind)]));
    }
  }
}

}  // namespace
}  // namespace lathe::ops
