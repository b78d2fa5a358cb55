# Installs BUILD to a folder of its own, builds consumer/ against the installed package, and runs it on MODEL.
set(work ${BUILD}/package_test)
file(REMOVE_RECURSE ${work})
foreach(
  command
  "${CMAKE_COMMAND};--install;${BUILD};--prefix;${work}/installed"
  "${CMAKE_COMMAND};-G;Ninja;-S;${CMAKE_CURRENT_LIST_DIR}/consumer;-B;${work}/consumer;-DCMAKE_PREFIX_PATH=${work}/installed;-DCMAKE_BUILD_TYPE=Release"
  "${CMAKE_COMMAND};--build;${work}/consumer"
  "${work}/consumer/consumer;${MODEL}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
