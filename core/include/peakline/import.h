// Files of others as events: allocator traces and torch's memory snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <peakline/event_sink.h>
#include <peakline/status.h>
#include <peakline/trace.h>

namespace peakline {

struct ImportedCounts {
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t segments = 0;
  std::uint64_t already_alive = 0;  // blocks whose allocation lies before the trace
  std::uint64_t skipped = 0;        // entries that say nothing about memory
};

// An allocator trace as CSV: a header line that names at least the columns action, addr, size and
// stream, then one line per event. Actions are those of torch's memory history (alloc,
// free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom,
// snapshot) and empty_cache. Lines that start with '#' are comments.
// Anything that cannot be true is an error with its line: a free of something that is not
// allocated, an allocation over a live one, a size below zero, a line that is cut. Holds the live
// blocks in memory, never the file.
Result<ImportedCounts> import_csv(Source& source, EventSink& sink);

// Opens the same bytes again, from their start.
using SourceOpener = std::function<Result<std::unique_ptr<Source>>()>;

// A snapshot of torch.cuda.memory._snapshot() or _dump_snapshot(), pickled with any protocol. Only
// plain data is built; a pickle that asks for anything else is refused.
// The file is read twice: first for what was alive before its trace begins (known from frees
// without an allocation and from the snapshot's segments), then for the events. Entries go on as
// soon as they are complete; memory grows with live blocks, different call stacks, and four bytes
// per object of the pickle, not with the trace.
Result<ImportedCounts> import_snapshot(const SourceOpener& open, EventSink& sink);

// What a file is, by its first bytes.
enum class FileKind : std::uint8_t { kRecording, kPickle, kCsv, kOther };
FileKind kind_of_file(std::span<const std::byte> start) noexcept;

}  // namespace peakline
