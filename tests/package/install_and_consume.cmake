# Run by ctest; see CMakeLists.txt beside it.
function(run_or_stop what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} failed (${code}):\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run_or_stop("installing" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run_or_stop("configuring" ${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
run_or_stop("building" ${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run_or_stop("running" ${WORK_DIR}/build/consumer)
if(NOT output MATCHES "loss fell from")
  message(FATAL_ERROR "the consumer printed:\n${output}")
endif()
# The installed files must not remember where they were built.
file(GLOB_RECURSE package_files ${WORK_DIR}/prefix/*.cmake)
foreach(file IN LISTS package_files)
  file(READ ${file} text)
  string(FIND "${text}" "${BUILD_DIR}" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} names the build folder ${BUILD_DIR}")
  endif()
endforeach()
message(STATUS "${output}")
