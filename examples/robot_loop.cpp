// A 50 Hz control loop: a walking policy runs on a session with bound buffers, prepared for real time, so that a step
// of the loop allocates nothing, takes no lock and makes no system call of its own.
//
//   robot_loop [--model FILE.onnx] [--steps N] [--no-wait]
#include <lathe/lathe.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPeriod = std::chrono::milliseconds(20);

/// Stands in for the robot: joints that lag behind the commanded positions.
class Robot {
 public:
  void sense(std::span<float> observation) const {
    for (std::size_t i = 0; i < observation.size(); ++i) {
      observation[i] = i < joints_.size() ? joints_[i] : 0.1F * std::sin(time_ + static_cast<float>(i));
    }
  }
  void act(std::span<const float> action) {
    joints_.resize(action.size());
    for (std::size_t i = 0; i < action.size(); ++i)
      joints_[i] += 0.2F * (std::clamp(action[i], -2.F, 2.F) - joints_[i]);
    time_ += 0.02F;
  }

 private:
  std::vector<float> joints_;
  float time_ = 0;
};

/// A zeroed tensor for a declared input or output whose dims are all fixed.
lathe::Tensor buffer_for(const lathe::ValueInfo& info) {
  lathe::Shape shape;
  for (const lathe::Dim& dim : info.dims.value()) shape.push_back(dim.extent);
  return {info.dtype, shape};
}

struct Options {
  std::string model = LATHE_MODELS "/rl-ppo-g1.onnx";
  int steps = 250;
  bool wait = true;
};

int run(const Options& options) {
  const lathe::Engine engine = lathe::Engine::load(options.model, {.threads = 1});
  lathe::Tensor observation = buffer_for(engine.inputs()[0]);
  lathe::Tensor action = buffer_for(engine.outputs()[0]);
  lathe::Session session = engine.session();
  session.bind_input(engine.inputs()[0].name, observation);
  session.bind_output(engine.outputs()[0].name, action);
  session.prepare({.real_time = true});

  Robot robot;
  std::vector<double> micros(static_cast<std::size_t>(options.steps));
  int late = 0;
  Clock::time_point tick = Clock::now();
  for (double& step : micros) {
    robot.sense(observation.mutable_view<float>());
    const Clock::time_point begin = Clock::now();
    if (!session.try_run().ok()) {
      std::fprintf(stderr, "robot_loop: a step failed; a robot would now hold its position\n");
      return 1;
    }
    const Clock::duration took = Clock::now() - begin;
    step = std::chrono::duration<double, std::micro>(took).count();
    robot.act(action.view<float>());
    if (took > kPeriod) ++late;
    tick += kPeriod;
    if (options.wait) std::this_thread::sleep_until(tick);
  }
  std::sort(micros.begin(), micros.end());
  std::printf("%zu steps, %d late; a step took %.1f us (median), %.1f us (99 %%), %.1f us (worst)\n", micros.size(),
              late, micros[micros.size() / 2], micros[micros.size() * 99 / 100], micros.back());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--no-wait") {
      options.wait = false;
    } else if (argument == "--steps" && i + 1 < argc) {
      options.steps = std::max(1, static_cast<int>(std::strtol(argv[++i], nullptr, 10)));
    } else if (argument == "--model" && i + 1 < argc) {
      options.model = argv[++i];
    } else {
      std::fprintf(stderr, "usage: robot_loop [--model FILE.onnx] [--steps N] [--no-wait]\n");
      return 2;
    }
  }
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "robot_loop: %s\n", error.what());
    return 1;
  }
}
