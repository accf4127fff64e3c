// Text that fits a terminal: 80 columns, whatever the names in a recording are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/counts.h>
#include <peakline/units.h>

namespace peakline {

inline constexpr std::size_t kColumns = 80;

// `text` with control characters shown as '?', so that a name cannot drive the terminal.
std::string printable(std::string_view text);

// How many columns of a terminal `text` (UTF-8) takes.
std::size_t width(std::string_view text);

// At most `columns` wide: the middle gives way to "…", since both ends of a module path matter.
std::string shorten(std::string_view text, std::size_t columns);
// The same, without its end.
std::string cut(std::string_view text, std::size_t columns);

// Lines of at most kColumns, the first behind `indent` and the others as far in. Breaks between
// words, and inside those that are longer than a line.
std::vector<std::string> wrapped(std::string_view text, std::string_view indent);

// How much of `whole` it is: 0 to 1, and 0 of nothing.
double share_of(Bytes part, Bytes whole);

// "1.92 s", "35 ms"
std::string format_time(TimeNs time);

// A bar of `columns` cells, filled for `share` of them (0 to 1), in eighths of a cell.
std::string bar(double share, std::size_t columns);

// "-" for what is nothing or not known.
std::string dash_or_size(std::optional<Bytes> bytes);

// "+1.000 GiB", "-3.000 MiB", "0 B"
std::string signed_size(Bytes bytes);

// Marks text for a terminal that shows colour; plain text elsewhere.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  [[nodiscard]] std::string bold(std::string_view text) const { return wrap("1", text); }
  [[nodiscard]] std::string dim(std::string_view text) const { return wrap("2", text); }
  [[nodiscard]] std::string warn(std::string_view text) const { return wrap("33", text); }

 private:
  [[nodiscard]] std::string wrap(std::string_view code, std::string_view text) const;
  bool on_;
};

// Rows of cells in aligned columns. The first column is left-aligned and gives way when the table
// is wider than the terminal; the others are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back({std::move(row), false}); }
  // A remark below the last row, as wide as the table may be; what does not fit is cut off its end.
  void note(std::string text) { rows_.push_back({{std::move(text)}, true}); }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] std::string render(const Paint& paint) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    bool note = false;
  };
  [[nodiscard]] std::string line(const std::vector<std::string>& cells,
                                 const std::vector<std::size_t>& widths) const;
  [[nodiscard]] std::vector<std::size_t> widths() const;

  std::vector<std::string> header_;
  std::vector<Row> rows_;
};

}  // namespace peakline
