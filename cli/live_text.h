// One picture of a run that is still going on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <peakline/replay.h>
#include <peakline/text.h>

namespace peakline::cli {

// Peaks and a bounded history of each device, kept up to date while events come in.
class LivePass : public Pass {
 public:
  struct Device {
    Bytes peak;
    Bytes peak_reserved;
    std::vector<Bytes> history;  // the highest total of equal stretches of events
  };

  void on_alloc(const Now& now, const Block& block) override { observe(now, block.device); }
  void on_free(const Now& now, const Block& block, CategoryId) override {
    observe(now, block.device);
  }
  void on_reserved(const Now& now, DeviceId device) override { observe(now, device); }

  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }

 private:
  static constexpr std::size_t kHistory = 128;

  void observe(const Now& now, DeviceId id);

  std::vector<Device> devices_;
  std::uint64_t width_ = 1;  // events per entry of a history
};

// The device to look at: the accelerator with the highest peak, else the host. -1: nothing yet.
int main_device(const LivePass& live, const Dictionary& dictionary);

// "step 3  1.2 GiB allocated, ..." for logs.
std::string live_line(const Replay& replay, const LivePass& live, const Dictionary& dictionary);

// A screen of at most `rows` lines.
std::string live_screen(const std::string& name, const Replay& replay, const LivePass& live,
                        const Dictionary& dictionary, std::size_t rows, const Paint& paint);

}  // namespace peakline::cli
