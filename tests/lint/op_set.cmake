# Every op of the op table has a name in the graph, a plain implementation, one for the CPU, one for
# CUDA, a test, and, where it computes a gradient, a finite-difference test.
include(${CMAKE_CURRENT_LIST_DIR}/source_files.cmake)

function(require_mention op folder pattern what)
  file(GLOB files ${SOURCE_DIR}/${folder}/*.cpp ${SOURCE_DIR}/${folder}/*.h
       ${SOURCE_DIR}/${folder}/*.cu)
  foreach(file IN LISTS files)
    file(READ ${file} text)
    if(text MATCHES "${pattern}")
      return()
    endif()
  endforeach()
  complain("op ${op} has no ${what}: nothing in ${folder} matches ${pattern}")
endfunction()

file(STRINGS ${SOURCE_DIR}/kernels/include/reprise/kernels/op_table.h members
     REGEX "^  Implementations<[A-Za-z0-9]+> [a-z0-9_]+;")
if(NOT members)
  message(FATAL_ERROR "no op found in op_table.h: the check itself is broken")
endif()
foreach(member IN LISTS members)
  string(REGEX REPLACE "^ *Implementations<[A-Za-z0-9]+> ([a-z0-9_]+).*" "\\1" op "${member}")
  require_mention(${op} graphs/ir "\"${op}" "name in the graph")
  require_mention(${op} kernels/reference "[.>]${op}[^a-z0-9_]" "plain implementation")
  require_mention(${op} kernels/cpu "[.>]${op}[^a-z0-9_]" "implementation for the CPU")
  require_mention(${op} kernels/cuda "[.>]${op}[^a-z0-9_]" "implementation for CUDA")
  require_mention(${op} tests/kernels "${op}" "test")
  if(op MATCHES "_backward$|^cross_entropy$|^rope$")
    require_mention(${op} tests/gradients "${op}" "finite-difference test")
  endif()
endforeach()
stop_if_any_complaint()
