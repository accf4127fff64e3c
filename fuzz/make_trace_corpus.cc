// Writes the seeds of trace_reader_fuzz into a folder: make_trace_corpus fuzz/corpus/trace_reader
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "random_events.h"
#include "trace_builder.h"
#include "trace_bytes.h"

namespace {

using namespace peakline;
using namespace peakline::testing;

bool save(const std::string& path, std::uint8_t how, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  out.put(static_cast<char>(how));
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  return out.good();
}

// Each chunk of a file as a seed of its own.
bool save_chunks(const std::string& stem, const Bytestring& file) {
  const std::vector<std::size_t> offsets = chunk_offsets(file);
  bool good = true;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const auto type = static_cast<std::uint8_t>(file[offsets[i]]);
    if (file[offsets[i] + 1] != std::byte{0}) continue;  // compressed
    const std::size_t start = offsets[i] + trace::kChunkHeaderBytes;
    good &= save(stem + std::to_string(i), type,
                 std::span(file).subspan(start, offsets[i + 1] - start));
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: make_trace_corpus FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  std::mt19937_64 random(7);
  const Bytestring run = TraceBuilder{}
                             .info("torch", "2.13.0")
                             .device("cuda:0", 80_GiB)
                             .enter("Net.fc")
                             .op("aten::mm")
                             .alloc("a", 4_MiB)
                             .op_end()
                             .leave("Net.fc")
                             .thread("autograd")
                             .label("a", category::kActivation, "Net.fc", "weight")
                             .free("a")
                             .step()
                             .bytes();
  // Chunks this small are never compressed, so their payload is the seed as it stands.
  const Bytestring all_kinds = random_events(random, 60).bytes({.chunk_bytes = 200});
  const bool good = save(folder + "run", 0, run) && save(folder + "all_kinds", 0, all_kinds) &&
                    save_chunks(folder + "run_chunk", run) &&
                    save_chunks(folder + "kinds_chunk", all_kinds);
  return good ? 0 : 1;
}
