# What Lathe is built with. LLVM and oneDNN are found here once; only jit/ and runtime/backends/onednn/ link them.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(LLVM 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/llvm)  # a minor version must match exactly

# oneDNN comes as a wheel into .venv: headers, CMake files and library.
set(LATHE_ONEDNN_ROOT "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "Where oneDNN 3.2 is installed (include/, lib/cmake/dnnl)")
set(LATHE_VENV "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "The Python environment that tests use as oracle")
