#include <charconv>
#include <map>
#include <string>

#include "export/buffered.h"
#include "export/rows.h"

namespace peakline {
namespace {

void append_number(std::string& out, auto value) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end);
}

// Quoted when it holds anything that a CSV reader would trip over.
void append_field(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

struct AppendCell {
  std::string& out;
  void operator()(std::monostate) const {}
  void operator()(std::int64_t value) const { append_number(out, value); }
  void operator()(std::uint64_t value) const { append_number(out, value); }
  void operator()(std::string_view value) const { append_field(out, value); }
};

class CsvTables final : public TableWriter {
 public:
  explicit CsvTables(SinkOpener open) : open_(std::move(open)) {}

  void begin_recording(std::int64_t, std::string_view) override {}
  void end_recording() override {}
  void begin_table(const TableSchema& table) override {
    file_ = nullptr;
    const auto found = files_.find(table.name);
    if (found != files_.end()) {
      file_ = found->second.get();
      return;
    }
    if (!status_.ok()) return;
    Result<std::unique_ptr<Sink>> sink = open_(table.name);
    if (!sink.ok()) {
      status_ = sink.status();
      return;
    }
    auto made = std::make_unique<Buffered>(std::move(*sink));
    file_ = made.get();
    files_.emplace(table.name, std::move(made));
    std::string_view comma;
    for (const Column& column : table.columns) {
      file_->text().append(comma).append(column.name);
      comma = ",";
    }
    file_->add("\n");
  }
  void row(std::span<const Cell> cells) override {
    if (file_ == nullptr) return;
    std::string& out = file_->text();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) out += ',';
      std::visit(AppendCell{out}, cells[i]);
    }
    file_->add("\n");
    if (!file_->status().ok()) status_ = file_->status();
  }
  void end_table() override { file_ = nullptr; }
  Status finish() override {
    for (const auto& [name, file] : files_) {
      if (Status status = file->finish(); status_.ok()) status_ = status;
    }
    return status_;
  }
  [[nodiscard]] const Status& status() const noexcept override { return status_; }

 private:
  SinkOpener open_;
  std::map<std::string_view, std::unique_ptr<Buffered>> files_;  // by table
  Buffered* file_ = nullptr;                                     // of the table at hand
  Status status_;
};

}  // namespace

std::unique_ptr<TableWriter> make_csv_writer(SinkOpener open) {
  return std::make_unique<CsvTables>(std::move(open));
}

}  // namespace peakline
