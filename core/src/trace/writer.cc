#include <algorithm>
#include <exception>
#include <utility>

#include <peakline/trace.h>

#include "base/coding.h"
#include "trace/chunk_writer.h"
#include "trace/encoder.h"
#include "trace/format.h"
#include "trace/info_table.h"

namespace peakline {
namespace {

// A word may be as long as readers take it; what is longer is cut between characters.
std::string_view shorten(std::string_view text) {
  if (text.size() <= trace::kMaxTextBytes) return text;
  std::size_t size = trace::kMaxTextBytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

// So that a chunk, and the word that made it too long, stays below what readers refuse.
constexpr std::size_t kLargestChunk = trace::kMaxChunkBytes / 2;

// Of the chunk that is being filled it is not known yet how small it gets.
constexpr std::size_t kUsualCompression = 2;

}  // namespace

class TraceWriter::Impl final : public EventFilter::Output {
 public:
  Impl(std::unique_ptr<Sink> sink, const RunInfo& info, WriterOptions options)
      : chunks_(std::move(sink), options.compression_level),
        chunk_bytes_(std::clamp<std::size_t>(options.chunk_bytes, 1, kLargestChunk)),
        filter_(std::move(options.filter)),
        status_(chunks_.write_file_header()) {
    for (const auto& [key, value] : info) this->info(key, value);
    write_info();
  }

  // Interns through `intern`, and defines the word in the file when that made the table longer.
  template <class Intern, class Count, class Define>
  auto word(Intern intern, Count count, Define define) {
    const std::size_t before = count(dictionary_);
    const auto id = intern(dictionary_);
    if (count(dictionary_) > before && !closed_ && status_.ok()) {
      define(encoder_, id);
      end_full_chunk();
    }
    return id;
  }

  void write(const Event& event) {
    if (closed_) return;
    if (filter_ != nullptr) return filter_->on(event, *this);
    keep(event);
  }

  void keep(const Event& event) override {
    if (trace::is_counted(event.body)) ++event_count_;
    if (!status_.ok()) return;
    encoder_.event(event);
    end_full_chunk();
  }

  void info(std::string_view key, std::string_view value) {
    if (closed_) return;
    key = shorten(key);
    value = shorten(value);
    const trace::InfoTable::Change change = facts_.set(key, value);
    if (change == trace::InfoTable::Change::kNoRoom) ++refused_facts_;
    if (change != trace::InfoTable::Change::kChanged) return;
    coding::append_text(info_, key);
    coding::append_text(info_, value);
    if (info_.size() >= chunk_bytes_) write_info();
  }

  Status flush() {
    if (closed_) return status_;
    write_info();
    write_events();
    if (status_.ok()) status_ = chunks_.flush();
    return status_;
  }

  void give_up(std::string_view why) {
    if (closed_) return;
    if (status_.ok()) status_ = io_error(std::string(why));
    std::vector<std::uint8_t> fact;
    coding::append_text(fact, "partial");
    coding::append_text(fact, shorten(why));
    static_cast<void>(chunks_.write(trace::ChunkType::kInfo, fact));
  }

  Status close() {
    if (closed_) return status_;
    if (filter_ != nullptr && status_.ok()) filter_->finish(*this);
    Status flushed = flush();
    closed_ = true;
    // After a failure the disk may still have room for the few bytes that say what is missing.
    const Status ended = chunks_.write(trace::ChunkType::kTrailer, trailer(flushed.ok()));
    if (flushed.ok()) status_ = ended.ok() ? chunks_.flush() : ended;
    return status_;
  }

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] std::uint64_t event_count() const { return event_count_; }
  [[nodiscard]] const Dictionary& dictionary() const noexcept override { return dictionary_; }
  [[nodiscard]] std::uint64_t bytes_written() const noexcept override {
    return chunks_.bytes_written() + encoder_.size() / kUsualCompression;
  }
  NameId name(std::string_view text) override {
    text = shorten(text);
    return word([&](Dictionary& words) { return words.intern_name(text); },
                [](const Dictionary& words) { return words.name_count(); },
                [&](trace::EventEncoder& out, NameId) { out.define_name(text); });
  }

 private:
  void end_full_chunk() {
    if (encoder_.size() >= chunk_bytes_) write_events();
  }

  void write_info() {
    if (!info_.empty() && status_.ok()) status_ = chunks_.write(trace::ChunkType::kInfo, info_);
    info_.clear();
  }

  void write_events() {
    if (encoder_.size() == 0 || !status_.ok()) return;
    const std::uint64_t events = encoder_.event_count();
    encoder_.take(payload_);
    status_ = chunks_.write(trace::ChunkType::kEvents, payload_);
    if (status_.ok()) written_ += events;
  }

