// Lathe as bench/peers.py drives it: one model in one process, commands on standard input, a JSON line for each.
#include <lathe/lathe.h>
#include <lathe/tools.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void answer(const nlohmann::json& line) { std::cout << line.dump() << '\n' << std::flush; }

nlohmann::json run_for(lathe::Session& session, double seconds) {
  nlohmann::json times = nlohmann::json::array();
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point run = Clock::now();
    session.run();
    times.push_back(ms_since(run));
  } while (ms_since(begin) < seconds * 1e3);
  return {{"times_ms", std::move(times)}};
}

void write_outputs(const lathe::Engine& engine, const lathe::Session& session, const std::string& path) {
  std::vector<lathe::tools::NamedTensor> outputs;
  for (const lathe::ValueInfo& info : engine.outputs()) {
    const lathe::Value& value = session.output(info.name);
    if (value.is_tensor()) outputs.push_back({info.name, value.tensor()});
  }
  lathe::unwrap(lathe::tools::try_write_npz(path, outputs));
}

int work(const std::string& model, const std::string& archive, int threads) {
  const Clock::time_point load = Clock::now();
  const lathe::Engine engine = lathe::Engine::load(model, {.threads = threads});
  const double load_ms = ms_since(load);
  lathe::Session session = engine.session();
  for (lathe::tools::NamedTensor& input : lathe::tools::read_npz(archive)) session.bind_input(input.name, input.tensor);
  const Clock::time_point first = Clock::now();
  session.run();
  const double first_ms = ms_since(first);
  for (const lathe::ValueInfo& info : engine.outputs()) {
    const lathe::Value& value = session.output(info.name);
    if (value.is_tensor()) session.bind_output(info.name, value.tensor().clone());
  }
  answer({{"load_ms", load_ms}, {"first_ms", first_ms}});

  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "run") {
      double seconds = 0;
      words >> seconds;
      answer(run_for(session, seconds));
    } else if (verb == "outputs") {
      std::string path;
      std::getline(words >> std::ws, path);
      write_outputs(engine, session, path);
      answer(nlohmann::json::object());
    } else {
      throw std::runtime_error("unknown command: " + line);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: lathe_peer MODEL INPUTS.npz THREADS\n", stderr);
    return 2;
  }
  try {
    return work(argv[1], argv[2], std::stoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
