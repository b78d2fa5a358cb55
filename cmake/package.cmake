# The shared library that applications link, liblathe.so, made of the static folder targets; its install rules, and the
# package that find_package(lathe) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# lathe_shared_library(): adds the target `lathe` (also lathe::lathe) once every folder's target exists.
function(lathe_shared_library)
  set(objects)
  foreach(folder ops frontends passes jit runtime)
    if(TARGET lathe_${folder})
      list(APPEND objects $<TARGET_OBJECTS:lathe_${folder}>)
    endif()
  endforeach()
  add_library(lathe SHARED ${objects})
  add_library(lathe::lathe ALIAS lathe)
  target_link_libraries(lathe PRIVATE lathe_runtime)  # for what it links in turn: LLVM, oneDNN, fmt, libzip
  target_include_directories(lathe INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(lathe INTERFACE cxx_std_20)

  set(map ${CMAKE_SOURCE_DIR}/cmake/lathe.map)
  target_link_options(lathe PRIVATE -Wl,--version-script=${map} -Wl,--exclude-libs,ALL -Wl,-Bsymbolic-functions)
  if(NOT LATHE_SANITIZE)
    target_link_options(lathe PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(
    lathe PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${map}
                     INSTALL_RPATH "$ORIGIN/lathe")
  if(CMAKE_BUILD_TYPE STREQUAL Release)
    # gdb finds compiled frames through these two symbols, so they outlive stripping.
    add_custom_command(
      TARGET lathe POST_BUILD
      COMMAND ${CMAKE_STRIP} --strip-unneeded --keep-symbol=__jit_debug_register_code --keep-symbol=__jit_debug_descriptor $<TARGET_FILE:lathe>
      VERBATIM)
  endif()

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/lathe)
  install(TARGETS lathe EXPORT latheTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${LATHE_ONEDNN_ROOT}/lib/libdnnl.so.3 DESTINATION ${CMAKE_INSTALL_LIBDIR}/lathe)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/lathe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(EXPORT latheTargets NAMESPACE lathe:: DESTINATION ${package})
  file(WRITE ${CMAKE_BINARY_DIR}/latheConfig.cmake "include(\"\${CMAKE_CURRENT_LIST_DIR}/latheTargets.cmake\")\n")
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/latheConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/latheConfig.cmake ${CMAKE_BINARY_DIR}/latheConfigVersion.cmake DESTINATION ${package})
endfunction()
