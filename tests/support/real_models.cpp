// Reading samples of the real models, and having ONNX Runtime make more.
#include "tests/support/real_models.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"

namespace lathe::tests {
namespace {

namespace fs = std::filesystem;

std::string oracle_dir() { return binary_dir() + "/oracle"; }

std::string data_path(const std::string& name, const char* end) { return data_dir() + "/models/" + name + end; }

std::string run_script() { return source_dir() + "/tests/support/run_model.py"; }

/// Held while one process makes the files and others wait for them.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ >= 0) flock(file_, LOCK_EX);
  }
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

void make_samples(const std::string& name) {
  fs::create_directories(oracle_dir());
  const std::string done = oracle_dir() + "/" + name + ".done";
  const FileLock lock(done + ".lock");
  if (fs::exists(done) && fs::last_write_time(done) > fs::last_write_time(run_script())) return;
  const std::string command = fmt::format("'{}' '{}' '{}' '{}' '{}'", python(), run_script(), model_path(name),
                                          data_path(name, ".in.npz"), oracle_dir());
  const int status = std::system(command.c_str());  // NOLINT(bugprone-command-processor): its words are the tests' own
  if (status != 0) throw Exception({ErrorCode::io, "this failed: " + command});
  std::ofstream(done) << name;
}

std::vector<double> numbers(const Tensor& t) {
  std::vector<double> values(static_cast<std::size_t>(t.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = t.number(static_cast<std::int64_t>(i));
  return values;
}

/// The fifth of six numbers per box, sorted.
std::vector<double> scores(const std::vector<double>& boxes) {
  std::vector<double> result;
  for (std::size_t i = 4; i < boxes.size(); i += 6) result.push_back(boxes[i]);
  std::sort(result.begin(), result.end());
  return result;
}

double share_of_largest(const std::string& model) { return model.ends_with("int8") ? 2e-2 : 1e-4; }

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  std::ifstream file(source_dir() + "/tests/models.tsv");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) names.push_back(line.substr(0, line.find('\t')));
  return names;
}

std::string model_path(const std::string& name) { return models_dir() + "/" + name + ".onnx"; }

std::string test_name(std::string model) {
  std::replace(model.begin(), model.end(), '-', '_');
  return model;
}

Sample stored_sample(const std::string& name) {
  return {"stored", tools::read_npz(data_path(name, ".in.npz")), tools::read_npz(data_path(name, ".out.npz"))};
}

std::vector<Sample> further_samples(const std::string& name) {
  make_samples(name);
  std::vector<Sample> samples;
  for (int i = 0;; ++i) {
    const std::string path = fmt::format("{}/{}.{}", oracle_dir(), name, i);
    if (!fs::exists(path + ".out.npz")) return samples;
    samples.push_back(
        {fmt::format("shape {}", i), tools::read_npz(path + ".in.npz"), tools::read_npz(path + ".out.npz")});
  }
}

std::vector<tools::NamedTensor> oracle_file(const std::string& file) {
  return tools::read_npz(oracle_dir() + "/" + file);
}

Inputs inputs_of(const Sample& sample) {
  Inputs inputs;
  for (const tools::NamedTensor& t : sample.inputs) inputs.add(t.name, t.tensor);
  return inputs;
}

Shapes shapes_of(const Sample& sample) {
  Shapes shapes;
  for (const tools::NamedTensor& t : sample.inputs) shapes.push_back({t.name, t.tensor.shape()});
  return shapes;
}

std::optional<std::string> difference(const std::string& model, const std::string& output, const Tensor& actual,
                                      const Tensor& expected) {
  const double share = share_of_largest(model);
  if (actual.dtype() != expected.dtype() || !(actual.shape() == expected.shape())) {
    return fmt::format("{}: {}[{}], expected {}[{}]", output, actual.dtype().name(), actual.shape().to_string(),
                       expected.dtype().name(), expected.shape().to_string());
  }
  std::vector<double> a = numbers(actual);
  std::vector<double> e = numbers(expected);
  if (model == "yolo-isbn") {
    a = scores(a);
    e = scores(e);
  }
  double scale = 0;
  for (double v : e) {
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  }
  constexpr double kFloor = 1e-7;  // ONNX Runtime's own sigmoid is no finer near 0: 8.3e-8 was measured
  for (std::size_t i = 0; i < e.size(); ++i) {
    const bool exact = !expected.dtype().is_float() || !std::isfinite(e[i]) || !std::isfinite(a[i]);
    const bool equal = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    if (exact ? equal : std::abs(a[i] - e[i]) <= share * scale + 1e-3 * std::abs(e[i]) + kFloor) continue;
    return fmt::format("{}: element {} is {}, expected {} at scale {}", output, i, a[i], e[i], scale);
  }
  return std::nullopt;
}

std::optional<std::string> difference(const std::string& model, const Outputs& actual, const Sample& sample) {
  if (actual.size() != sample.outputs.size())
    return fmt::format("{} outputs, expected {}", actual.size(), sample.outputs.size());
  for (const tools::NamedTensor& expected : sample.outputs) {
    const Value* value = actual.find(expected.name);
    if (!value) return fmt::format("output {} is missing", expected.name);
    if (auto wrong = difference(model, expected.name, value->tensor(), expected.tensor)) return wrong;
  }
  return std::nullopt;
}

}  // namespace lathe::tests
