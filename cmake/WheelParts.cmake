# The parts of a wheel, as tools/wheel/build.sh has built them: nothing is compiled here.
#   PARTS/peakline/…   into the package: _lib, _planner, and _torch with a folder for each minor of torch
#   PARTS/bin/…        programs
install(DIRECTORY "${PEAKLINE_WHEEL_PARTS}/peakline" DESTINATION . COMPONENT python USE_SOURCE_PERMISSIONS)
install(DIRECTORY "${PEAKLINE_WHEEL_PARTS}/bin/" DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT python
  USE_SOURCE_PERMISSIONS)
