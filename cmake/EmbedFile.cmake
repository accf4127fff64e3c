# Turns a file into C++: cmake -DIN=page.html -DOUT=page.cc -DNAME=kPage -P EmbedFile.cmake
# Bytes as numbers: string literals have a length limit, and assemblers their own ideas of paths.
file(READ "${IN}" hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," body "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" body "${body}")
file(WRITE "${OUT}" "// Made from ${NAME}'s file by cmake/EmbedFile.cmake.
#include <string_view>
namespace peakline::cli {
namespace {
constexpr unsigned char kBytes[] = {
${body}};
}  // namespace
extern const std::string_view ${NAME};
const std::string_view ${NAME}(reinterpret_cast<const char*>(kBytes), ${bytes});
}  // namespace peakline::cli
")