  std::span<const std::uint8_t> trailer(bool whole) {
    payload_.clear();
    const auto reason = whole ? trace::EndReason::kClosed : trace::EndReason::kWriteFailed;
    coding::append_varint(payload_, written_);
    coding::append_varint(payload_, static_cast<std::uint64_t>(reason));
    coding::append_varint(payload_, event_count_ - written_);
    coding::append_varint(payload_, dictionary_.refused() + refused_facts_);
    return payload_;
  }

  trace::ChunkWriter chunks_;
  std::size_t chunk_bytes_;
  std::shared_ptr<EventFilter> filter_;
  Status status_;
  Dictionary dictionary_;
  trace::EventEncoder encoder_;
  trace::InfoTable facts_;
  std::vector<std::uint8_t> info_;     // facts that are not in the sink yet, encoded
  std::vector<std::uint8_t> payload_;  // kept for its memory
  std::uint64_t event_count_ = 0;
  std::uint64_t written_ = 0;  // events in the sink
  std::uint64_t refused_facts_ = 0;
  bool closed_ = false;
};

TraceWriter::TraceWriter(std::unique_ptr<Sink> sink, const RunInfo& info, WriterOptions options)
    : impl_(std::make_unique<Impl>(std::move(sink), info, std::move(options))) {}

TraceWriter::~TraceWriter() {
  try {
    if (impl_) static_cast<void>(impl_->close());
  } catch (const std::exception&) {  // no memory for the last chunk: the file ends before it
  }
}

TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;

TraceWriter& TraceWriter::operator=(TraceWriter&& other) noexcept {
  if (this == &other) return *this;
  if (impl_) static_cast<void>(impl_->close());
  impl_ = std::move(other.impl_);
  return *this;
}

NameId TraceWriter::name(std::string_view text) { return impl_->name(text); }

OpId TraceWriter::op(std::string_view name) {
  name = shorten(name);
  return impl_->word([&](Dictionary& words) { return words.intern_op(name); },
                     [](const Dictionary& words) { return words.op_count(); },
                     [&](trace::EventEncoder& out, OpId) { out.define_op(name); });
}

ModuleId TraceWriter::module(std::string_view path, std::string_view type, ModuleId parent) {
  path = shorten(path);
  type = shorten(type);
  return impl_->word([&](Dictionary& words) { return words.intern_module(path, type, parent); },
                     [](const Dictionary& words) { return words.module_count(); },
                     [&](trace::EventEncoder& out, ModuleId id) {
                       out.define_module(impl_->dictionary().module(id));
                     });
}

DeviceId TraceWriter::device(const DeviceInfo& device) {
  const DeviceInfo info{std::string(shorten(device.name)), std::string(shorten(device.model)),
                        device.total};
  return impl_->word([&](Dictionary& words) { return words.intern_device(info); },
                     [](const Dictionary& words) { return words.device_count(); },
                     [&](trace::EventEncoder& out, DeviceId) { out.define_device(info); });
}

ThreadId TraceWriter::thread(std::string_view name) {
  name = shorten(name);
  return impl_->word([&](Dictionary& words) { return words.intern_thread(name); },
                     [](const Dictionary& words) { return words.thread_count(); },
                     [&](trace::EventEncoder& out, ThreadId) { out.define_thread(name); });
}

CategoryId TraceWriter::category(std::string_view name, CategoryId parent) {
  name = shorten(name);
  return impl_->word([&](Dictionary& words) { return words.intern_category(name, parent); },
                     [](const Dictionary& words) { return words.category_count(); },
                     [&](trace::EventEncoder& out, CategoryId id) {
                       out.define_category(impl_->dictionary().category(id));
                     });
}

LineId TraceWriter::line(const CodeLine& line) {
  CodeLine kept = line;
  kept.text = shorten(line.text);
  return impl_->word([&](Dictionary& words) { return words.intern_line(kept); },
                     [](const Dictionary& words) { return words.line_count(); },
                     [&](trace::EventEncoder& out, LineId) { out.define_line(kept); });
}

StackId TraceWriter::stack(StackId caller, LineId line) {
  return impl_->word([&](Dictionary& words) { return words.intern_stack(caller, line); },
                     [](const Dictionary& words) { return words.stack_count(); },
                     [&](trace::EventEncoder& out, StackId id) {
                       out.define_stack(impl_->dictionary().stack(id));
                     });
}

void TraceWriter::write(const Event& event) { impl_->write(event); }

void TraceWriter::info(std::string_view key, std::string_view value) { impl_->info(key, value); }

Status TraceWriter::flush() { return impl_->flush(); }

void TraceWriter::give_up(std::string_view why) { impl_->give_up(why); }
Status TraceWriter::close() { return impl_->close(); }

const Status& TraceWriter::status() const noexcept { return impl_->status(); }

std::uint64_t TraceWriter::event_count() const noexcept { return impl_->event_count(); }

const Dictionary& TraceWriter::dictionary() const noexcept { return impl_->dictionary(); }

}  // namespace peakline
