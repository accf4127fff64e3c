#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <peakline/text.h>

namespace peakline {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Columns taken by the character that begins with `lead`: those from U+3000 to U+FFFF are mostly
// East Asian and, like those beyond (emoji), two columns wide.
std::size_t columns_of(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (continues_character(lead)) return 0;
  return byte >= 0xE3 ? 2 : 1;
}

// Byte offset at which `columns` columns are used up; never inside a character.
std::size_t offset_of(std::string_view text, std::size_t columns) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    seen += columns_of(text[i]);
    if (seen > columns) return i;
  }
  return text.size();
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return out;
}

std::size_t width(std::string_view text) {
  std::size_t columns = 0;
  for (const char c : text) columns += columns_of(c);
  return columns;
}

std::string shorten(std::string_view text, std::size_t columns) {
  const std::size_t all = width(text);
  if (all <= columns) return std::string(text);
  if (columns <= 1) return columns == 0 ? "" : "…";
  const std::size_t tail = (columns - 1) * 2 / 3;
  const std::size_t head = columns - 1 - tail;
  std::string_view end = text.substr(offset_of(text, all - tail));
  while (width(end) > tail) end.remove_prefix(offset_of(end, columns_of(end.front())));
  return std::string(text.substr(0, offset_of(text, head))) + "…" + std::string(end);
}

std::string cut(std::string_view text, std::size_t columns) {
  if (width(text) <= columns) return std::string(text);
  return std::string(text.substr(0, offset_of(text, columns - 1))) + "…";
}

std::vector<std::string> wrapped(std::string_view text, std::string_view indent) {
  const std::size_t room = kColumns - width(indent);
  std::vector<std::string> lines;
  std::string line;
  const auto end_line = [&] {
    lines.push_back((lines.empty() ? std::string(indent) : std::string(width(indent), ' ')) + line);
    line.clear();
  };
  for (std::string_view word : words_of(text)) {
    if (!line.empty() && width(line) + 1 + width(word) > room) end_line();
    for (; width(word) > room; end_line()) {
      const std::size_t fits = offset_of(word, room);
      line = word.substr(0, fits);
      word.remove_prefix(fits);
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) end_line();
  return lines;
}

double share_of(Bytes part, Bytes whole) {
  return whole > Bytes{} ? static_cast<double>(part.raw()) / static_cast<double>(whole.raw()) : 0;
}

std::string dash_or_size(std::optional<Bytes> bytes) {
  return bytes.value_or(Bytes{}) == Bytes{} ? "-" : format_size(*bytes);
}

std::string signed_size(Bytes bytes) {
  return bytes > Bytes{} ? "+" + format_size(bytes) : format_size(bytes);
}

std::string format_time(TimeNs time) {
  const double seconds = static_cast<double>(time.raw()) * 1e-9;
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 600) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

std::string bar(double share, std::size_t columns) {
  static constexpr std::array<std::string_view, 8> kParts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double clamped = std::clamp(share, 0.0, 1.0);
  const auto eighths =
      static_cast<std::size_t>(std::lround(clamped * static_cast<double>(columns) * 8));
  std::string out;
  for (std::size_t i = 0; i < eighths / 8; ++i) out += "█";
  return out + std::string(kParts[eighths % 8]);
}

std::string Paint::wrap(std::string_view code, std::string_view text) const {
  return on_ ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> out;
  for (const std::string& cell : header_) out.push_back(width(cell));
  for (const Row& row : rows_) {
    if (row.note) continue;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      out[i] = std::max(out[i], width(row.cells[i]));
    }
  }
  std::size_t others = 0;
  for (std::size_t i = 1; i < out.size(); ++i) others += out[i] + 2;
  constexpr std::size_t kIndent = 2;
  constexpr std::size_t kLeastName = 12;
  const std::size_t room = kColumns > others + kIndent ? kColumns - others - kIndent : 0;
  out[0] = std::min(out[0], std::max(room, kLeastName));
  return out;
}

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<std::size_t>& widths) const {
  const std::string name = shorten(cells[0], widths[0]);
  std::string out = "  " + name;
  if (cells.size() > 1) out += std::string(widths[0] - width(name), ' ');
  for (std::size_t i = 1; i < cells.size(); ++i) {
    out += "  " + std::string(widths[i] - width(cells[i]), ' ') + cells[i];
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string Table::render(const Paint& paint) const {
  const std::vector<std::size_t> wide = widths();
  std::string out = paint.dim(line(header_, wide)) + "\n";
  for (const Row& row : rows_) {
    out += row.note ? paint.dim("    " + cut(row.cells[0], kColumns - 4)) : line(row.cells, wide);
    out += "\n";
  }
  return out;
}

}  // namespace peakline
