// Streaming voice activity detection with silero-vad: audio arrives in small chunks, the model's state is carried from
// one run to the next, and stretches of speech are reported as they end.
//
//   streaming_vad [--model FILE.onnx] [FILE.wav]        (16-bit mono at 8 or 16 kHz; a synthesized voice without a
//   file)
#include <lathe/lathe.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Audio {
  int rate = 16'000;
  std::vector<float> samples;
};

/// One vowel after the other, with pauses around them: pulses of a voice through three resonances.
Audio synthesize() {
  struct Formant {
    double hertz, bandwidth, gain;
  };
  constexpr std::array<std::array<Formant, 3>, 4> kVowels = {{{{{730, 90, 1}, {1090, 110, .6}, {2440, 170, .3}}},
                                                              {{{270, 60, 1}, {2290, 100, .6}, {3010, 170, .3}}},
                                                              {{{570, 80, 1}, {840, 100, .6}, {2410, 170, .3}}},
                                                              {{{530, 80, 1}, {1840, 100, .6}, {2480, 170, .3}}}}};
  constexpr double kSyllable = 0.22, kBegin = 1.5, kEnd = 4.5, kLength = 6;
  Audio audio;
  std::mt19937 random(1);
  const auto noise = [&] { return static_cast<double>(random()) / 2147483648.0 - 1; };
  std::array<std::array<double, 2>, 3> memory{};
  double phase = 0;
  for (int i = 0; i < static_cast<int>(kLength * audio.rate); ++i) {
    const double t = static_cast<double>(i) / audio.rate;
    double sample = 0.002 * noise();
    if (t >= kBegin && t < kEnd) {
      const double at = (t - kBegin) / kSyllable, part = at - std::floor(at);
      const double loudness = part < 0.85 ? std::pow(std::sin(std::numbers::pi * part / 0.85), 0.7) : 0;
      phase += (130 + 25 * std::sin(2 * std::numbers::pi * 0.7 * t) - 10 * part) / audio.rate;
      phase -= std::floor(phase);
      const double source = (phase < 0.4 ? 1 - 2.5 * phase : 0) + 0.05 * noise();
      double voice = 0;
      const auto& vowel = kVowels[static_cast<std::size_t>(at) % kVowels.size()];
      for (std::size_t f = 0; f < vowel.size(); ++f) {
        const double r = std::exp(-std::numbers::pi * vowel[f].bandwidth / audio.rate);
        const double turn = 2 * r * std::cos(2 * std::numbers::pi * vowel[f].hertz / audio.rate);
        const double v = (1 - r) * source + turn * memory[f][0] - r * r * memory[f][1];
        memory[f] = {v, memory[f][0]};
        voice += v * vowel[f].gain;
      }
      sample += 0.5 * loudness * voice;
    }
    audio.samples.push_back(static_cast<float>(sample));
  }
  return audio;
}

std::uint32_t little_endian(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes.at(at + i))) << (8 * i);
  return value;
}

Audio read_wav(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open '" + path + "'");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 12 || bytes.compare(0, 4, "RIFF") != 0 || bytes.compare(8, 4, "WAVE") != 0) {
    throw std::runtime_error("'" + path + "' is not a WAV file");
  }
  Audio audio;
  bool known = false;
  for (std::size_t at = 12; at + 8 <= bytes.size();) {
    const std::string id = bytes.substr(at, 4);
    const std::size_t size = std::min<std::size_t>(little_endian(bytes, at + 4, 4), bytes.size() - at - 8);
    at += 8;
    if (id == "fmt " && size >= 16) {
      const bool pcm = little_endian(bytes, at, 2) == 1, mono = little_endian(bytes, at + 2, 2) == 1;
      audio.rate = static_cast<int>(little_endian(bytes, at + 4, 4));
      known = pcm && mono && little_endian(bytes, at + 14, 2) == 16 && (audio.rate == 8'000 || audio.rate == 16'000);
    } else if (id == "data") {
      for (std::size_t i = 0; i + 1 < size; i += 2) {
        audio.samples.push_back(static_cast<float>(static_cast<std::int16_t>(little_endian(bytes, at + i, 2))) /
                                32768.F);
      }
    }
    at += size + size % 2;
  }
  if (!known) throw std::runtime_error("'" + path + "' is not 16-bit mono at 8 or 16 kHz");
  return audio;
}

