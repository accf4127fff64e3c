// A recording: writing it while the run goes on, reading it back in a stream.
// The bytes are described in docs/trace-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <peakline/diagnostics.h>
#include <peakline/dictionary.h>
#include <peakline/event.h>
#include <peakline/status.h>

namespace peakline {

// Where a writer puts bytes. A write that fails leaves nothing behind, or makes all later ones
// fail.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status flush() = 0;
};

// Where a reader gets bytes. `read` fills as much of `buffer` as there is and says how much; 0 is
// the end.
class Source {
 public:
  virtual ~Source() = default;
  virtual Result<std::size_t> read(std::span<std::byte> buffer) = 0;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;  // for messages
  // The bytes are still being written and `read` waits for them: nothing is asked for beyond a
  // trailer.
  [[nodiscard]] virtual bool grows() const noexcept { return false; }
};

Result<std::unique_ptr<Sink>> open_file_sink(const std::string& path);
Result<std::unique_ptr<Source>> open_file_source(const std::string& path);
// The same for a file that is open already, at its beginning, and is closed with the sink or source.
// `name` is for messages.
std::unique_ptr<Sink> make_file_sink(int file, std::string name);
std::unique_ptr<Source> make_file_source(int file, std::string name);
std::unique_ptr<Sink> make_memory_sink(std::vector<std::byte>& bytes);  // `bytes` outlives the sink
std::unique_ptr<Source> make_memory_source(std::span<const std::byte> bytes);  // likewise

// Facts about the run as text, for example "torch" -> "2.13.0+cpu". Keys are listed in
// docs/trace-format.md.
using RunInfo = std::map<std::string, std::string>;

// Stands between whoever writes events and the recording: what shall be kept goes on, as it is or as other
// events that say the same in less. Not thread-safe.
class EventFilter {
 public:
  class Output {
   public:
    virtual ~Output() = default;
    virtual void keep(const Event& event) = 0;
    virtual NameId name(std::string_view text) = 0;
    [[nodiscard]] virtual const Dictionary& dictionary() const noexcept = 0;
    [[nodiscard]] virtual std::uint64_t bytes_written() const noexcept = 0;  // of the file, so far
  };
  virtual ~EventFilter() = default;
  virtual void on(const Event& event, Output& out) = 0;
  virtual void finish(Output& out) = 0;  // the recording ends
};

struct WriterOptions {
  std::size_t chunk_bytes = std::size_t{256} << 10;  // of encoded events, before compression
  int compression_level = 1;                         // zstd's
  std::shared_ptr<EventFilter> filter = nullptr;     // none: every event is kept
};

// Writes a recording in bounded memory: one chunk is held, everything before it is in the sink.
// Errors of the sink are sticky: events after one are counted, not written. Not thread-safe.
class TraceWriter {
 public:
  explicit TraceWriter(std::unique_ptr<Sink> sink, const RunInfo& info = {},
                       WriterOptions options = {});
  ~TraceWriter();  // closes, and drops the status: call close() to know
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;

  // Words must be known before events use them. Asking again for the same word is cheap.
  NameId name(std::string_view text);
  OpId op(std::string_view name);
  ModuleId module(std::string_view path, std::string_view type, ModuleId parent);
  DeviceId device(const DeviceInfo& device);
  ThreadId thread(std::string_view name);
  CategoryId category(std::string_view name, CategoryId parent);
  LineId line(const CodeLine& line);
  StackId stack(StackId caller, LineId line);

  void write(const Event& event);
  // Facts learned during the run; a later value for a key replaces the earlier one.
  void info(std::string_view key, std::string_view value);
  // Ends the current chunk, so that all events so far survive a kill.
  Status flush();
  // Something else went wrong, and the chunk that is being filled cannot be trusted: only chunks that
  // are in the sink count, and of what follows nothing but `why` is written, as the fact "partial".
  void give_up(std::string_view why);
  // Writes the trailer. Nothing can be written afterwards.
  Status close();

  [[nodiscard]] const Status& status() const noexcept;
  [[nodiscard]] std::uint64_t event_count() const noexcept;
  [[nodiscard]] const Dictionary& dictionary() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads a recording front to back; memory does not grow with its length.
// A cut file reads up to its last whole chunk, and diagnostics() says what is missing.
// Anything else that is wrong with the bytes is a Status that says where. Not thread-safe.
class TraceReader {
 public:
  static Result<TraceReader> open(std::unique_ptr<Source> source);
  ~TraceReader();
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;

  // The next events, valid until the next call; empty at the end.
  Result<std::span<const Event>> next();

  // Words and facts read so far: complete for every event that next() has returned.
  [[nodiscard]] const Dictionary& dictionary() const noexcept;
  [[nodiscard]] const RunInfo& info() const noexcept;
  [[nodiscard]] const Diagnostics& diagnostics() const noexcept;

 private:
  class Impl;
  explicit TraceReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace peakline
