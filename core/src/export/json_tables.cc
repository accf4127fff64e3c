#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "export/buffered.h"
#include "export/rows.h"

namespace peakline {
namespace {

bool needs_escape(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\'; }

void append_text(std::string& out, std::string_view text) {
  out += '"';
  if (std::ranges::none_of(text, needs_escape)) {
    out += text;
  } else {
    for (const char c : text) {
      if (!needs_escape(c)) {
        out += c;
      } else if (c == '"' || c == '\\') {
        out += '\\', out += c;
      } else {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
      }
    }
  }
  out += '"';
}

struct AppendCell {
  std::string& out;
  void operator()(std::monostate) const { out += "null"; }
  void operator()(std::string_view value) const { append_text(out, value); }
  template <class Number>
  void operator()(Number value) const {
    const fmt::format_int digits(value);
    out.append(digits.data(), digits.size());
  }
};

// {"schema_version": 1, "recordings": [{"rank": 0, "file": …, "tables": {"devices": [row, …], …}}]}
class JsonTables final : public TableWriter {
 public:
  explicit JsonTables(std::unique_ptr<Sink> sink) : file_(std::move(sink)) {
    file_.add("{\"schema_version\":1,\"recordings\":[");
  }

  void begin_recording(std::int64_t rank, std::string_view file) override {
    std::string scratch;
    std::string& out = file_.text();
    out += recordings_++ == 0 ? "\n" : ",\n";
    fmt::format_to(std::back_inserter(out), "{{\"rank\":{},\"file\":", rank);
    append_text(out, valid_utf8(file, scratch));
    file_.add(",\"tables\":{");
    tables_ = 0;
  }
  void begin_table(const TableSchema& table) override {
    table_ = &table;
    rows_ = 0;
    std::string& out = file_.text();
    out += tables_++ == 0 ? "\n" : ",\n";
    append_text(out, table.name);
    file_.add(":[");
  }
  // What is not there is left out: most columns of most events are.
  void row(std::span<const Cell> cells) override {
    std::string& out = file_.text();
    out += rows_++ == 0 ? "\n{" : ",\n{";
    bool first = true;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (std::holds_alternative<std::monostate>(cells[i])) continue;
      if (!first) out += ',';
      first = false;
      append_text(out, table_->columns[i].name);
      out += ':';
      std::visit(AppendCell{out}, cells[i]);
    }
    file_.add("}");
  }
  void end_table() override { file_.add(rows_ == 0 ? "]" : "\n]"); }
  void end_recording() override { file_.add("\n}}"); }
  Status finish() override {
    file_.add("\n]}\n");
    return file_.finish();
  }
  [[nodiscard]] const Status& status() const noexcept override { return file_.status(); }

 private:
  Buffered file_;
  const TableSchema* table_ = nullptr;
  std::uint64_t recordings_ = 0;
  std::uint64_t tables_ = 0;
  std::uint64_t rows_ = 0;
};

}  // namespace

std::unique_ptr<TableWriter> make_json_writer(std::unique_ptr<Sink> sink) {
  return std::make_unique<JsonTables>(std::move(sink));
}

}  // namespace peakline
