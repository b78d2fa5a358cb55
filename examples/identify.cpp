// Identifies the types of files by their content with the magika model: features from both ends of each file, one batch
// per run, and a table of verdicts.
//
//   identify [--model FILE.onnx] [--config FOLDER] FILE_OR_FOLDER...
#include <lathe/lathe.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// How the model wants its input and what its outputs mean; the files lie beside the model in its wheel.
struct Recipe {
  std::size_t beginning, end, block, least;
  int padding;
  double medium_confidence;
  std::vector<std::string> labels;
  std::map<std::string, double> thresholds;
  std::map<std::string, std::string> renamed;
  std::set<std::string> text_types;

  static Recipe read(const fs::path& folder) {
    std::ifstream config_file(folder / "config.min.json"), types_file(folder / "content_types_kb.min.json");
    if (!config_file || !types_file)
      throw std::runtime_error("no config.min.json and content_types_kb.min.json in " + folder.string());
    const auto config = nlohmann::json::parse(config_file);
    Recipe r{config.at("beg_size"),
             config.at("end_size"),
             config.at("block_size"),
             config.at("min_file_size_for_dl"),
             config.at("padding_token"),
             config.at("medium_confidence_threshold"),
             config.at("target_labels_space"),
             config.at("thresholds"),
             config.at("overwrite_map"),
             {}};
    const auto types = nlohmann::json::parse(types_file);
    for (const auto& [name, type] : types.items()) {
      if (type.at("is_text").get<bool>()) r.text_types.insert(name);
    }
    return r;
  }
};

bool is_space(char c) { return std::string_view(" \t\n\r\v\f").find(c) != std::string_view::npos; }

bool is_utf8(std::string_view s) {
  for (std::size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    const std::size_t length = c < 0x80                ? 1
                               : c >= 0xC2 && c < 0xE0 ? 2
                               : c >= 0xE0 && c < 0xF0 ? 3
                               : c >= 0xF0 && c < 0xF5 ? 4
                                                       : 0;
    if (length == 0 || i + length > s.size()) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(s[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

struct Sample {
  fs::path path;
  std::string verdict;  // empty until known
  double score = 1;
  double ms = 0;
  std::vector<std::int32_t> features;
};

/// The stripped beginning and end of a file as numbers, padded; or a verdict at once, where there is too little to go
/// by.
void extract_features(Sample& sample, const Recipe& r) {
  std::ifstream file(sample.path, std::ios::binary);
  if (!file) {
    sample.verdict = "unreadable";
    return;
  }
  const std::size_t size = fs::file_size(sample.path);
  if (size == 0) {
    sample.verdict = "empty";
    return;
  }
  const std::size_t block = std::min(r.block, size);
  std::string first(block, '\0'), last(block, '\0');
  file.read(first.data(), static_cast<std::streamsize>(block));
  file.seekg(static_cast<std::streamoff>(size - block));
  file.read(last.data(), static_cast<std::streamsize>(block));

  const auto begin = std::find_if_not(first.begin(), first.end(), is_space);
  const auto end = std::find_if_not(last.rbegin(), last.rend(), is_space).base();
  const std::string_view head(begin, first.end()), tail(last.begin(), end);
  if (head.size() < r.least) {
    sample.verdict = is_utf8(first) ? "txt" : "unknown";
    return;
  }
  sample.features.assign(r.beginning + r.end, r.padding);
  for (std::size_t i = 0; i < std::min(head.size(), r.beginning); ++i)
    sample.features[i] = static_cast<unsigned char>(head[i]);
  for (std::size_t i = 0; i < std::min(tail.size(), r.end); ++i) {
    sample.features[r.beginning + r.end - 1 - i] = static_cast<unsigned char>(tail[tail.size() - 1 - i]);
  }
}

void decide(Sample& sample, std::span<const float> scores, const Recipe& r) {
  const auto best = static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  const std::string& label = r.labels.at(best);
  sample.score = scores[best];
  const auto renamed = r.renamed.find(label);
  sample.verdict = renamed == r.renamed.end() ? label : renamed->second;
  const auto threshold = r.thresholds.find(label);
  if (sample.score < (threshold == r.thresholds.end() ? r.medium_confidence : threshold->second)) {
    sample.verdict = r.text_types.contains(sample.verdict) ? "txt" : "unknown";
  }
}

std::vector<Sample> find_files(const std::vector<fs::path>& roots) {
  std::vector<Sample> samples;
  for (const fs::path& root : roots) {
    if (!fs::is_directory(root)) {
      samples.push_back({root, {}, 1, 0, {}});
      continue;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) samples.push_back({entry.path(), {}, 1, 0, {}});
    }
  }
  return samples;
}

/// One run per file: what an application does that gets files one by one.
void identify(const lathe::Engine& engine, std::vector<Sample>& samples, const Recipe& recipe) {
  for (Sample& sample : samples) {
    const Clock::time_point begin = Clock::now();
    extract_features(sample, recipe);
    if (sample.verdict.empty()) {
      const auto width = static_cast<std::int64_t>(sample.features.size());
      const lathe::Outputs outputs = engine.run(lathe::Tensor::from(sample.features, {1, width}));
      decide(sample, outputs[0].view<float>(), recipe);
    }
    sample.ms = ms_since(begin);
  }
}

void print_table(const std::vector<Sample>& samples) {
  std::size_t path_width = 4, verdict_width = 7;
  for (const Sample& s : samples) {
    path_width = std::max(path_width, s.path.string().size());
    verdict_width = std::max(verdict_width, s.verdict.size());
  }
  const auto left = [](std::size_t n) { return static_cast<int>(n); };
  std::printf("%-*s  %-*s  score  ms\n", left(path_width), "path", left(verdict_width), "verdict");
  for (const Sample& s : samples) {
    std::printf("%-*s  %-*s  %.3f  %.2f\n", left(path_width), s.path.c_str(), left(verdict_width), s.verdict.c_str(),
                s.score, s.ms);
  }
}

int run(const std::vector<std::string>& arguments) {
  fs::path model = LATHE_MODELS "/magika.onnx", config = LATHE_MODELS "/magika";
  std::vector<fs::path> roots;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--model" && has_value) {
      model = arguments[++i];
    } else if (arguments[i] == "--config" && has_value) {
      config = arguments[++i];
    } else {
      roots.emplace_back(arguments[i]);
    }
  }
  if (roots.empty()) {
    std::fprintf(stderr, "usage: identify [--model FILE.onnx] [--config FOLDER] FILE_OR_FOLDER...\n");
    return 2;
  }
  const Recipe recipe = Recipe::read(config);
  const Clock::time_point begin = Clock::now();
  const lathe::Engine engine = lathe::Engine::load(model);
  const double load_ms = ms_since(begin);
  const Clock::time_point prepare = Clock::now();
  engine.prepare({{engine.inputs()[0].name, {1, static_cast<std::int64_t>(recipe.beginning + recipe.end)}}});
  const double prepare_ms = ms_since(prepare);

  std::vector<Sample> samples = find_files(roots);
  const Clock::time_point work = Clock::now();
  identify(engine, samples, recipe);
  const double work_ms = ms_since(work);
  print_table(samples);
  std::printf("%zu files in %.1f ms (%.2f ms each); the model loaded in %.1f ms and compiled in %.1f ms\n",
              samples.size(), work_ms, work_ms / static_cast<double>(std::max<std::size_t>(samples.size(), 1)), load_ms,
              prepare_ms);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "identify: %s\n", error.what());
    return 1;
  }
}
