#include "allocator/recorded_device.h"

namespace peakline {
namespace {

constexpr std::uint64_t kAlignment = std::uint64_t{2} << 20;

// Addresses of the model must not meet recorded ones: real drivers use the top of the 47-bit space.
DriverOptions apart_from_record(DriverOptions options) {
  options.top = Address(0x500000000000);
  return options;
}

}  // namespace

RecordedDevice::RecordedDevice(const DriverOptions& options)
    : model_(make_driver_model(apart_from_record(options))) {}

void RecordedDevice::add(const SegmentChange& change) {
  if (change.kind == SegmentChange::Kind::kFree || change.kind == SegmentChange::Kind::kUnmap) {
    return;
  }
  if (change.address == Address{} || change.address.raw() % kAlignment != 0) leave_record();
  if (follows_) pending_.push_back(change);
}

bool RecordedDevice::next_is(SegmentChange::Kind kind, Bytes bytes) const noexcept {
  return follows_ && !pending_.empty() && pending_.front().kind == kind &&
         pending_.front().bytes == bytes;
}

std::optional<Address> RecordedDevice::allocate(Bytes bytes) {
  if (!next_is(SegmentChange::Kind::kAlloc, bytes)) {
    // What fails leaves no trace in a record, so failing here does not contradict it.
    const std::optional<Address> address = model_->allocate(bytes);
    if (address) leave_record();
    return address;
  }
  if (!model_->map(bytes)) return std::nullopt;
  const Address address = pending_.front().address;
  pending_.pop_front();
  return address;
}

// The model knows its own allocations; for recorded ones it only gets the memory back.
void RecordedDevice::release(Address address, Bytes bytes) { model_->release(address, bytes); }

Address RecordedDevice::reserve_addresses(Bytes bytes) {
  // A reservation shows in the record by the first page that is mapped, which is its lowest.
  if (follows_ && !pending_.empty() && pending_.front().kind == SegmentChange::Kind::kMap) {
    recorded_reservations_.insert(pending_.front().address);
    return pending_.front().address;
  }
  return model_->reserve_addresses(bytes);
}

void RecordedDevice::release_addresses(Address address, Bytes bytes) {
  if (recorded_reservations_.erase(address) == 0) model_->release_addresses(address, bytes);
}

bool RecordedDevice::map(Bytes bytes) {
  const bool is_recorded = next_is(SegmentChange::Kind::kMap, bytes);
  if (!model_->map(bytes)) return false;
  if (is_recorded) {
    pending_.pop_front();
  } else {
    leave_record();
  }
  return true;
}

void RecordedDevice::unmap(Bytes bytes) { model_->unmap(bytes); }

std::unique_ptr<DeviceModel> make_recorded_device(const std::vector<SegmentChange>& changes,
                                                  const DriverOptions& options) {
  auto device = std::make_unique<RecordedDevice>(options);
  for (const SegmentChange& change : changes) device->add(change);
  return device;
}

}  // namespace peakline
