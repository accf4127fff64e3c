// A part of a run that is summed up: what must remain of it, so that everything after it still adds up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

#include <peakline/replay.h>
#include <peakline/trace.h>

#include "ledger/peak.h"

namespace peakline {

// Watches a replay, and writes, when it is told that the stretch is over, what of it is kept:
//
//   what died, of what was alive before     Free
//   a step, and the most that it held       Alloc and Free of a block that stands for the rest, StepEnd
//   a device held more than ever before     every block that was alive then, with op, module and label
//   what is alive at the end                Alloc, Label
//
// So live bytes are right at the end of every stretch, step peaks are those of the run, and the highest
// peak of each device is whole. Order within a stretch is kept for steps and peaks only.
class Stretch final : public Pass {
 public:
  // Everything up to here is in the recording as it happened.
  void begin(const Now& now);
  // Puts what is kept into `out`, and begins the next one.
  void end(const Now& now, EventFilter::Output& out);

  // After the ledger has taken it.
  void on_label(const Now& now, const Label& label);
  void on_alloc(const Now& now, const Block& block) override;
  void on_free(const Now& now, const Block& block, CategoryId category) override;
  void on_step_end(const Now& now) override;
  void on_reserved(const Now& now, DeviceId device) override;

 private:
  struct Kept {
    Block block;
    CategoryId category;
  };
  struct Gone {
    BlockId block;
    Bytes bytes;
  };
  struct Peak {
    Bytes bytes;
    Place place;
    ThreadId thread;
    std::vector<Kept> died;      // born in the stretch, alive at the peak, dead by now
    std::vector<Gone> old_died;  // the same of blocks from before
  };
  struct Device {
    Bytes record;  // the highest of the whole run before this stretch
    std::optional<Peak> peak;
    std::vector<Gone> gone;  // from before the stretch; died in it before any peak
    Bytes step_peak;
    Bytes shown;  // what is allocated in the recording that is being written
    Bytes reserved_peak;
    Bytes reserved_shown;
  };
  struct Step {
    std::uint64_t event = 0;
    std::vector<Bytes> peaks;  // by device
  };
  class Writing;

  Device& device(DeviceId id);
  [[nodiscard]] bool is_old(const Block& block) const { return block.birth.event < first_; }
  void start(const Now& now);
  void write_before(Writing& out);
  void write_peak(const Now& now, Device& device, DeviceId id, Writing& out);
  void write_after(const Now& now, Writing& out);
  // Of those born in the stretch and alive, on `device` if given, up to `last`; oldest first.
  [[nodiscard]] std::vector<Kept> alive(const Now& now, std::optional<DeviceId> device,
                                        std::uint64_t last) const;

  bool summing_ = false;
  std::uint64_t first_ = 0;  // event
  std::vector<Device> devices_;
  std::vector<Step> steps_;
  std::unordered_set<std::uint64_t> born_;           // alive, and not written yet
  std::map<std::uint64_t, Label> labels_;            // of blocks from before
  std::uint64_t stand_in_ = std::uint64_t{1} << 62;  // ids that no program reaches
};

}  // namespace peakline
