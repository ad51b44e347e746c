# Every link of a document to a file of the project, and every path in backquotes that looks like
# one, leads somewhere.
include(${CMAKE_CURRENT_LIST_DIR}/source_files.cmake)

source_files(files *.md)
foreach(file IN LISTS files)
  get_filename_component(folder ${SOURCE_DIR}/${file} DIRECTORY)
  file(READ ${SOURCE_DIR}/${file} text)
  # Square brackets hold CMake's lists together, so they go before there is a list.
  string(REPLACE "](" "@link(" text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REGEX MATCHALL "@link\\([^)#: ]+" links "${text}")
  foreach(link IN LISTS links)
    string(REPLACE "@link(" "" path "${link}")
    if(NOT EXISTS ${folder}/${path})
      complain("${file} links to ${path}, which does not exist")
    endif()
  endforeach()
  string(REGEX MATCHALL "`(kernels|runtime|graphs|apps|tests|docs|\\.ci)/[A-Za-z0-9_./]+`" paths
         "${text}")
  foreach(quoted IN LISTS paths)
    string(REPLACE "`" "" path "${quoted}")
    if(NOT EXISTS ${SOURCE_DIR}/${path} AND NOT EXISTS ${folder}/${path})
      complain("${file} names ${path}, which does not exist")
    endif()
  endforeach()
endforeach()
stop_if_any_complaint()
