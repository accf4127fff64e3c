// Any bytes at all: the reader answers with events or with one sentence, and its events survive
// being written and read again.
//
// The first byte says how the rest is meant: as a whole file, or as the payload of a chunk that
// gets a right header and right checksums, for bytes behind a checksum are otherwise never reached.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <peakline/trace.h>

#include "read_trace.h"
#include "trace_bytes.h"

namespace {

using namespace peakline;
using namespace peakline::testing;

Bytestring as_file(std::uint8_t how, std::span<const std::uint8_t> bytes) {
  if (how == 0) {
    Bytestring file;
    append(file, bytes);
    return file;
  }
  return file_header() + chunk(how, bytes);
}

void require(bool truth) {
  if (!truth) std::abort();
}

void check_round_trip(const ReadTrace& read) {
  std::vector<std::byte> bytes;
  TraceWriter writer(make_memory_sink(bytes), read.info, {.chunk_bytes = 64});
  for (const Event& event : read.events) writer.write(event);
  require(writer.close().ok());
  const ReadTrace again = read_trace(bytes);
  require(again.status.ok());
  require(again.texts() == read.texts());
  require(again.info == read.info);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ReadTrace read = read_trace(as_file(data[0] % 4, {data + 1, size - 1}));
  if (!read.status.ok()) require(read.status.message().find("'memory'") != std::string::npos);
  // Long streams are as good as short ones, and slow.
  if (read.events.size() < 1000) check_round_trip(read);
  return 0;
}
