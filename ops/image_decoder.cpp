// ImageDecoder: the pixels of an encoded image. The formats are read by their own libraries; what they refuse, or what
// is no image at all, decodes to an empty tensor, as the specification says.
#include <openjpeg-2.5/openjpeg.h>
#include <png.h>
#include <tiffio.h>
#include <turbojpeg.h>
#include <webp/decode.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_FAILURE_STRINGS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

#include "ops/ir/kernel_context.h"

namespace lathe::ops {
namespace {

using Bytes = std::span<const std::uint8_t>;
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;  // what an image may claim to hold

/// Memory for pixels of so many bytes is a tensor's, so that it is counted and bounded as all data memory is.
struct Bitmap {
  Bitmap(std::int64_t height, std::int64_t width, std::int64_t bytes) : tensor(DType::u8, {height, width, bytes}) {}
  [[nodiscard]] std::uint8_t* data() { return tensor.mutable_view<std::uint8_t>().data(); }
  [[nodiscard]] std::size_t size() const { return tensor.bytes(); }
  Tensor tensor;
};

/// Rows from the top, three bytes a pixel: red, green, blue. Empty where decoding failed.
struct Pixels {
  std::int64_t height = 0;
  std::int64_t width = 0;
  Bitmap rgb{0, 0, 3};

  /// False where the size is nothing to allocate for.
  [[nodiscard]] bool resize(std::int64_t h, std::int64_t w) {
    if (h <= 0 || w <= 0 || h > kMostPixels / w) return false;
    height = h, width = w;
    rgb = {h, w, 3};
    return true;
  }
  [[nodiscard]] std::size_t count() const { return rgb.size() / 3; }
};

bool starts_with(Bytes bytes, std::string_view magic, std::size_t at = 0) {
  return bytes.size() >= at + magic.size() && std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

/// Keeps red, green and blue of pixels of four bytes.
void drop_alpha(const std::uint8_t* rgba, std::size_t count, std::uint8_t* rgb) {
  for (std::size_t i = 0; i < count; ++i) std::copy_n(rgba + 4 * i, 3, rgb + 3 * i);
}

// ---- formats ----

Pixels decode_png(Bytes bytes) {
  Pixels pixels;
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) return {};
  const std::unique_ptr<png_image, void (*)(png_image*)> guard(&image, png_image_free);
  if (!pixels.resize(image.height, image.width)) return {};
  image.format = PNG_FORMAT_RGBA;
  Bitmap rgba(pixels.height, pixels.width, 4);
  if (png_image_finish_read(&image, nullptr, rgba.data(), 0, nullptr) == 0) return {};
  drop_alpha(rgba.data(), pixels.count(), pixels.rgb.data());
  return pixels;
}

Pixels decode_jpeg(Bytes bytes) {
  const std::unique_ptr<void, int (*)(tjhandle)> jpeg(tjInitDecompress(), tjDestroy);
  Pixels pixels;
  int width = 0, height = 0, subsampling = 0, colorspace = 0;
  if (!jpeg ||
      tjDecompressHeader3(jpeg.get(), bytes.data(), bytes.size(), &width, &height, &subsampling, &colorspace) != 0) {
    return {};
  }
  if (!pixels.resize(height, width)) return {};
  if (colorspace != TJCS_CMYK && colorspace != TJCS_YCCK) {
    const int failed = tjDecompress2(jpeg.get(), bytes.data(), bytes.size(), pixels.rgb.data(), width, 0, height,
                                     TJPF_RGB, TJFLAG_ACCURATEDCT);
    return failed != 0 && tjGetErrorCode(jpeg.get()) == TJERR_FATAL ? Pixels() : pixels;
  }
  Bitmap cmyk(height, width, 4);  // as printers' files have it: inverted
  if (tjDecompress2(jpeg.get(), bytes.data(), bytes.size(), cmyk.data(), width, 0, height, TJPF_CMYK,
                    TJFLAG_ACCURATEDCT) != 0) {
    return {};
  }
  const std::uint8_t* from = cmyk.data();
  std::uint8_t* to = pixels.rgb.data();
  for (std::size_t i = 0; i < pixels.count(); ++i, from += 4, to += 3) {
    for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(from[c] * from[3] / 255);
  }
  return pixels;
}

Pixels decode_webp(Bytes bytes) {
  Pixels pixels;
  int width = 0, height = 0;
  if (WebPGetInfo(bytes.data(), bytes.size(), &width, &height) == 0 || !pixels.resize(height, width)) return {};
  const bool read = WebPDecodeRGBInto(bytes.data(), bytes.size(), pixels.rgb.data(), pixels.rgb.size(), 3 * width);
  return read ? pixels : Pixels();
}

Pixels decode_bmp(Bytes bytes) {
  Pixels pixels;
  int width = 0, height = 0, channels = 0;
  if (bytes.size() > INT_MAX) return {};
  const int size = static_cast<int>(bytes.size());
  if (stbi_info_from_memory(bytes.data(), size, &width, &height, &channels) == 0) return {};
  if (!pixels.resize(height, width)) return {};
  const std::unique_ptr<stbi_uc, void (*)(void*)> read(
      stbi_load_from_memory(bytes.data(), size, &width, &height, &channels, 3), stbi_image_free);
  if (!read || width != pixels.width || height != pixels.height) return {};
  std::copy_n(read.get(), pixels.rgb.size(), pixels.rgb.data());
  return pixels;
}

// ---- TIFF, from memory ----

struct MemoryFile {
  Bytes bytes;
  std::uint64_t at = 0;

