// Loads a model through the installed package, catches the error of one that is not there, and registers an operator.
#include <lathe/lathe.h>

#include <cstdio>

lathe::CustomOperator twice() {
  lathe::CustomOperator op;
  op.name = "Twice";
  op.domain = "com.example";
  op.infer = [](const lathe::OperatorNode& node) -> lathe::Result<std::vector<lathe::TensorType>> {
    return std::vector{node.input(0)};
  };
  op.lower = [](const lathe::OperatorNode&, lathe::GraphBuilder& b) -> lathe::Result<std::vector<lathe::GraphValue>> {
    return std::vector{b.op("Add", {b.input(0), b.input(0)})};
  };
  return op;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const lathe::Engine engine = lathe::Engine::load(argv[1]);
  lathe::register_operator(twice());
  if (lathe::try_register_operator(twice()).ok()) return 1;
  try {
    lathe::Engine::load("/nonexistent/model.onnx");
  } catch (const lathe::Exception& error) {
    std::printf("%zu inputs; %s\n", engine.inputs().size(), error.what());
    return 0;
  }
  return 1;
}
