// In place of sqlite_tables.cc where SQLite is not installed.
#include <peakline/export.h>

namespace peakline {

Result<std::unique_ptr<TableWriter>> make_sqlite_writer(const std::string&) {
  return unsupported(
      "this peakline was built without SQLite: install libsqlite3-dev and build it again, or "
      "export "
      "to csv");
}

}  // namespace peakline
