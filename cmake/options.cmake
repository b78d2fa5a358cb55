# Build options, the flags every target gets, and lathe_library(): one static library per folder.
option(LATHE_BUILD_TESTS "Build the tests" ON)
option(LATHE_BUILD_CLI "Build the lathe command" ON)
option(LATHE_BUILD_EXAMPLES "Build the examples" ON)
option(LATHE_BUILD_BENCH "Build the micro-benchmarks" ON)
option(LATHE_IMAGES "Decode images (ImageDecoder), with libpng, libjpeg-turbo, libwebp, libtiff, OpenJPEG and stb" ON)
set(LATHE_SANITIZE "" CACHE STRING "Sanitizers for every target, as -fsanitize= takes them (address,undefined or thread)")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache wants to be told before it caches what is compiled with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endif()
find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Contraction stays off, so that the bits never depend on what the compiler of this build could fuse.
add_compile_options(-ffp-contract=off -ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)

add_library(lathe_warnings INTERFACE)
target_compile_options(lathe_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-qual
                                                 $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)  # in libstdc++ 12's stable_sort
if(LATHE_SANITIZE)
  # No vptr check: jit/ is compiled without typeinfo, as LLVM is. No check of functions' types: kernels carry none.
  add_compile_options(-fsanitize=${LATHE_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer
                      $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${LATHE_SANITIZE})
endif()
if(NOT (LATHE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))  # g++ warns of what is not there in instrumented code
  target_compile_options(lathe_warnings INTERFACE -Werror)
endif()

# The headers from outside that most sources include; reading them is a third to a half of what compiling takes. Sources name
# what they use all the same: clang-tidy reads each without these.
set(LATHE_COMMON_HEADERS
    <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits>
    <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <stop_token> <string> <string_view> <thread>
    <unordered_map> <unordered_set> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>)

# lathe_precompiled_headers(NAME HEADERS...): a target whose headers, compiled once, others take with REUSE_FROM.
function(lathe_precompiled_headers name)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "// Nothing but its headers counts.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_precompile_headers(${name} PRIVATE ${LATHE_COMMON_HEADERS} ${ARGN})
  target_link_libraries(${name} PRIVATE fmt::fmt lathe_warnings)
endfunction()
lathe_precompiled_headers(lathe_precompiled)

# lathe_library(NAME SOURCES... ): a static library of this folder, with the public headers and the root on its path.
function(lathe_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC fmt::fmt PRIVATE lathe_warnings)
  if(NOT name STREQUAL lathe_jit)
    target_precompile_headers(${name} REUSE_FROM lathe_precompiled)
  endif()
endfunction()
