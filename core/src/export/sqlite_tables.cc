#include <sqlite3.h>

#include <array>
#include <map>
#include <string>

#include <peakline/export.h>

namespace peakline {
namespace {

// The file is renamed when it is complete, so that a journal would guard nothing.
constexpr const char* kSettings =
    "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536;"
    "PRAGMA user_version=1; BEGIN;";

// What is made of a table once its rows are there.
struct Extra {
  std::string_view table;
  const char* sql;
};
constexpr std::array kExtras{
    Extra{"blocks", "CREATE INDEX blocks_by_birth ON blocks(rank, device, birth_event);"},
    Extra{"blocks", "CREATE INDEX blocks_by_module ON blocks(module) WHERE module IS NOT NULL;"},
    Extra{"blocks", "CREATE INDEX blocks_at_peak ON blocks(rank, device) WHERE at_peak = 1;"},
    Extra{"blocks",
          "CREATE VIEW peak_by_category AS SELECT rank, device, category, sum(bytes) AS bytes, "
          "count(*) AS blocks FROM blocks WHERE at_peak = 1 GROUP BY rank, device, category;"},
    Extra{"blocks",
          "CREATE VIEW peak_by_module AS SELECT rank, device, module, sum(bytes) AS bytes, "
          "count(*) AS blocks FROM blocks WHERE at_peak = 1 GROUP BY rank, device, module;"},
    Extra{"events", "CREATE INDEX events_by_block ON events(rank, block) WHERE block IS NOT NULL;"},
};

struct BindCell {
  sqlite3_stmt* statement;
  int at;
  int operator()(std::monostate) const { return sqlite3_bind_null(statement, at); }
  int operator()(std::int64_t value) const { return sqlite3_bind_int64(statement, at, value); }
  // SQLite's integers are signed; ids and addresses above 2^63 keep their bits.
  int operator()(std::uint64_t value) const {
    return sqlite3_bind_int64(statement, at, static_cast<sqlite3_int64>(value));
  }
  int operator()(std::string_view value) const {
    return sqlite3_bind_text(statement, at, value.data(), static_cast<int>(value.size()),
                             SQLITE_STATIC);
  }
};

class SqliteTables final : public TableWriter {
 public:
  explicit SqliteTables(std::string path) : path_(std::move(path)) {
    check(sqlite3_open_v2(path_.c_str(), &database_,
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE,
                          nullptr));
    run(kSettings);
  }
  ~SqliteTables() override {
    for (const auto& [name, statement] : inserts_) sqlite3_finalize(statement);
    sqlite3_close(database_);
  }
  SqliteTables(const SqliteTables&) = delete;
  SqliteTables& operator=(const SqliteTables&) = delete;

  void begin_recording(std::int64_t, std::string_view) override {}
  void end_recording() override {}
  void begin_table(const TableSchema& table) override {
    insert_ = nullptr;
    if (!status_.ok()) return;
    const auto [found, is_new] = inserts_.try_emplace(table.name, nullptr);
    if (is_new) {
      std::string columns;
      std::string places;
      for (const Column& column : table.columns) {
        if (!columns.empty()) columns += ", ", places += ", ";
        columns.append(column.name);
        columns += column.type == Column::Type::kInteger ? " INTEGER" : " TEXT";
        places += '?';
      }
      const std::string name(table.name);
      run(("CREATE TABLE " + name + "(" + columns + ");").c_str());
      const std::string insert = "INSERT INTO " + name + " VALUES(" + places + ")";
      if (status_.ok()) {
        check(sqlite3_prepare_v2(database_, insert.c_str(), -1, &found->second, nullptr));
      }
    }
    insert_ = found->second;
  }
  void row(std::span<const Cell> cells) override {
    if (insert_ == nullptr || !status_.ok()) return;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      check(std::visit(BindCell{insert_, static_cast<int>(i) + 1}, cells[i]));
    }
    const int done = sqlite3_step(insert_);
    if (done != SQLITE_DONE) check(done);
    sqlite3_reset(insert_);
  }
  void end_table() override { insert_ = nullptr; }
  Status finish() override {
    for (const Extra& extra : kExtras) {
      if (inserts_.contains(extra.table)) run(extra.sql);
    }
    run("COMMIT;");
    return status_;
  }
  [[nodiscard]] const Status& status() const noexcept override { return status_; }

 private:
  void run(const char* sql) {
    if (status_.ok()) check(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr));
  }
  void check(int code) {
    if (code == SQLITE_OK || !status_.ok()) return;
    const char* why = database_ != nullptr ? sqlite3_errmsg(database_) : sqlite3_errstr(code);
    status_ = io_error("cannot write " + path_ + ": " + why);
  }

  std::string path_;
  sqlite3* database_ = nullptr;
  std::map<std::string_view, sqlite3_stmt*> inserts_;  // by table
  sqlite3_stmt* insert_ = nullptr;                     // of the table at hand
  Status status_;
};

}  // namespace

Result<std::unique_ptr<TableWriter>> make_sqlite_writer(const std::string& path) {
  auto writer = std::make_unique<SqliteTables>(path);
  if (!writer->status().ok()) return writer->status();
  return std::unique_ptr<TableWriter>(std::move(writer));
}

}  // namespace peakline