  std::size_t read(void* to, std::size_t count) {
    if (at >= bytes.size()) return 0;
    const std::size_t taken = std::min<std::size_t>(count, bytes.size() - at);
    std::memcpy(to, bytes.data() + at, taken);
    at += taken;
    return taken;
  }
};

Pixels decode_tiff(Bytes bytes) {
  MemoryFile file{bytes};
  const TIFFReadWriteProc read = [](thandle_t handle, void* to, tmsize_t count) -> tmsize_t {
    return count < 0
               ? 0
               : static_cast<tmsize_t>(static_cast<MemoryFile*>(handle)->read(to, static_cast<std::size_t>(count)));
  };
  const TIFFReadWriteProc write = [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; };
  const TIFFSeekProc seek = [](thandle_t handle, toff_t offset, int whence) -> toff_t {
    MemoryFile& f = *static_cast<MemoryFile*>(handle);
    f.at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? f.at + offset : f.bytes.size() + offset;
    return f.at;
  };
  const TIFFCloseProc close = [](thandle_t) { return 0; };
  const TIFFSizeProc size = [](thandle_t handle) -> toff_t { return static_cast<MemoryFile*>(handle)->bytes.size(); };
  const TIFFErrorHandlerExtR quiet = [](TIFF*, void*, const char*, const char*, va_list) { return 1; };
  const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                             TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), quiet, nullptr);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), quiet, nullptr);
  const std::unique_ptr<TIFF, void (*)(TIFF*)> tiff(
      TIFFClientOpenExt("image", "rm", &file, read, write, seek, close, size, nullptr, nullptr, options.get()),
      TIFFClose);
  Pixels pixels;
  std::uint32_t width = 0, height = 0;
  if (!tiff || TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width) == 0 ||
      TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height) == 0 || !pixels.resize(height, width)) {
    return {};
  }
  Tensor rgba(DType::u32, {height, width});
  auto* words = rgba.mutable_view<std::uint32_t>().data();
  if (TIFFReadRGBAImageOriented(tiff.get(), width, height, words, ORIENTATION_TOPLEFT, 1) == 0) return {};
  std::uint8_t* to = pixels.rgb.data();
  for (std::size_t i = 0; i < pixels.count(); ++i) {
    for (const std::uint32_t c : {TIFFGetR(words[i]), TIFFGetG(words[i]), TIFFGetB(words[i])})
      *to++ = static_cast<std::uint8_t>(c);
  }
  return pixels;
}

// ---- JPEG 2000, from memory ----

std::unique_ptr<opj_stream_t, void (*)(opj_stream_t*)> stream_of(MemoryFile& file) {
  std::unique_ptr<opj_stream_t, void (*)(opj_stream_t*)> stream(opj_stream_default_create(OPJ_TRUE),
                                                                opj_stream_destroy);
  if (!stream) return stream;
  opj_stream_set_user_data(stream.get(), &file, nullptr);
  opj_stream_set_user_data_length(stream.get(), file.bytes.size());
  opj_stream_set_read_function(stream.get(), [](void* to, OPJ_SIZE_T count, void* f) -> OPJ_SIZE_T {
    const std::size_t taken = static_cast<MemoryFile*>(f)->read(to, count);
    return taken == 0 ? static_cast<OPJ_SIZE_T>(-1) : taken;
  });
  opj_stream_set_skip_function(stream.get(), [](OPJ_OFF_T count, void* f) -> OPJ_OFF_T {
    MemoryFile& m = *static_cast<MemoryFile*>(f);
    if (count < 0 || static_cast<std::uint64_t>(count) > m.bytes.size() - std::min<std::uint64_t>(m.at, m.bytes.size()))
      return -1;
    m.at += static_cast<std::uint64_t>(count);
    return count;
  });
  opj_stream_set_seek_function(stream.get(), [](OPJ_OFF_T to, void* f) -> OPJ_BOOL {
    MemoryFile& m = *static_cast<MemoryFile*>(f);
    if (to < 0 || static_cast<std::uint64_t>(to) > m.bytes.size()) return OPJ_FALSE;
    m.at = static_cast<std::uint64_t>(to);
    return OPJ_TRUE;
  });
  return stream;
}

