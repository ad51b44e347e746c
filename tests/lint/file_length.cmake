# A file has one subject and at most 350 lines.
include(${CMAKE_CURRENT_LIST_DIR}/source_files.cmake)

source_files(files *.h *.cpp *.cuh *.cu *.cmake *.sh *.py CMakeLists.txt)
foreach(file IN LISTS files)
  read_lines(lines ${SOURCE_DIR}/${file})
  list(LENGTH lines count)
  math(EXPR count "${count} - 1")  # the text ends with a line break
  if(count GREATER 350)
    complain("${file} has ${count} lines, more than 350")
  endif()
endforeach()
stop_if_any_complaint()
