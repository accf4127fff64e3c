# The page of the HTML report becomes part of the program. With npm it is bundled from viewer/src;
# without npm, or without a network, the bundle that is kept in viewer/dist is used: both are the same
# (`make test` compares them).
set(viewer "${PROJECT_SOURCE_DIR}/viewer")
set(page "${viewer}/dist/page.html")
find_program(PEAKLINE_NPM npm)
find_program(PEAKLINE_NODE node)
set(PEAKLINE_VIEWER "AUTO" CACHE STRING "Bundle the report's page: ON, OFF (use viewer/dist) or AUTO (ON when npm can install)")
if(PEAKLINE_NODE)
  execute_process(COMMAND ${PEAKLINE_NODE} --version OUTPUT_VARIABLE node_version ERROR_QUIET)
endif()
if(PEAKLINE_VIEWER STREQUAL "AUTO" AND PEAKLINE_NPM AND node_version MATCHES "^v(1[89]|[2-9][0-9])")
  set(bundle ON)
elseif(PEAKLINE_VIEWER STREQUAL "AUTO")
  set(bundle OFF)
else()
  set(bundle ${PEAKLINE_VIEWER})
endif()
if(bundle AND NOT EXISTS "${viewer}/node_modules/esbuild")
  message(STATUS "Installing what bundles the report's page (npm ci in viewer/)")
  execute_process(
    COMMAND ${PEAKLINE_NPM} ci --omit=dev --no-audit --no-fund --ignore-scripts
    WORKING_DIRECTORY "${viewer}" RESULT_VARIABLE npm_failed OUTPUT_QUIET ERROR_QUIET TIMEOUT 300)
  if(npm_failed AND PEAKLINE_VIEWER STREQUAL "AUTO")
    message(STATUS "npm cannot install: the bundle in viewer/dist is used")
    set(bundle OFF)
  elseif(npm_failed)
    message(FATAL_ERROR "PEAKLINE_VIEWER is ON, and npm ci failed in ${viewer}")
  endif()
endif()
if(bundle)
  file(GLOB viewer_sources CONFIGURE_DEPENDS "${viewer}/src/*.ts" "${viewer}/src/*.css")
  set(page "${CMAKE_CURRENT_BINARY_DIR}/page.html")
  add_custom_command(
    OUTPUT "${page}"
    COMMAND ${PEAKLINE_NODE} build.mjs "${page}"
    WORKING_DIRECTORY "${viewer}"
    DEPENDS ${viewer_sources} "${viewer}/build.mjs" "${viewer}/template.html" "${viewer}/package-lock.json"
    COMMENT "Bundling the report's page" VERBATIM)
endif()
add_custom_command(
  OUTPUT page.cc
  COMMAND ${CMAKE_COMMAND} -DIN=${page} -DOUT=${CMAKE_CURRENT_BINARY_DIR}/page.cc -DNAME=kReportPage
          -P "${PROJECT_SOURCE_DIR}/cmake/EmbedFile.cmake"
  DEPENDS "${page}" "${PROJECT_SOURCE_DIR}/cmake/EmbedFile.cmake"
  COMMENT "Embedding the report's page" VERBATIM)
target_sources(peakline_cli PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/page.cc")