/// A sample as a byte.
std::uint8_t as_byte(const opj_image_comp_t& c, std::size_t i) {
  const std::int64_t sample = std::int64_t{c.data[i]} + (c.sgnd != 0 ? std::int64_t{1} << (c.prec - 1) : 0);
  const std::int64_t most = (std::int64_t{1} << c.prec) - 1;
  return static_cast<std::uint8_t>(c.prec == 8 ? std::clamp<std::int64_t>(sample, 0, 255)
                                               : std::clamp<std::int64_t>(sample, 0, most) * 255 / most);
}

/// Full-range YCbCr of ITU-R BT.601 to RGB.
void to_rgb(std::uint8_t* pixel) {
  const double y = pixel[0], cb = pixel[1] - 128.0, cr = pixel[2] - 128.0;
  const double rgb[] = {y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb};
  for (int c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>(std::clamp(rgb[c] + 0.5, 0.0, 255.0));
}

Pixels decode_jpeg2000(Bytes bytes) {
  MemoryFile file{bytes};
  const auto stream = stream_of(file);
  const bool boxed = starts_with(bytes, "jP  ", 4);
  const std::unique_ptr<opj_codec_t, void (*)(opj_codec_t*)> codec(
      opj_create_decompress(boxed ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K), opj_destroy_codec);
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  if (!stream || !codec || opj_setup_decoder(codec.get(), &parameters) == OPJ_FALSE) return {};
  opj_image_t* header = nullptr;
  const bool read = opj_read_header(stream.get(), codec.get(), &header) != OPJ_FALSE;
  const std::unique_ptr<opj_image_t, void (*)(opj_image_t*)> image(header, opj_image_destroy);
  Pixels pixels;
  constexpr std::uint32_t kMostComponents = 4;  // colour and alpha: the decoder makes room for all that are claimed
  if (!read || !image || image->numcomps < 1 || image->numcomps > kMostComponents) return {};
  const std::span<const opj_image_comp_t> components(image->comps, image->numcomps);
  const bool colour = components.size() >= 3;
  const auto fits = [&](const opj_image_comp_t& c) {
    return c.w == components[0].w && c.h == components[0].h && c.prec >= 1 && c.prec <= 31;
  };
  if (!std::all_of(components.begin(), components.end(), fits) || !pixels.resize(components[0].h, components[0].w) ||
      opj_decode(codec.get(), stream.get(), image.get()) == OPJ_FALSE ||
      std::any_of(components.begin(), components.end(), [](const opj_image_comp_t& c) { return c.data == nullptr; })) {
    return {};
  }
  std::uint8_t* to = pixels.rgb.data();
  for (std::size_t i = 0; i < pixels.count(); ++i, to += 3) {
    for (std::size_t c = 0; c < 3; ++c) to[c] = as_byte(components[colour ? c : 0], i);
    if (colour && image->color_space == OPJ_CLRSPC_SYCC) to_rgb(to);
  }
  return pixels;
}

// ---- the portable formats: P1 to P3 are text, P4 to P6 binary; bits, grey, colour ----

class PortableReader {
 public:
  explicit PortableReader(Bytes bytes) : bytes_(bytes) {}

  /// The next number of the text, comments skipped; -1 where there is none.
  std::int64_t number() {
    skip_space();
    std::int64_t value = -1;
    for (; at_ < bytes_.size() && std::isdigit(bytes_[at_]) != 0 && value < kMostPixels; ++at_) {
      value = std::max<std::int64_t>(value, 0) * 10 + (bytes_[at_] - '0');
    }
    return value;
  }
  /// The next 0 or 1 of a text bitmap, where digits need no space between them.
  std::int64_t bit() {
    skip_space();
    if (at_ >= bytes_.size() || (bytes_[at_] != '0' && bytes_[at_] != '1')) return -1;
    return bytes_[at_++] - '0';
  }
  void skip(std::size_t count) { at_ += count; }
  [[nodiscard]] Bytes rest() const { return bytes_.subspan(std::min(at_, bytes_.size())); }

 private:
  void skip_space() {
    while (at_ < bytes_.size() && (std::isspace(bytes_[at_]) != 0 || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') {
        while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
      } else {
        ++at_;
      }
    }
  }
  Bytes bytes_;
  std::size_t at_ = 0;
};

Pixels decode_portable(Bytes bytes) {
  const int kind = bytes[1] - '0';
  const bool text = kind <= 3, bits = kind == 1 || kind == 4;
  const std::int64_t channels = kind == 3 || kind == 6 ? 3 : 1;
  PortableReader reader(bytes);
  reader.skip(2);
  const std::int64_t width = reader.number(), height = reader.number(), most = bits ? 1 : reader.number();
  Pixels pixels;
  if (most < 1 || most > 65535 || !pixels.resize(height, width)) return {};
  if (!text) reader.skip(1);  // the one space behind the header
  const Bytes data = reader.rest();
  const std::int64_t row_bytes = bits ? (width + 7) / 8 : width * channels * (most > 255 ? 2 : 1);
  if (!text && static_cast<std::int64_t>(data.size()) < row_bytes * height) return {};
  const auto binary = [&](std::int64_t y, std::int64_t i) -> std::int64_t {
    const std::uint8_t* row = data.data() + y * row_bytes;
    if (bits) return (row[i / 8] >> (7 - i % 8)) & 1;
    return most > 255 ? row[2 * i] * 256 + row[2 * i + 1] : row[i];
  };
  std::uint8_t* to = pixels.rgb.data();
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t i = 0; i < width * channels; ++i) {
      std::int64_t sample = text ? (bits ? reader.bit() : reader.number()) : binary(y, i);
      if (sample < 0) return {};
      if (bits) sample = 1 - sample;  // a set bit is black
      sample = std::min(sample, most) * 255 / most;
      to = std::fill_n(to, channels == 1 ? 3 : 1, static_cast<std::uint8_t>(sample));
    }
  }
  return pixels;
}

