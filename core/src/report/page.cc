#include <peakline/report.h>

namespace peakline {
namespace {

constexpr std::string_view kPlace = "\"@peakline-data@\"";

// JSON may spell any character as \u00xx inside its strings, and nowhere else can these occur. So
// the text can hold neither "</script" nor "<!--", nor the two line ends that JavaScript knows and
// JSON does not.
void append_escaped(std::string& out, std::string_view json) {
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = json.substr(i);
    if (json[i] == '<') {
      out += "\\u003c";
    } else if (rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9")) {
      out += rest[2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += json[i];
    }
  }
}

}  // namespace

Result<std::string> fill_page(std::string_view page, std::string_view json) {
  const std::size_t at = page.find(kPlace);
  if (at == std::string_view::npos) {
    return unsupported("the page of the report has no place for data: build peakline again");
  }
  std::string out;
  out.reserve(page.size() + json.size() + json.size() / 16);
  out += page.substr(0, at);
  append_escaped(out, json);
  out += page.substr(at + kPlace.size());
  return out;
}

}  // namespace peakline