/// The model with its state and the end of the chunk before, which it wants in front of the next one.
class Detector {
 public:
  Detector(const lathe::Engine& engine, int rate)
      : session_(engine.session()),
        context_(rate == 16'000 ? 64 : 32),
        chunk_(rate == 16'000 ? 512 : 256),
        window_(lathe::DType::f32, {1, static_cast<std::int64_t>(context_ + chunk_)}),
        state_(lathe::DType::f32, {2, 1, 128}),
        rate_(lathe::Tensor::scalar<std::int64_t>(rate)) {}

  [[nodiscard]] std::size_t chunk() const { return chunk_; }

  /// The probability of speech in the next chunk.
  float feed(std::span<const float> samples) {
    const std::span<float> window = window_.mutable_view<float>();
    std::copy(window.end() - static_cast<std::ptrdiff_t>(context_), window.end(), window.begin());
    std::copy(samples.begin(), samples.end(), window.begin() + static_cast<std::ptrdiff_t>(context_));
    session_.run({{"input", window_}, {"state", state_}, {"sr", rate_}});
    state_ = session_.output("stateN").tensor().clone();  // the session's memory holds only until its next run
    return session_.output("output").view<float>()[0];
  }

 private:
  lathe::Session session_;
  std::size_t context_;
  std::size_t chunk_;
  lathe::Tensor window_;
  lathe::Tensor state_;
  lathe::Tensor rate_;
};

/// Speech begins where a chunk is likely speech, and ends where half a second was not.
class Stretches {
 public:
  void add(double begin, double end, float probability) {
    if (probability >= 0.5F) {
      if (!talking_) std::printf("speech from %.2f s", begin);
      talking_ = true;
    }
    if (probability >= 0.35F) last_ = end;
    if (talking_ && end - last_ >= 0.5) finish();
  }
  void finish() {
    if (!talking_) return;
    std::printf(" to %.2f s\n", last_);
    talking_ = false;
    ++count_;
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  bool talking_ = false;
  double last_ = 0;
  int count_ = 0;
};

void run(const std::string& model, const Audio& audio) {
  const lathe::Engine engine = lathe::Engine::load(model, {.threads = 1});
  Detector detector(engine, audio.rate);
  Stretches stretches;
  std::vector<double> micros;
  for (std::size_t at = 0; at + detector.chunk() <= audio.samples.size(); at += detector.chunk()) {
    const auto begin = std::chrono::steady_clock::now();
    const float probability = detector.feed(std::span(audio.samples).subspan(at, detector.chunk()));
    micros.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    const auto seconds = [&](std::size_t sample) { return static_cast<double>(sample) / audio.rate; };
    stretches.add(seconds(at), seconds(at + detector.chunk()), probability);
  }
  stretches.finish();
  if (micros.empty()) throw std::runtime_error("the audio is shorter than one chunk");
  std::sort(micros.begin(), micros.end());
  std::printf("%d stretches of speech in %.1f s of audio; a chunk of %.0f ms took %.0f us (median)\n",
              stretches.count(), static_cast<double>(audio.samples.size()) / audio.rate,
              1e3 * static_cast<double>(detector.chunk()) / audio.rate, micros[micros.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = LATHE_MODELS "/silero-vad.onnx", file;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
      model = argv[++i];
    } else if (argv[i][0] == '-' || !file.empty()) {
      std::fprintf(stderr, "usage: streaming_vad [--model FILE.onnx] [FILE.wav]\n");
      return 2;
    } else {
      file = argv[i];
    }
  }
  try {
    run(model, file.empty() ? synthesize() : read_wav(file));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "streaming_vad: %s\n", error.what());
    return 1;
  }
}
