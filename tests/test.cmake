# reprise_add_test(NAME name SOURCES a.cpp ... LABELS unit ... [LIBRARIES reprise_graphs ...]
#                  [TIMEOUT seconds])
# One program and one ctest entry. Exit code 77 is a skip.
function(reprise_add_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;LABELS;LIBRARIES" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE
    reprise_test_main reprise_test_support ${ARG_LIBRARIES} reprise_warnings)
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${ARG_NAME} PRIVATE
    REPRISE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    REPRISE_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} --log_level=message)
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
