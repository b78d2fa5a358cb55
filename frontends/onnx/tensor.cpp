// Tensor data in all of ONNX's forms: raw, typed fields, external files, sparse. No byte is allocated before the data
// is there.
#include "frontends/onnx/tensor.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "frontends/onnx/wire.h"
#include "ops/ir/failure.h"

namespace lathe::frontends::onnx {
namespace {

using Runs = std::vector<std::string_view>;  // a repeated scalar field as it lies in the file

struct TensorProto {
  std::string_view name;
  std::vector<std::int64_t> dims;
  std::int64_t data_type = 0;
  bool has_raw = false;
  std::string_view raw;
  Runs float_data, int32_data, int64_data, double_data, uint64_data;
  std::vector<std::string_view> string_data;
  std::vector<std::string_view> external;  // StringStringEntryProto messages
  bool is_external = false;
};

TensorProto parse_tensor(std::string_view bytes) {
  TensorProto t;
  Message m(bytes, "TensorProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        m.integers(t.dims);
        break;
      case 2:
        t.data_type = m.integer();
        break;
      case 4:
        t.float_data.push_back(m.scalars());
        break;
      case 5:
        t.int32_data.push_back(m.scalars());
        break;
      case 6:
        t.string_data.push_back(m.bytes());
        break;
      case 7:
        t.int64_data.push_back(m.scalars());
        break;
      case 8:
        t.name = m.bytes();
        break;
      case 9:
        t.raw = m.bytes(), t.has_raw = true;
        break;
      case 10:
        t.double_data.push_back(m.scalars());
        break;
      case 11:
        t.uint64_data.push_back(m.scalars());
        break;
      case 13:
        t.external.push_back(m.bytes());
        break;
      case 14:
        t.is_external = m.integer() == 1;
        break;
      default:
        m.skip();
    }
  }
  return t;
}

std::size_t to_size(std::string_view text, std::string_view what) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::invalid_model, "external data: {} '{}' is not a size", what, shown(text));
  }
  return value;
}

/// The part of a companion file that holds the data.
std::string_view external_bytes(const TensorProto& t, const ModelSource* source, std::size_t expected) {
  std::string_view location;
  std::size_t offset = 0;
  std::size_t length = expected;
  for (std::string_view entry : t.external) {
    std::string_view key;
    std::string_view value;
    Message m(entry, "StringStringEntryProto");
    while (m.next()) {
      switch (m.field()) {
        case 1:
          key = m.bytes();
          break;
        case 2:
          value = m.bytes();
          break;
        default:
          m.skip();
      }
    }
    if (key == "location") location = value;
    if (key == "offset") offset = to_size(value, key);
    if (key == "length") length = to_size(value, key);
  }
  if (!source) fail(ErrorCode::invalid_model, "external data is not allowed here");
  const std::span<const std::byte> file = source->companion(location);
  if (offset > file.size() || length > file.size() - offset) {
    fail(ErrorCode::invalid_model, "external data '{}' has {} bytes, but offset {} and length {} are wanted",
         shown(location), file.size(), offset, length);
  }
  return {reinterpret_cast<const char*>(file.data()) + offset, length};
}

[[noreturn]] void fail_count(std::uint64_t found, std::uint64_t expected, const char* what) {
  fail(ErrorCode::invalid_model, "holds {} {}, but its shape needs {}", found, what, expected);
}

/// Copies fixed-width elements; `unit` is the width of one number in the file.
void copy_fixed(const Runs& runs, std::size_t unit, Tensor& out) {
  std::size_t total = 0;
  for (std::string_view run : runs) total += run.size();
  if (total != out.bytes()) fail_count(total / unit, out.bytes() / unit, "numbers");
  auto* to = static_cast<char*>(out.mutable_data());
  for (std::string_view run : runs) {
    std::memcpy(to, run.data(), run.size());
    to += run.size();
  }
}

std::uint64_t count_varints(const Runs& runs) {
  std::uint64_t count = 0;
  for (std::string_view run : runs) {
    for (char c : run) count += (static_cast<unsigned char>(c) & 0x80U) == 0 ? 1 : 0;
  }
  return count;
}

/// Copies varints, each cut to T: ONNX stores narrow integers, booleans and the bits of narrow floats so.
template <class T>
void copy_varints(const Runs& runs, Tensor& out, const Message& message) {
  const std::uint64_t expected = out.bytes() / sizeof(T);
  const std::uint64_t found = count_varints(runs);
  if (found != expected) fail_count(found, expected, "numbers");
  auto* to = static_cast<char*>(out.mutable_data());
  for (std::string_view run : runs) {
    for_each_varint(run, message, [&](std::uint64_t v) {
      const T value = static_cast<T>(v);
      std::memcpy(to, &value, sizeof(T));
      to += sizeof(T);
    });
  }
}

