// A device that puts segments where a recorded run had them.
#pragma once

#include <deque>
#include <memory>
#include <set>

#include <peakline/device_model.h>

namespace peakline {

// Gives out recorded addresses as long as what is asked for agrees with them, and falls back to the
// driver model for good at the first difference. The record may grow while it is followed.
class RecordedDevice : public DeviceModel {
 public:
  explicit RecordedDevice(const DriverOptions& options);

  // The recorded run took memory. Changes of other kinds are not needed and ignored.
  void add(const SegmentChange& change);
  // The recorded run did not do what is being asked, or the other way round.
  void leave_record() noexcept { follows_ = false; }
  // Recorded memory that nobody has asked for yet.
  [[nodiscard]] bool has_pending() const noexcept { return follows_ && !pending_.empty(); }

  std::optional<Address> allocate(Bytes bytes) override;
  void release(Address address, Bytes bytes) override;
  Address reserve_addresses(Bytes bytes) override;
  void release_addresses(Address address, Bytes bytes) override;
  bool map(Bytes bytes) override;
  void unmap(Bytes bytes) override;
  [[nodiscard]] Bytes total() const override { return model_->total(); }
  [[nodiscard]] Bytes free() const override { return model_->free(); }

 private:
  [[nodiscard]] bool next_is(SegmentChange::Kind kind, Bytes bytes) const noexcept;

  std::deque<SegmentChange> pending_;
  bool follows_ = true;
  std::set<Address> recorded_reservations_;
  std::unique_ptr<DeviceModel> model_;  // keeps the books, and takes over
};

}  // namespace peakline
