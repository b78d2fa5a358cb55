// What of a loop description decides machine code (the structure key), and the numbers that code reads (the
// parameters).
#include <bit>
#include <cstring>

#include "ops/loops/kernel.h"

namespace lathe::loops {
namespace {

/// Appends bytes to a string whose room was measured beforehand.
class KeyWriter {
 public:
  explicit KeyWriter(std::size_t room) { key_.resize(room); }

  void byte(int value) { key_[size_++] = static_cast<char>(value); }
  /// Indices and counts: below 255 one byte; -1 is written as 0.
  void index(std::size_t value) {
    if (value < 255) return byte(static_cast<int>(value));
    byte(255);
    word(value);
  }
  void index(int value) { index(static_cast<std::size_t>(value) + 1); }
  void word(std::uint64_t value) {
    std::memcpy(key_.data() + size_, &value, sizeof value);
    size_ += sizeof value;
  }
  /// Whether each coefficient is 0, 1 or anything.
  void classes(const Dims& coefficients, int rank) {
    for (int d = 0; d < rank; ++d) {
      const std::int64_t c = coefficients[static_cast<std::size_t>(d)];
      byte(c == 0 || c == 1 ? static_cast<int>(c) : 2);
    }
  }
  void access(const Access& a, int rank) {
    index(a.buffer);
    classes(a.strides, rank);
    index(a.guards.size());
    for (const Guard& guard : a.guards) classes(guard.coef, rank);
    index(a.indirect.size());
    for (const Indirect& indirect : a.indirect) index(indirect.inst);
    index(a.fallback);
  }
  void inst(const Inst& i) {
    byte(static_cast<int>(i.op));
    byte(i.dtype);
    switch (i.op) {
      case Op::constant:
        return word(i.dtype.is_float() ? std::bit_cast<std::uint64_t>(i.imm) : static_cast<std::uint64_t>(i.imm_int));
      case Op::number:
      case Op::loop_index:
      case Op::load:
        return index(i.index);
      case Op::reduce:
        byte(static_cast<int>(i.reduction));
        break;
      default:
        break;
    }
    const int operands[] = {i.a, i.b, i.c};
    for (int o = 0; o < arity(i.op); ++o) index(operands[o]);
  }

  std::string finish() && {
    key_.resize(size_);
    return std::move(key_);
  }

 private:
  std::string key_;
  std::size_t size_ = 0;
};

constexpr std::size_t kIndexBytes = 9;

std::size_t access_room(const Access& a, std::size_t rank) {
  return (4 + a.indirect.size()) * kIndexBytes + (1 + a.guards.size()) * rank;
}

std::size_t key_room(const Kernel& k) {
  const auto rank = static_cast<std::size_t>(k.rank());
  std::size_t room = 2 + 5 * kIndexBytes + k.buffers.size() * 2 + k.insts.size() * (3 + 3 * kIndexBytes);
  for (const Access& load : k.loads) room += access_room(load, rank);
  for (const Store& store : k.stores) room += kIndexBytes + access_room(store.access, rank);
  return room;
}

std::size_t access_params(const Access& a, std::size_t rank) {
  return 1 + rank + a.guards.size() * (2 + rank) + a.indirect.size() * 2;
}

std::int64_t* write_dims(std::int64_t* out, const Dims& dims, std::size_t rank) {
  std::memcpy(out, dims.data(), rank * sizeof(std::int64_t));
  return out + rank;
}

std::int64_t* write_access(std::int64_t* out, const Access& a, std::size_t rank) {
  *out++ = a.offset;
  out = write_dims(out, a.strides, rank);
  for (const Guard& guard : a.guards) {
    *out++ = guard.base;
    *out++ = guard.extent;
    out = write_dims(out, guard.coef, rank);
  }
  for (const Indirect& indirect : a.indirect) {
    *out++ = indirect.extent;
    *out++ = indirect.stride;
  }
  return out;
}

}  // namespace

std::string structure_key(const Kernel& k) {
  KeyWriter w(key_room(k));
  w.byte(k.outer);
  w.byte(k.inner);
  w.index(k.buffers.size());
  for (const Buffer& buffer : k.buffers) {
    w.byte(buffer.dtype);
    w.byte(buffer.output ? 1 : 0);
  }
  w.index(k.loads.size());
  for (const Access& load : k.loads) w.access(load, k.rank());
  w.index(k.insts.size());
  for (const Inst& inst : k.insts) w.inst(inst);
  w.index(k.stores.size());
  for (const Store& store : k.stores) {
    w.index(store.inst);
    w.access(store.access, k.rank());
  }
  w.index(k.numbers.size());
  return std::move(w).finish();
}

std::vector<std::int64_t> pack_params(const Kernel& k) {
  const auto rank = static_cast<std::size_t>(k.rank());
  std::size_t count = rank + k.numbers.size();
  for (const Access& load : k.loads) count += access_params(load, rank);
  for (const Store& store : k.stores) count += access_params(store.access, rank);

  std::vector<std::int64_t> params(count);
  std::int64_t* out = write_dims(params.data(), k.extents, rank);
  for (const Access& load : k.loads) out = write_access(out, load, rank);
  for (const Store& store : k.stores) out = write_access(out, store.access, rank);
  for (const Number& number : k.numbers) *out++ = number.integer;
  const std::size_t first_number = count - k.numbers.size();
  for (const Inst& inst : k.insts) {
    if (inst.op != Op::number || !inst.dtype.is_float()) continue;
    const auto i = static_cast<std::size_t>(inst.index);
    params[first_number + i] = std::bit_cast<std::int64_t>(k.numbers[i].value);
  }
  return params;
}

}  // namespace lathe::loops