/// The runs that typed data of this dtype lies in, and how many bytes they must have at least for n elements.
const Runs& typed_runs(const TensorProto& t, DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::c64:
      return t.float_data;
    case DType::f64:
    case DType::c128:
      return t.double_data;
    case DType::i64:
      return t.int64_data;
    case DType::u32:
    case DType::u64:
      return t.uint64_data;
    default:
      return t.int32_data;
  }
}

void copy_typed(const TensorProto& t, Tensor& out, const Message& message) {
  const Runs& runs = typed_runs(t, out.dtype());
  switch (out.dtype()) {
    case DType::f32:
    case DType::c64:
      return copy_fixed(runs, sizeof(float), out);
    case DType::f64:
    case DType::c128:
      return copy_fixed(runs, sizeof(double), out);
    case DType::i64:
    case DType::u64:
      return copy_varints<std::uint64_t>(runs, out, message);
    case DType::u32:
    case DType::i32:
      return copy_varints<std::uint32_t>(runs, out, message);
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return copy_varints<std::uint16_t>(runs, out, message);
    default:
      return copy_varints<std::uint8_t>(runs, out, message);
  }
}

/// A bool is 0 or 1 in memory, whatever the file says.
void normalize_bools(Tensor& t) {
  auto* bytes = static_cast<unsigned char*>(t.mutable_data());
  for (std::size_t i = 0; i < t.bytes(); ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

Tensor allocate(DType dtype, const Shape& shape) {
  Result<Tensor> tensor = Tensor::try_make(dtype, shape);
  if (!tensor.ok()) throw Failure(std::move(tensor).error());
  return *std::move(tensor);
}

/// The tensor where it lies in its file, where it may stay there and lies as tensors do in memory: aligned, and with no
/// bool but 0 and 1.
std::optional<Tensor> in_place(DType dtype, const Shape& shape, std::string_view raw, const ModelSource* source) {
  const std::shared_ptr<const void> keeper = source && !raw.empty() ? source->keeper(raw) : nullptr;
  const auto alignment = static_cast<std::uintptr_t>(std::max(1, dtype.bits() / (dtype.is_complex() ? 16 : 8)));
  if (!keeper || dtype == DType::boolean || reinterpret_cast<std::uintptr_t>(raw.data()) % alignment != 0)
    return std::nullopt;
  return Tensor::borrow(dtype, shape, const_cast<char*>(raw.data()), keeper);  // never written: constants are not
}

Tensor strings_of(const TensorProto& t, const Shape& shape) {
  const auto expected = static_cast<std::uint64_t>(shape.elements());
  if (t.has_raw || t.is_external) fail(ErrorCode::invalid_model, "strings cannot lie in raw or external data");
  if (t.string_data.size() != expected) fail_count(t.string_data.size(), expected, "strings");
  Tensor out = allocate(DType::string, shape);
  const std::span<std::string> to = out.mutable_view<std::string>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = t.string_data[i];
  return out;
}

Shape checked_shape(const std::vector<std::int64_t>& dims, DType dtype) {
  if (dims.size() > Shape::kMaxRank) {
    fail(ErrorCode::unsupported, "has {} dims, at most {} are supported", dims.size(), Shape::kMaxRank);
  }
  for (std::int64_t d : dims) {
    if (d < 0) fail(ErrorCode::invalid_model, "has a dim of {}", d);
  }
  const Shape shape{std::span<const std::int64_t>(dims)};
  if (shape.elements() < 0 || Tensor::byte_size(dtype, shape) == std::numeric_limits<std::size_t>::max()) {
    fail(ErrorCode::invalid_model, "shape {} overflows", shape);
  }
  return shape;
}

Tensor tensor_of(const TensorProto& t, const ModelSource* source, Budget& budget, const Message& message) {
  if (t.data_type < 1 || t.data_type >= DType::kCount) {
    fail(t.data_type < 1 ? ErrorCode::invalid_model : ErrorCode::unsupported, "data type {} is not known here",
         t.data_type);
  }
  const DType dtype = static_cast<DType::Code>(t.data_type);
  const Shape shape = checked_shape(t.dims, dtype);
  const std::size_t bytes = Tensor::byte_size(dtype, shape);
  budget.take_bytes(bytes, "tensor data");
  if (dtype == DType::string) return strings_of(t, shape);

  if (t.is_external || t.has_raw) {
    const std::string_view raw = t.is_external ? external_bytes(t, source, bytes) : t.raw;
    if (raw.size() != bytes) fail_count(raw.size(), bytes, "bytes");
    if (std::optional<Tensor> mapped = in_place(dtype, shape, raw, source)) return *std::move(mapped);
    Tensor out = allocate(dtype, shape);
    if (bytes > 0) std::memcpy(out.mutable_data(), raw.data(), bytes);
    if (dtype == DType::boolean) normalize_bools(out);
    return out;
  }
  std::uint64_t stored = 0;  // a number takes at least a byte, so this bounds what is allocated by what the file holds
  for (std::string_view run : typed_runs(t, dtype)) stored += run.size();
  if (stored < bytes / 8)
    fail(ErrorCode::invalid_model, "holds {} bytes of data, but shape {} needs {}", stored, shape, bytes);
  Tensor out = allocate(dtype, shape);
  copy_typed(t, out, message);
  if (dtype == DType::boolean) normalize_bools(out);
  return out;
}

/// Runs fn; a failure gets the tensor's name in front.
template <class Fn>
Tensor named(std::string_view name, Fn&& fn) {
  try {
    return fn();
  } catch (const Failure& failure) {
    fail(failure.error.code, "tensor '{}': {}", shown(name), failure.error.message);
  }
}

/// The element that entry `i` of a sparse tensor's indices names.
std::int64_t sparse_offset(const Tensor& indices, std::int64_t i, const Shape& shape) {
  const std::span<const std::int64_t> flat = indices.view<std::int64_t>();
  const int width = indices.shape().rank() == 2 ? static_cast<int>(indices.shape()[1]) : 0;
  if (width == 0) {
    const std::int64_t offset = flat[static_cast<std::size_t>(i)];
    if (offset < 0 || offset >= shape.elements())
      fail(ErrorCode::invalid_model, "index {} lies outside shape {}", offset, shape);
    return offset;
  }
  std::int64_t offset = 0;
  for (int d = 0; d < width; ++d) {
    const std::int64_t at = flat[static_cast<std::size_t>(i * width + d)];
    if (at < 0 || at >= shape[d])
      fail(ErrorCode::invalid_model, "index {} lies outside dim {} of shape {}", at, d, shape);
    offset = offset * shape[d] + at;
  }
  return offset;
}

Tensor densify(const Tensor& values, const Tensor& indices, const std::vector<std::int64_t>& dims, Budget& budget) {
  const Shape shape = checked_shape(dims, values.dtype());
  const std::int64_t count = values.size();
  const Shape& at = indices.shape();
  const bool fits = indices.dtype() == DType::i64 && values.shape().rank() == 1 && at.rank() >= 1 && at.rank() <= 2 &&
                    at[0] == count && (at.rank() == 1 || (at[1] == shape.rank() && at[1] > 0));
  if (!fits) {
    fail(ErrorCode::invalid_model, "sparse indices {} {} do not fit {} values of shape {}", indices.dtype(), at, count,
         shape);
  }
  if (values.dtype().is_packed())
    fail(ErrorCode::unsupported, "sparse tensors of {} are not supported", values.dtype());
  budget.take_bytes(Tensor::byte_size(values.dtype(), shape), "a sparse tensor made dense");
  Tensor out = allocate(values.dtype(), shape);
  const auto width = static_cast<std::size_t>(values.dtype().bits() / 8);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t offset = sparse_offset(indices, i, shape);
    if (values.dtype() == DType::string) {
      out.mutable_view<std::string>()[static_cast<std::size_t>(offset)] =
          values.view<std::string>()[static_cast<std::size_t>(i)];
    } else {
      std::memcpy(static_cast<char*>(out.mutable_data()) + static_cast<std::size_t>(offset) * width,
                  static_cast<const char*>(values.data()) + static_cast<std::size_t>(i) * width, width);
    }
  }
  return out;
}

}  // namespace

