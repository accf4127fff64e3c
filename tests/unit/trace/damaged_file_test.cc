// Files that are not what they should be: an answer in one sentence, or what is left of a cut one.
#include <gtest/gtest.h>

#include <random>

#include "read_trace.h"
#include "trace_builder.h"
#include "trace_bytes.h"

namespace peakline::testing {
namespace {

using namespace std::literals;

// Several chunks, compressed and not, with words defined in the middle.
Bytestring small_file() {
  TraceBuilder trace;
  trace.info("torch", "2.13.0");
  for (int i = 0; i < 12; ++i) {
    trace.enter("Net.fc" + std::to_string(i % 3)).op("aten::mm").alloc("a", 4_MiB).op_end();
    trace.label("a", category::kActivation).leave("Net.fc" + std::to_string(i % 3));
    trace.thread(i % 2 == 0 ? "autograd" : "main").free("a").step();
  }
  return trace.bytes({.chunk_bytes = 90});
}

bool one_sentence(const std::string& message) {
  return !message.empty() && message.find('\n') == std::string::npos && message.size() < 300;
}

// The events of `cut` are the first ones of `whole`.
void expect_prefix(const ReadTrace& cut, const ReadTrace& whole) {
  const std::vector<std::string> some = cut.texts();
  const std::vector<std::string> all = whole.texts();
  ASSERT_LE(some.size(), all.size());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
}

TEST(DamagedFile, AnEmptyFileIsNotARecording) {
  const ReadTrace read = read_trace(Bytestring{});
  EXPECT_EQ(read.status.code(), StatusCode::kInvalidInput);
  EXPECT_EQ(read.status.message(), "'memory' is empty, so it is not a peakline recording");
}

TEST(DamagedFile, OtherFilesAreNamedForWhatTheySeemToBe) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"\x80\x04\x95\x10 and more"sv, "a Python pickle, such as a memory snapshot of torch"},
      {"\x1f\x8b\x08\x00"sv, "a gzip file"},
      {"PK\x03\x04 and more"sv, "a zip archive, as torch.save writes them"},
      {"action,addr,size\nalloc,1,2\n"sv, "CSV"},
      {"{\"a\": 1}"sv, "JSON"},
      {"hello there\n"sv, "text"},
      {"<!doctype html>"sv, "HTML or XML"},
  };
  for (const auto& [content, what] : cases) {
    EXPECT_EQ(read_trace(text_bytes(content)).status.message(),
              "'memory' is not a peakline recording: it seems to be " + std::string(what));
  }
  EXPECT_EQ(read_trace(text_bytes("\x01\x02\x03"sv)).status.message(),
            "'memory' is not a peakline recording");
}

TEST(DamagedFile, RandomBytesAreNeverARecording) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    Bytestring bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const ReadTrace bare = read_trace(bytes);
    EXPECT_EQ(bare.status.code(), StatusCode::kInvalidInput);
    const ReadTrace headed = read_trace(file_header() + bytes);
    EXPECT_EQ(headed.status.code(), StatusCode::kInvalidInput) << headed.status.message();
    EXPECT_TRUE(one_sentence(headed.status.message()));
  }
}

TEST(DamagedFile, EveryTruncationOpensUpToItsLastWholeChunk) {
  const Bytestring file = small_file();
  const ReadTrace whole = read_trace(file);
  ASSERT_TRUE(whole.status.ok());
  const std::vector<std::size_t> offsets = chunk_offsets(file);
  ASSERT_GT(offsets.size(), 5u);
  const std::size_t first_events_end = offsets[2];  // the first chunk holds facts
  for (std::size_t size = 0; size < file.size(); ++size) {
    const ReadTrace cut = read_trace(first(file, size));
    if (size < first_events_end) {
      EXPECT_EQ(cut.status.code(), StatusCode::kInvalidInput) << size;
      EXPECT_TRUE(one_sentence(cut.status.message())) << cut.status.message();
      continue;
    }
    ASSERT_TRUE(cut.status.ok()) << size << ": " << cut.status.message();
    expect_prefix(cut, whole);
    const std::size_t last_whole = *(std::upper_bound(offsets.begin(), offsets.end(), size) - 1);
    EXPECT_EQ(cut.diagnostics.of(Loss::kTruncatedTail), size - last_whole);
    EXPECT_EQ(cut.diagnostics.of(Loss::kNoTrailer), 1u);
  }
}

TEST(DamagedFile, EveryFlippedBitIsNoticed) {
  const Bytestring file = small_file();
  const ReadTrace whole = read_trace(file);
  const std::size_t last_chunk = *(chunk_offsets(file).end() - 2);
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    Bytestring flipped = file;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    const ReadTrace read = read_trace(flipped);
    if (read.status.ok()) {
      EXPECT_GE(bit / 8, last_chunk) << "only a damaged last chunk may pass for a cut one";
      EXPECT_GT(read.diagnostics.of(Loss::kTruncatedTail), 0u);
      EXPECT_EQ(read.diagnostics.of(Loss::kNoTrailer), 1u);
    } else {
      EXPECT_TRUE(one_sentence(read.status.message())) << read.status.message();
      EXPECT_NE(read.status.message().find("'memory'"), std::string::npos);
    }
    expect_prefix(read, whole);
  }
}

