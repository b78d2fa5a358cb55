// Shapes, tensors, values and the names shown in messages.
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <limits>
#include <memory>

#include <lathe/info.h>
#include <lathe/tensor.h>

#include "ops/ir/failure.h"

namespace lathe {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(Shape, CountsElementsAndNoticesOverflow) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{2, 3, 4}.elements()), 24);
  EXPECT_EQ((Shape{kHuge, 2}.elements()), -1);
  EXPECT_EQ((Shape{kHuge, kHuge, 0}.elements()), 0);
  EXPECT_EQ((Shape{2, -1}.elements()), -1);
  EXPECT_EQ((Shape{0, -1}.elements()), -1);
}

TEST(Shape, ReadsAsText) {
  EXPECT_EQ(Shape{}.to_string(), "scalar");
  EXPECT_EQ((Shape{1, 3, 224}.to_string()), "1x3x224");
}

TEST(DType, NamesComeBack) {
  for (int code = 0; code < DType::kCount; ++code) {
    const DType dtype = static_cast<DType::Code>(code);
    EXPECT_EQ(DType::from_name(dtype.name()), dtype);
  }
  EXPECT_EQ(DType(DType::boolean).name(), "bool");
  EXPECT_EQ(DType::from_name("float"), DType::undefined);
}

TEST(Tensor, OwnsZeroedAlignedMemory) {
  for (const DType dtype : {DType::f32, DType::u8, DType::c128, DType::i4}) {
    const Tensor t(dtype, {3, 5});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0U);
    for (std::size_t i = 0; i < t.bytes(); ++i) ASSERT_EQ(static_cast<const char*>(t.data())[i], 0);
  }
  const Tensor strings(DType::string, {2});
  EXPECT_EQ(strings.view<std::string>()[1], "");
  EXPECT_EQ(Tensor(DType::f32, {0, 4}).size(), 0);
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().size(), 0);
}

TEST(Tensor, CountsBytes) {
  EXPECT_EQ(Tensor::byte_size(DType::f64, {2, 3}), 48U);
  EXPECT_EQ(Tensor::byte_size(DType::i4, {3}), 2U);
  EXPECT_EQ(Tensor::byte_size(DType::u2, {5}), 2U);
  EXPECT_EQ(Tensor::byte_size(DType::u2, {0}), 0U);
  EXPECT_EQ(Tensor::byte_size(DType::f32, {kHuge}), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(Tensor::byte_size(DType::f32, {kHuge, kHuge}), std::numeric_limits<std::size_t>::max());
}

TEST(Tensor, TooLargeIsAnErrorThatNamesIt) {
  for (const Shape& shape : {Shape{kHuge, kHuge}, Shape{kHuge}, Shape{kHuge / 4}}) {
    const Result<Tensor> made = Tensor::try_make(DType::f32, shape);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::out_of_memory);
    EXPECT_NE(made.error().message.find("f32 " + shape.to_string()), std::string::npos) << made.error().message;
  }
  EXPECT_THROW(Tensor(DType::u8, {kHuge, 4}), std::bad_alloc);
}

TEST(Tensor, TryMakeNamesWhatIsWrong) {
  const Result<Tensor> negative = Tensor::try_make(DType::f32, {2, -1});
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(negative.error().message.find("2x-1"), std::string::npos) << negative.error().message;
  const Result<Tensor> nothing = Tensor::try_make(DType::undefined, {2});
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::invalid_argument);
}

TEST(Tensor, WhatCannotBeMadeIsUndefined) {
  const Tensor t = Tensor::from({1.0F, 2.0F}, {2});
  EXPECT_FALSE(Tensor::borrow(DType::f32, {2, 2}, nullptr).defined());
  EXPECT_FALSE(Tensor::borrow(DType::string, {0}, nullptr).defined());
  EXPECT_FALSE(Tensor::from({1.0F, 2.0F}, {3}).defined());
  EXPECT_FALSE(Tensor::from({1.0F, 2.0F}, {-2}).defined());
  EXPECT_FALSE(t.reshaped({3}).defined());
  EXPECT_FALSE(t.reshaped({-2}).defined());
  EXPECT_FALSE(t.cast(DType::string).defined());
  EXPECT_FALSE(t.cast(DType::undefined).defined());
  EXPECT_FALSE(Tensor::from<std::string>({"1"}, {1}).cast(DType::f32).defined());
  EXPECT_FALSE(Tensor().cast(DType::f32).defined());
  EXPECT_FALSE(Tensor().clone().defined());
  const Tensor empty = Tensor::borrow(DType::f32, {0, 3}, nullptr);
  EXPECT_TRUE(empty.defined());
  EXPECT_NE(empty.data(), nullptr);
}

