// The bytes themselves: what version 1.0 wrote, every later version reads.
#include <gtest/gtest.h>

#include "read_trace.h"
#include "trace_builder.h"
#include "trace_bytes.h"

namespace peakline::testing {
namespace {

TraceBuilder example() {
  return TraceBuilder{}.info("torch", "2.13.0").op("aten::mm").alloc("a", 4_MiB).op_end().free("a");
}

// The example of docs/trace-format.md. If this test fails, the format has changed: see "Changing
// the format" there.
constexpr std::uint8_t kExample[] = {
    0x89, 'P',  'E',  'A',  'K',  0x0d, 0x0a, 0x1a, 0x01, 0x00, 0x02, 0x00,       // file header
    0x96, 0xd7, 0x97, 0xf8,                                                       //
    0x01, 0x00, 0x00, 0x00, 0x0d, 0x00, 0x00, 0x00, 0x0d, 0x00, 0x00, 0x00,       // info chunk
    0xe1, 0xd0, 0x72, 0x87, 0x04, 0x26, 0x14, 0xe1,                               //
    0x05, 't',  'o',  'r',  'c',  'h',  0x06, '2',  '.',  '1',  '3',  '.',  '0',  //
    0x02, 0x00, 0x00, 0x00, 0x36, 0x00, 0x00, 0x00, 0x36, 0x00, 0x00, 0x00,       // events chunk
    0xf7, 0x6b, 0xf1, 0xb9, 0xaf, 0x62, 0x4f, 0xa2,                               //
    0x04, 0xd0, 0x0f, 0x00, 0x03, 0x22, 0x06, 0x06,              // counts, bases, column lengths
    0x16, 0x08, 'a',  't',  'e',  'n',  ':',  ':',  'm',  'm',   // op 1
    0x18, 0x00, 0x06, 'c',  'u',  'd',  'a',  ':',  '0',  0x00,  // device 0
    0x19, 0x04, 'm',  'a',  'i',  'n',                           // thread 0
    0x00, 0x01,                                                  // OpBegin 1
    0xa2, 0x80, 0x40,                                            // Alloc of 8192 x 512 bytes
    0x21,                                                        // OpEnd
    0x23, 0x00,                                                  // Free of the newest
    0xe8, 0x07, 0xe8, 0x07, 0xe8, 0x07,                          // three times 1000 ns
    0x80, 0x80, 0x80, 0x80, 0x80, 0x7f,                          // the address
    0x03, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00,  // trailer chunk
    0x34, 0x7a, 0x45, 0x33, 0x94, 0x53, 0x00, 0x50,                          //
    0x04, 0x00, 0x00, 0x00,                                                  //
};

TEST(TraceFormat, TheExampleOfTheDocumentIsWhatTheWriterWrites) {
  const Bytestring written = example().bytes();
  const std::span bytes = as_u8(written);
  EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin(), bytes.end()),
            std::vector<std::uint8_t>(std::begin(kExample), std::end(kExample)));
}

TEST(TraceFormat, TheExampleOfTheDocumentReads) {
  const ReadTrace read = read_trace(std::as_bytes(std::span(kExample)));
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.info.at("torch"), "2.13.0");
  ASSERT_EQ(read.events.size(), 4u);
  for (std::size_t i = 0; i < read.events.size(); ++i) {
    EXPECT_EQ(to_text(read.events[i]), to_text(example().events()[i]));
  }
}

// Nothing but the file header differs between 1.0 and 1.2 where no size was worked out and no stack
// was taken.
TEST(TraceFormat, AFileOfVersion10Reads) {
  Bytestring old = file_header(1, 0);
  const std::span example = std::as_bytes(std::span(kExample));
  old.insert(old.end(), example.begin() + trace::kFileHeaderBytes, example.end());
  const ReadTrace read = read_trace(old);
  ASSERT_TRUE(read.status.ok()) << read.status.message();
  EXPECT_EQ(read.events.size(), 4u);
}

}  // namespace
}  // namespace peakline::testing
