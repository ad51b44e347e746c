# Every public header compiles alone, included twice, with warnings as errors: what a consumer with
# strict flags sees.
include(${CMAKE_CURRENT_LIST_DIR}/source_files.cmake)

set(includes)
set(headers)
foreach(layer kernels runtime graphs)
  list(APPEND includes -I${SOURCE_DIR}/${layer}/include)
  file(GLOB_RECURSE some RELATIVE ${SOURCE_DIR}/${layer}/include
       ${SOURCE_DIR}/${layer}/include/*.h)
  list(APPEND headers ${some})
endforeach()
if(NOT headers)
  message(FATAL_ERROR "no public header found: the check itself is broken")
endif()
file(MAKE_DIRECTORY ${WORK_DIR})
foreach(header IN LISTS headers)
  file(WRITE ${WORK_DIR}/alone.cpp "#include \"${header}\"\n#include \"${header}\"\n")
  execute_process(
    COMMAND ${CXX_COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Werror
            ${includes} ${WORK_DIR}/alone.cpp
    RESULT_VARIABLE code ERROR_VARIABLE errors)
  if(NOT code EQUAL 0)
    complain("${header} does not compile alone:\n${errors}")
  endif()
endforeach()
stop_if_any_complaint()