std::string_view tensor_name(std::string_view message) {
  std::string_view name;
  Message m(message, "TensorProto");
  while (m.next()) {
    if (m.field() == 8) {
      name = m.bytes();
    } else {
      m.skip();
    }
  }
  return name;
}

NamedTensor read_tensor(std::string_view message, const ModelSource* source, Budget& budget) {
  const TensorProto t = parse_tensor(message);
  const Message context(message, "TensorProto");
  return {t.name, named(t.name, [&] { return tensor_of(t, source, budget, context); })};
}

NamedTensor read_sparse_tensor(std::string_view message, const ModelSource* source, Budget& budget) {
  NamedTensor values;
  NamedTensor indices;
  std::vector<std::int64_t> dims;
  Message m(message, "SparseTensorProto");
  while (m.next()) {
    switch (m.field()) {
      case 1:
        values = read_tensor(m.bytes(), source, budget);
        break;
      case 2:
        indices = read_tensor(m.bytes(), source, budget);
        break;
      case 3:
        m.integers(dims);
        break;
      default:
        m.skip();
    }
  }
  if (!values.tensor.defined() || !indices.tensor.defined()) {
    fail(ErrorCode::invalid_model, "sparse tensor '{}' lacks its values or indices", shown(values.name));
  }
  return {values.name, named(values.name, [&] { return densify(values.tensor, indices.tensor, dims, budget); })};
}

}  // namespace lathe::frontends::onnx