TEST(Tensor, MovedFromIsUndefined) {
  Tensor t = Tensor::from({1.0F, 2.0F}, {2});
  const Tensor moved = std::move(t);
  EXPECT_FALSE(t.defined());  // NOLINT(bugprone-use-after-move): what this is about
  EXPECT_EQ(t.bytes(), 0U);
  EXPECT_EQ(moved.view<float>()[1], 2.0F);
  t = moved;
  Tensor assigned;
  assigned = std::move(t);
  EXPECT_TRUE(t.view<float>().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(assigned.data(), moved.data());
}

TEST(Tensor, CopiesShareAndClonesDoNot) {
  Tensor a = Tensor::from({1.0F, 2.0F}, {2});
  const Tensor shared = a;
  const Tensor cloned = a.clone();
  a.mutable_view<float>()[0] = 7;
  EXPECT_EQ(shared.view<float>()[0], 7);
  EXPECT_EQ(cloned.view<float>()[0], 1);
  EXPECT_EQ(a.reshaped({1, 2}).data(), a.data());
  const Tensor words = Tensor::from<std::string>({"a", "b"}, {2});
  EXPECT_EQ(words.clone().view<std::string>()[1], "b");
}

TEST(Tensor, BorrowsAndKeepsOwners) {
  float values[] = {1, 2};
  Tensor t = Tensor::borrow(DType::f32, {2}, values);
  t.mutable_view<float>()[1] = 5;
  EXPECT_EQ(values[1], 5);
  auto owner = std::make_shared<std::vector<float>>(4, 3.0F);
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor kept = Tensor::borrow(DType::f32, {4}, owner->data(), owner);
  owner.reset();
  EXPECT_EQ(kept.number(3), 3);
  kept = {};
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, ViewsAreCheckedByDtype) {
  const Tensor t = Tensor::from<std::int32_t>({1, 2, 3}, {3});
  EXPECT_EQ(t.view<std::int32_t>().size(), 3U);
  EXPECT_TRUE(t.view<float>().empty());
}

TEST(Tensor, CastsEveryRealDtypeToEveryOther) {
  const Tensor source = Tensor::from({0.0F, 1.0F, 1.0F, 0.0F, 1.0F}, {5});
  for (int from = 1; from < DType::kCount; ++from) {
    for (int to = 1; to < DType::kCount; ++to) {
      const DType a = static_cast<DType::Code>(from);
      const DType b = static_cast<DType::Code>(to);
      // f8e8m0 has no zero: its smallest value stands for it, and is one as a boolean.
      if (a == DType::string || b == DType::string || a == DType::f8e8m0) continue;
      const Tensor result = source.cast(a).cast(b).cast(DType::f64);
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_NEAR(result.view<double>()[i], source.view<float>()[i], 1e-30) << a.name() << " to " << b.name();
      }
    }
  }
}

TEST(Tensor, CastsComplexByItsRealPart) {
  const Tensor c = Tensor::from<std::complex<float>>({{1.5F, 2}, {0, 3}}, {2});
  EXPECT_EQ(c.cast(DType::f32).view<float>()[0], 1.5F);
  EXPECT_TRUE(c.cast(DType::boolean).view<bool>()[1]);
  EXPECT_EQ(c.cast(DType::c128).view<std::complex<double>>()[0], std::complex<double>(1.5, 2));
}

TEST(Tensor, ReadsNumbersOfAnyDtype) {
  EXPECT_EQ(Tensor::from<std::uint64_t>({~std::uint64_t{0}}, {1}).number(0), 0x1p64);
  EXPECT_EQ(Tensor::from({-2.75}, {1}).integer(0), -2);
  EXPECT_EQ(Tensor::from({true}, {1}).number(0), 1);
  EXPECT_EQ(Tensor::from({-8.0F, 7.0F, 3.0F}, {3}).cast(DType::i4).integer(0), -8);
  EXPECT_EQ(Tensor::scalar(2.5F).cast(DType::f16).number(0), 2.5);
}

TEST(ValueInfo, AdmitsTheShapesThatItsDimsAllow) {
  ValueInfo info;
  EXPECT_TRUE(info.admits({}));
  EXPECT_TRUE(info.admits({2, 3}));
  info.dims = {{.extent = 2, .symbol = {}}, {.extent = -1, .symbol = "n"}};
  EXPECT_TRUE(info.admits({2, 3}));
  EXPECT_TRUE(info.admits({2, 0}));
  for (const Shape& shape : {Shape{}, Shape{2}, Shape{3, 3}, Shape{2, 3, 1}})
    EXPECT_FALSE(info.admits(shape)) << shape.to_string();
}

TEST(Value, HoldsOneKind) {
  const Value tensor = Tensor::scalar(1.0F);
  EXPECT_TRUE(tensor.is_tensor());
  EXPECT_TRUE(tensor.sequence().empty());
  const Value sequence = Sequence{tensor, tensor};
  EXPECT_TRUE(sequence.is_sequence());
  EXPECT_EQ(sequence.sequence().size(), 2U);
  EXPECT_FALSE(sequence.tensor().defined());
  EXPECT_TRUE(Value(Optional{}).is_optional());
  EXPECT_EQ(Value(Optional{}).optional().value, nullptr);
  Map entries;
  entries[std::string("a")] = tensor;
  EXPECT_EQ(Value(entries).map().size(), 1U);
  EXPECT_FALSE(Value().tensor().defined());
}

TEST(Value, MovedFromIsEmpty) {
  Value sequence(Sequence{Tensor::scalar(1.0F)});
  Value map(Map{{std::int64_t{1}, Tensor::scalar(1.0F)}});
  const Value others[] = {std::move(sequence), std::move(map)};
  EXPECT_TRUE(sequence.sequence().empty());  // NOLINT(bugprone-use-after-move): what this is about
  EXPECT_TRUE(map.map().empty());            // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(others[0].sequence().size() + others[1].map().size(), 2U);
}

TEST(Failure, NamesAreSafeToShow) {
  EXPECT_EQ(shown("conv_1/größe 中"), "conv_1/größe 中");
  EXPECT_EQ(shown("a\n\x1b[31m"), "a\\x0a\\x1b[31m");
  EXPECT_EQ(shown("\xff\xc0\xaf"), "\\xff\\xc0\\xaf");
  EXPECT_EQ(shown("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(shown("\xe4\xb8"), "\\xe4\\xb8");           // cut short
  EXPECT_LT(shown(std::string(10000, 'x')).size(), 200U);
}

TEST(Failure, MessagesTakeDtypesAndShapes) {
  try {
    fail(ErrorCode::invalid_model, "{} of {}", DType(DType::bf16), Shape{2, 3});
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "bf16 of 2x3");
    EXPECT_EQ(to_string(failure.error.code), "invalid_model");
  }
}

}  // namespace
}  // namespace lathe