Pixels decode(Bytes bytes) {
  if (starts_with(bytes, "\x89PNG")) return decode_png(bytes);
  if (starts_with(bytes, "\xFF\xD8")) return decode_jpeg(bytes);
  if (starts_with(bytes, "RIFF") && starts_with(bytes, "WEBP", 8)) return decode_webp(bytes);
  if (starts_with(bytes, "BM")) return decode_bmp(bytes);
  if (starts_with(bytes, "II") || starts_with(bytes, "MM")) return decode_tiff(bytes);
  if (starts_with(bytes, "jP  ", 4) || starts_with(bytes, "\xFF\x4F\xFF\x51")) return decode_jpeg2000(bytes);
  if (bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6') return decode_portable(bytes);
  return {};
}

// ---- the operator ----

constexpr Attribute kAttributes[] = {{"pixel_format", "RGB"}};

Facts infer(const OpView& op) {
  const std::string_view format = op.s("pixel_format");
  op.require(format == "RGB" || format == "BGR" || format == "Grayscale",
             "pixel_format must be RGB, BGR or Grayscale, got '{}'", format);
  op.require(op.in(0).dtype == DType::u8 && op.in(0).rank() == 1, "encoded_stream must be u8 of one dim, got {}",
             op.in(0).to_string());
  return {Fact(DType::u8, {0, 0, format == "Grayscale" ? 1 : 3})};
}

/// ITU-R BT.601 luma in 16-bit fixed point.
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16);
}

void kernel(KernelContext& ctx) {
  infer(ctx.op());
  const std::string_view format = ctx.op().s("pixel_format");
  Pixels pixels = decode(ctx.in<std::uint8_t>(0));
  std::uint8_t* rgb = pixels.rgb.data();
  if (format == "Grayscale") {
    Tensor image = ctx.allocate(0, DType::u8, {pixels.height, pixels.width, 1});
    for (std::uint8_t& grey : image.mutable_view<std::uint8_t>()) grey = luma(rgb), rgb += 3;
    return;
  }
  if (format == "BGR") {
    for (std::size_t i = 0; i < pixels.count(); ++i, rgb += 3) std::swap(rgb[0], rgb[2]);
  }
  ctx.set(0, pixels.rgb.tensor);
}

}  // namespace

extern const OpDef op_image_decoder;
constinit const OpDef op_image_decoder = {.name = "ImageDecoder",
                                          .attributes = kAttributes,
                                          .forms = {20, 20},
                                          .takes = DType::u8,
                                          .dynamic_output = true,
                                          .infer = infer,
                                          .kernel = kernel};

}  // namespace lathe::ops
