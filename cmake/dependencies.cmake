# What Lathe is built with. LLVM and oneDNN are found here once; only jit/ and runtime/backends/onednn/ link them.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(LLVM 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/llvm)  # a minor version must match exactly

# lathe_find_library(NAME HEADER): an imported target lathe::NAME. Debian's own CMake files for these are absent, or ask
# for programs that a build does not need.
function(lathe_find_library name header)
  find_path(LATHE_${name}_INCLUDE ${header} REQUIRED)
  find_library(LATHE_${name}_LIBRARY ${name} REQUIRED)
  add_library(lathe::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(lathe::${name} SYSTEM INTERFACE ${LATHE_${name}_INCLUDE})
  target_link_libraries(lathe::${name} INTERFACE ${LATHE_${name}_LIBRARY})
endfunction()
lathe_find_library(zip zip.h)
lathe_find_library(re2 re2/re2.h)
lathe_find_library(xxhash xxhash.h)
if(LATHE_IMAGES)
  find_package(PNG REQUIRED)
  lathe_find_library(turbojpeg turbojpeg.h)
  lathe_find_library(webp webp/decode.h)
  lathe_find_library(tiff tiffio.h)
  lathe_find_library(openjp2 openjpeg-2.5/openjpeg.h)
  find_path(LATHE_STB_INCLUDE stb/stb_image.h REQUIRED)
endif()
find_path(LATHE_PROTOZERO_INCLUDE protozero/version.hpp REQUIRED)

# oneDNN comes as a wheel into .venv: headers, CMake files and library.
set(LATHE_ONEDNN_ROOT "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "Where oneDNN 3.2 is installed (include/, lib/cmake/dnnl)")

# What tests and benchmarks read; ./dev setup fetches all three.
set(LATHE_VENV "${CMAKE_SOURCE_DIR}/.venv" CACHE PATH "The Python environment that tests use as oracle")
set(LATHE_MODELS "${CMAKE_SOURCE_DIR}/.models" CACHE PATH "The models of tests/models.tsv")
set(LATHE_CASES "${CMAKE_SOURCE_DIR}/.cases" CACHE PATH "ONNX's test cases")
