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
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(LLD ld.lld)
if(LLD)
  add_link_options(-fuse-ld=lld)
endif()

# Contraction stays off, so that the bits never depend on what the compiler of this build could fuse.
add_compile_options(-ffp-contract=off -ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)

add_library(lathe_warnings INTERFACE)
target_compile_options(lathe_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-qual)
if(LATHE_SANITIZE)
  # No vptr check: jit/ is compiled without typeinfo, as LLVM is.
  add_compile_options(-fsanitize=${LATHE_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${LATHE_SANITIZE})
else()
  target_compile_options(lathe_warnings INTERFACE -Werror)  # instrumented code makes g++ warn of what is not there
endif()

# lathe_library(NAME SOURCES... ): a static library of this folder, with the public headers and the root on its path.
function(lathe_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC fmt::fmt PRIVATE lathe_warnings)
endfunction()
