// Loads a model through the installed package and catches the error of one that is not there.
#include <lathe/lathe.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const lathe::Engine engine = lathe::Engine::load(argv[1]);
  try {
    lathe::Engine::load("/nonexistent/model.onnx");
  } catch (const lathe::Exception& error) {
    std::printf("%zu inputs; %s\n", engine.inputs().size(), error.what());
    return 0;
  }
  return 1;
}
