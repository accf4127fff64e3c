#include <algorithm>
#include <optional>

#include <peakline/diagnostics.h>
#include <peakline/replay.h>
#include <peakline/size_bound.h>

#include "ledger/stretch.h"

namespace peakline {
namespace {

// A stretch is this part of the run so far, so that their number grows with the logarithm of its length.
constexpr std::uint64_t kStretchesPerRun = 32;
// A program without steps is summed up all the same, after so many events.
constexpr std::uint64_t kLongestWait = std::uint64_t{1} << 20;

class SizeBound final : public EventFilter {
 public:
  explicit SizeBound(Bytes most) : most_(static_cast<std::uint64_t>(most.raw())) {}

  void on(const Event& event, Output& out) override {
    if (!replay_) {
      dictionary_ = &out.dictionary();
      replay_.emplace(*dictionary_);
      replay_->add(stretch_);
    }
    if (!summing_ && wants_to_sum(out)) begin(out);
    const bool written = !summing_ || is_kept_as_it_is(event.body);
    if (written) {
      out.keep(event);
      follow(event);
    } else {
      ++left_out_;
    }
    replay_->on(event);
    last_ = event;
    if (const auto* label = std::get_if<Label>(&event.body)) stretch_.on_label(now(), *label);
    if (std::holds_alternative<StepEnd>(event.body)) ++steps_;
    if (summing_ && is_over(event.body)) end_stretch(out);
  }

  void finish(Output& out) override {
    if (!summing_) return;
    end_stretch(out);
    if (left_out_ == 0) return;
    const NameId what = out.name(Diagnostics::name(Loss::kLeftOutEvent));
    out.keep({last_.time, ThreadId{}, Lost{what, left_out_}});
  }

 private:
  // At the end of a step where there are steps; sooner than too late where there are none.
  [[nodiscard]] bool wants_to_sum(const Output& out) const {
    const std::uint64_t written = out.bytes_written();
    if (written < most_ / 2) return false;
    return std::holds_alternative<StepEnd>(last_.body) || written >= most_ / 4 * 3;
  }

  // What is rare, and says something of its own.
  static bool is_kept_as_it_is(const EventBody& body) {
    return std::holds_alternative<Marker>(body) || std::holds_alternative<OutOfMemory>(body) ||
           std::holds_alternative<Lost>(body);
  }

  void begin(Output& out) {
    summing_ = true;
    close_open(out);
    stretch_.begin(now());
    first_ = replay_->event_count();
  }

  [[nodiscard]] bool is_over(const EventBody& body) const {
    const std::uint64_t events = replay_->event_count() - first_;
    if (events < replay_->event_count() / kStretchesPerRun) return false;
    return std::holds_alternative<StepEnd>(body) || (steps_ == 0 && events >= kLongestWait);
  }

  void end_stretch(Output& out) {
    // The last part of the room is for the ending, which says what is missing.
    if (out.bytes_written() < most_ / 16 * 15) stretch_.end(now(), out);
    first_ = replay_->event_count();
  }

  // The replay's last event; `now()` of a replay that has seen none is never asked for.
  [[nodiscard]] Now now() const {
    return {replay_->event_count() - 1, last_.time,         last_.thread,
            replay_->ledger(),          replay_->context(), *dictionary_};
  }

  // What is open in the part that is kept whole must end with it.
  struct Open {
    ThreadId thread;
    EventBody end;
  };
  void follow(const Event& event) {
    if (summing_) return;
    if (std::holds_alternative<OpBegin>(event.body)) {
      open_.push_back({event.thread, OpEnd{}});
    } else if (const auto* enter = std::get_if<ModuleEnter>(&event.body)) {
      open_.push_back({event.thread, ModuleLeave{enter->module, enter->pass}});
    } else if (const auto* phase = std::get_if<PhaseBegin>(&event.body)) {
      open_.push_back({event.thread, PhaseEnd{phase->phase}});
    } else if (const std::size_t index = event.body.index();
               std::holds_alternative<OpEnd>(event.body) ||
               std::holds_alternative<ModuleLeave>(event.body) ||
               std::holds_alternative<PhaseEnd>(event.body)) {
      const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) {
        return open.end.index() == index && open.thread == event.thread;
      });
      if (found != open_.rend()) open_.erase(std::next(found).base());
    }
  }
  void close_open(Output& out) {
    for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
      out.keep({last_.time, open->thread, open->end});
    }
    open_.clear();
  }

  std::uint64_t most_;
  const Dictionary* dictionary_ = nullptr;  // from the first event on
  std::optional<Replay> replay_;
  Stretch stretch_;
  std::vector<Open> open_;
  Event last_{};
  std::uint64_t first_ = 0;  // event of the stretch
  std::uint64_t steps_ = 0;
  std::uint64_t left_out_ = 0;
  bool summing_ = false;
};

}  // namespace

std::shared_ptr<EventFilter> make_size_bound(Bytes most) {
  return std::make_shared<SizeBound>(most);
}

}  // namespace peakline