TEST(DamagedFile, ADamagedChunkInTheMiddleIsNamedByItsOffset) {
  Bytestring file = small_file();
  const std::size_t offset = chunk_offsets(file)[3];
  file[offset + trace::kChunkHeaderBytes + 2] ^= std::byte{0x10};
  EXPECT_EQ(
      read_trace(file).status.message(),
      "'memory' is damaged at byte " + std::to_string(offset) + ": a chunk's checksum is wrong");
}

TEST(DamagedFile, AnErrorStaysAnError) {
  Bytestring file = small_file();
  file[chunk_offsets(file)[3] + trace::kChunkHeaderBytes] ^= std::byte{1};
  Result<TraceReader> reader = TraceReader::open(make_memory_source(file));
  ASSERT_TRUE(reader.ok());
  Result<std::span<const Event>> batch = reader->next();
  while (batch.ok() && !batch->empty()) batch = reader->next();
  ASSERT_FALSE(batch.ok());
  EXPECT_EQ(reader->next().status().message(), batch.status().message());
}

TEST(DamagedFile, ATailOfZerosIsACutTail) {
  const Bytestring file = small_file();
  const std::size_t end = chunk_offsets(file)[4];
  for (const std::size_t zeros : {std::size_t{1}, std::size_t{20}, std::size_t{10'000}}) {
    const ReadTrace read = read_trace(first(file, end) + Bytestring(zeros));
    ASSERT_TRUE(read.status.ok()) << read.status.message();
    EXPECT_EQ(read.diagnostics.of(Loss::kTruncatedTail), zeros);
  }
  const ReadTrace not_zeros = read_trace(first(file, end) + Bytestring(5000) + text_bytes("x"));
  EXPECT_FALSE(not_zeros.status.ok());
}

TEST(DamagedFile, BytesAfterTheTrailerAreAnError) {
  const Bytestring file = small_file();
  EXPECT_EQ(read_trace(file + Bytestring(1)).status.message(),
            "'memory' is damaged at byte " + std::to_string(file.size()) +
                ": more bytes follow the trailer");
  EXPECT_FALSE(read_trace(file + file).status.ok());
}

TEST(DamagedFile, AMissingOrRepeatedChunkIsNoticedByTheTrailer) {
  const Bytestring file = small_file();
  const std::vector<std::size_t> at = chunk_offsets(file);
  const auto part = [&](std::size_t from, std::size_t to) {
    return Bytestring(file.begin() + static_cast<std::ptrdiff_t>(at[from]),
                      file.begin() + static_cast<std::ptrdiff_t>(at[to]));
  };
  const std::size_t last = at.size() - 1;
  const ReadTrace missing = read_trace(first(file, at[last - 2]) + part(last - 1, last));
  EXPECT_NE(missing.status.message().find("the trailer promises"), std::string::npos);
  const ReadTrace repeated =
      read_trace(first(file, at[last - 1]) + part(last - 2, last - 1) + part(last - 1, last));
  EXPECT_NE(repeated.status.message().find("the trailer promises"), std::string::npos);
}

TEST(DamagedFile, LengthsAreCheckedBeforeTheyAreBelieved) {
  const std::vector<std::uint8_t> few(10);
  const auto huge = static_cast<std::uint32_t>(-1);
  EXPECT_NE(read_trace(file_header() + chunk_with(2, 1, huge, 10, few))
                .status.message()
                .find("larger than the limit"),
            std::string::npos);
  EXPECT_FALSE(read_trace(file_header() + chunk_with(2, 0, huge, huge, few)).status.ok());
  EXPECT_FALSE(read_trace(file_header() + chunk_with(9, 0, huge, huge, few)).status.ok());
  EXPECT_FALSE(read_trace(file_header() + chunk_with(2, 0, 12, 10, few)).status.ok());
}

TEST(DamagedFile, AChunkThatDecompressesToAnotherLengthIsAnError) {
  const Bytestring file = small_file();
  const std::size_t at = chunk_offsets(file)[2];
  const std::uint8_t* header = as_u8(file).data() + at;
  ASSERT_EQ(header[1], trace::kCompressed);
  const auto raw = coding::get_fixed<std::uint32_t>(header + 4);
  const auto stored = coding::get_fixed<std::uint32_t>(header + 8);
  const std::span payload(header + trace::kChunkHeaderBytes, stored);
  for (const std::uint32_t wrong : {raw - 1, raw + 1, 0u, trace::kMaxChunkBytes}) {
    const ReadTrace read =
        read_trace(file_header() + chunk_with(2, 1, wrong, stored, payload) + Bytestring(1));
    EXPECT_EQ(read.status.message(), "'memory' is damaged at byte 16: a chunk does not decompress");
  }
}

}  // namespace
}  // namespace peakline::testing
