// How much was allocated while the program was in each part that it gave a name.
#pragma once

#include <cstdint>
#include <vector>

#include <peakline/replay.h>

namespace peakline {

struct RegionSpan {
  std::uint64_t entered = 0;
  std::vector<Bytes> highest;  // total of each device while it was open
};

class RegionSpansPass : public Pass {
 public:
  void on_alloc(const Now& now, const Block& block) override;
  void on_other(const Now& now, const Event& event) override;
  void finish(const Now& now) override;

  // By region id; may be shorter than the context's.
  [[nodiscard]] const std::vector<RegionSpan>& spans() const noexcept { return spans_; }
  // What the ids stand for, once the stream is over.
  struct Name {
    std::string path;
    RegionId around;
  };
  [[nodiscard]] const std::vector<Name>& names() const noexcept { return names_; }

 private:
  // More than these are open at once in no program; then the outermost ones count.
  static constexpr std::size_t kMostOpen = 256;

  RegionSpan& span(RegionId region);
  void rise(RegionId region, DeviceId device, Bytes total);

  std::vector<RegionSpan> spans_;
  std::vector<RegionId> open_;
  std::vector<Name> names_;
};

}  // namespace peakline
