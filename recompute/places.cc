#include "recompute/places.h"

#include <c10/util/StringUtil.h>

#include <utility>

namespace peakline::recompute {

std::shared_ptr<Place> Places::add(const at::Tensor& tensor) {
  auto place = std::make_shared<Place>();
  entries_.push_back({place, tensor.sizes().vec(), tensor.scalar_type(), tensor.device()});
  return place;
}

void Places::begin(std::int64_t turn) {
  turn_ = turn;
  filled_ = 0;
}

at::Tensor Places::fill(const at::Tensor& tensor) {
  if (filled_ == entries_.size()) throw Differs("more of them were saved");
  const Entry& entry = entries_[filled_];
  if (tensor.sizes() != entry.sizes || tensor.scalar_type() != entry.type ||
      tensor.device() != entry.device) {
    throw Differs(c10::str("number ", filled_, " was ", entry.type, " of ",
                           c10::IntArrayRef(entry.sizes), " on ", entry.device, " and is ",
                           tensor.scalar_type(), " of ", tensor.sizes(), " on ", tensor.device()));
  }
  ++filled_;
  at::Tensor without = tensor.requires_grad() ? tensor.detach() : tensor;
  if (const std::shared_ptr<Place> place = entry.place.lock()) {
    place->turn = turn_;
    place->tensor = without;
  }
  if (filled_ == entries_.size()) throw Enough();
  return without;
}

}  // namespace peakline::recompute
