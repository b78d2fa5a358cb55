// What the verifier refuses, what a structure key tells apart, and the order of the parameters.
#include "ops/loops/kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/random_kernel.h"

namespace lathe::loops {
namespace {

/// y[i] = max over j of (x[i, j] if 0 <= i - 1 < 3 else 0) + table[index[i]] * n0; 4 x 6.
Kernel example() {
  Kernel k;
  k.name = "example";
  k.outer = 1;
  k.inner = 1;
  k.extents = {4, 6};
  k.buffers = {{DType::f32, false}, {DType::i64, false}, {DType::f32, false}, {DType::f32, true}};
  Access x{.buffer = 0, .offset = -8, .strides = {8, 1}};
  x.guards = {{.base = -1, .extent = 3, .coef = {1}}};
  x.fallback = 0;
  Access table{.buffer = 2, .offset = 5, .strides = {}};
  table.indirect = {{.inst = 2, .extent = 9, .stride = 2}};
  k.loads = {x, {.buffer = 1, .offset = 0, .strides = {1}}, table};
  k.numbers = {{.value = 0.5}};
  k.insts = {{.op = Op::constant, .dtype = DType::f32, .imm = 0},
             {.op = Op::load, .dtype = DType::f32, .index = 0},
             {.op = Op::load, .dtype = DType::i64, .index = 1},
             {.op = Op::load, .dtype = DType::f32, .index = 2},
             {.op = Op::number, .dtype = DType::f32, .index = 0},
             {.op = Op::mul, .dtype = DType::f32, .a = 3, .b = 4},
             {.op = Op::reduce, .dtype = DType::f32, .a = 1, .reduction = Reduction::max},
             {.op = Op::add, .dtype = DType::f32, .a = 6, .b = 5}};
  k.stores = {{7, {.buffer = 3, .offset = 0, .strides = {1}}}};
  return k;
}

using Change = std::function<void(Kernel&)>;

TEST(LoopsKernel, TheVerifierNamesTheFault) {
  ASSERT_EQ(verify(example()), "");
  const std::pair<std::string, Change> faults[] = {
      {"at most 16", [](Kernel& k) { k.outer = 16; }},
      {"extent of dim 1 is -2", [](Kernel& k) { k.extents[1] = -2; }},
      {"buffer 1 has dtype undefined", [](Kernel& k) { k.buffers[1].dtype = DType::undefined; }},
      {"instruction 5 (mul): operand 1 is 9", [](Kernel& k) { k.insts[5].b = 9; }},
      {"instruction 5 (mul): operand 0 is -1", [](Kernel& k) { k.insts[5].a = -1; }},
      {"instruction 5 (mul): operand 2 is 0", [](Kernel& k) { k.insts[5].c = 0; }},
      {"operands of f32 and i64", [](Kernel& k) { k.insts[5].b = 2; }},
      {"dtype f64, not f32", [](Kernel& k) { k.insts[5].dtype = DType::f64; }},
      {"not defined on i64", [](Kernel& k) { k.insts[5] = {.op = Op::exp, .dtype = DType::i64, .a = 2}; }},
      {"no load 7", [](Kernel& k) { k.insts[1].index = 7; }},
      {"no number 3", [](Kernel& k) { k.insts[4].index = 3; }},
      {"no buffer 8", [](Kernel& k) { k.loads[0].buffer = 8; }},
      {"reads output buffer 3", [](Kernel& k) { k.loads[0].buffer = 3; }},
      {"dtype f16 from a buffer of f32", [](Kernel& k) { k.insts[1].dtype = DType::f16; }},
      {"fallback is a load", [](Kernel& k) { k.insts[0] = k.insts[2]; }},
      {"fallback is -1", [](Kernel& k) { k.loads[0].fallback = -1; }},
      {"a fallback without guards", [](Kernel& k) { k.loads[1].fallback = 0; }},
      {"index from instruction 3", [](Kernel& k) { k.loads[2].indirect[0].inst = 3; }},
      {"index of dtype f32", [](Kernel& k) { k.loads[2].indirect[0].inst = 1; }},
      {"dtype f32, not i64", [](Kernel& k) { k.insts[6].reduction = Reduction::argmax_first; }},
      {"writes input buffer 0", [](Kernel& k) { k.stores[0].access.buffer = 0; }},
      {"f32 to a buffer of f16", [](Kernel& k) { k.buffers[3].dtype = DType::f16; }},
      {"writes the same element 4 times along dim 0", [](Kernel& k) { k.stores[0].access.strides[0] = 0; }},
      {"writes the same element 6 times along dim 1", [](Kernel& k) { k.stores[0].inst = 1; }},
      {"guards or indices", [](Kernel& k) { k.stores[0].access.guards.push_back({}); }},
      {"no instruction 11", [](Kernel& k) { k.stores[0].inst = 11; }},
  };
  for (const auto& [message, change] : faults) {
    Kernel k = example();
    change(k);
    EXPECT_NE(verify(k).find(message), std::string::npos) << message << " not in: " << verify(k);
  }
}

TEST(LoopsKernel, NumbersAreNotStructure) {
  const Change changes[] = {
      [](Kernel& k) { k.name = "other"; },
      [](Kernel& k) {
        k.extents = {40, 1000};
      },
      [](Kernel& k) { k.loads[0].offset = 3; },
      [](Kernel& k) { k.loads[0].strides[0] = 512; },
      [](Kernel& k) { k.loads[0].guards[0].base = 7; },
      [](Kernel& k) { k.loads[0].guards[0].extent = 7; },
      [](Kernel& k) { k.loads[2].indirect[0].extent = 70; },
      [](Kernel& k) { k.loads[2].indirect[0].stride = 70; },
      [](Kernel& k) { k.numbers[0].value = 2; },
  };
  for (const Change& change : changes) {
    Kernel k = example();
    change(k);
    EXPECT_EQ(structure_key(k), structure_key(example()));
  }
}

TEST(LoopsKernel, EveryPartOfTheStructureIsInTheKey) {
  const Change changes[] = {
      [](Kernel&) {},
      [](Kernel& k) { k.outer = 0, k.inner = 2; },
      [](Kernel& k) { k.buffers[2].dtype = DType::f64; },
      [](Kernel& k) { k.buffers[2].output = true; },
      [](Kernel& k) { k.loads[0].buffer = 2; },
      [](Kernel& k) { k.loads[0].strides[0] = 1; },
      [](Kernel& k) { k.loads[0].strides[0] = 0; },
      [](Kernel& k) { k.loads[0].strides[1] = -1; },
      [](Kernel& k) { k.loads[0].guards[0].coef[1] = 1; },
      [](Kernel& k) { k.loads[0].guards[0].coef[0] = 2; },
      [](Kernel& k) { k.loads[0].guards.push_back({}); },
      [](Kernel& k) { k.loads[0].fallback = 4; },
      [](Kernel& k) { k.loads[2].indirect.clear(); },
      [](Kernel& k) { k.loads[2].indirect[0].inst = 1; },
      [](Kernel& k) { k.insts[0].imm = 1; },
      [](Kernel& k) { k.insts[0].imm = -0.0; },
      [](Kernel& k) { k.insts[0].dtype = DType::f64; },
      [](Kernel& k) { k.insts[5].op = Op::div; },
      [](Kernel& k) { k.insts[5].a = 4; },
      [](Kernel& k) { k.insts[5].b = 3; },
      [](Kernel& k) { k.insts[6].reduction = Reduction::min; },
      [](Kernel& k) { k.insts[3].index = 1; },
      [](Kernel& k) { k.stores[0].inst = 6; },
      [](Kernel& k) { k.stores[0].access.strides[0] = 2; },
      [](Kernel& k) { k.stores.push_back(k.stores[0]); },
      [](Kernel& k) { k.numbers.push_back({}); },
      [](Kernel& k) { k.insts.pop_back(); },
  };
  std::set<std::string> keys;
  for (const Change& change : changes) {
    Kernel k = example();
    change(k);
    EXPECT_TRUE(keys.insert(structure_key(k)).second) << "change " << keys.size();
  }
}

TEST(LoopsKernel, KeysTellManyInstructionsApart) {
  Kernel k = example();
  for (int i = 0; i < 300; ++i) k.insts.push_back({.op = Op::neg, .dtype = DType::f32, .a = 7 + i});
  Kernel other = k;
  EXPECT_EQ(structure_key(k), structure_key(other));
  other.insts.back().a = 300;
  EXPECT_NE(structure_key(k), structure_key(other));
}

TEST(LoopsKernel, RandomKernelsShareAKeyOnlyWithTheSameInstructions) {
  std::map<std::string, std::string> seen;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Kernel k = test::random_kernel(seed).kernel;
    std::string shape = std::to_string(k.outer) + ' ' + std::to_string(k.inner);
    for (const Inst& inst : k.insts) {
      shape += ' ' + std::string(name(inst.op)) + ' ' + std::string(inst.dtype.name()) + ' ' + std::to_string(inst.a) +
               ' ' + std::to_string(inst.b) + ' ' + std::to_string(inst.c);
    }
    const auto [entry, is_new] = seen.emplace(structure_key(k), shape);
    EXPECT_EQ(entry->second, shape) << seed;
  }
  EXPECT_GT(seen.size(), 700U);
}

TEST(LoopsKernel, ParametersComeInTheDocumentedOrder) {
  Kernel k = example();
  k.insts.push_back({.op = Op::number, .dtype = DType::i64, .index = 1});
  k.numbers.push_back({.value = 9, .integer = -3});
  const std::vector<std::int64_t> expected = {4,
                                              6,  // extents
                                              -8,
                                              8,
                                              1,  // load 0: offset, strides
                                              -1,
                                              3,
                                              1,
                                              0,  // its guard: base, extent, coefficients
                                              0,
                                              1,
                                              0,  // load 1
                                              5,
                                              0,
                                              0,
                                              9,
                                              2,  // load 2, its index: extent, stride
                                              0,
                                              1,
                                              0,  // store
                                              std::bit_cast<std::int64_t>(0.5),
                                              -3};
  EXPECT_EQ(pack_params(k), expected);
}

TEST(LoopsKernel, ReadsAsText) {
  EXPECT_EQ(to_string(example()),
            "kernel example outer [4] inner [6]\n"
            "  b0: f32 in\n"
            "  b1: i64 in\n"
            "  b2: f32 in\n"
            "  b3: f32 out\n"
            "  %0 = f32 constant 0\n"
            "  %1 = f32 load b0[-8 + 8*d0 + 1*d1] if 0 <= -1 + 1*d0 < 3 else %0\n"
            "  %2 = i64 load b1[0 + 1*d0]\n"
            "  %3 = f32 load b2[5 + 2*index(%2 < 9)]\n"
            "  %4 = f32 number n0 = 0.5\n"
            "  %5 = f32 mul %3 %4\n"
            "  %6 = f32 reduce max %1\n"
            "  %7 = f32 add %6 %5\n"
            "  b3[0 + 1*d0] = %7\n");
}

}  // namespace
}  // namespace lathe::loops
