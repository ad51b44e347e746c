# All C++ is as clang-format leaves it.
include(${CMAKE_CURRENT_LIST_DIR}/source_files.cmake)

source_files(files *.h *.cpp *.cuh *.cu)
foreach(file IN LISTS files)
  execute_process(COMMAND ${CLANG_FORMAT} --dry-run -Werror ${SOURCE_DIR}/${file}
                  RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
  if(NOT code EQUAL 0)
    complain("${file} is not formatted; run clang-format -i on it")
  endif()
endforeach()
stop_if_any_complaint()
