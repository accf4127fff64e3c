// Tensors that a call would have saved for backward, and does not: a place for each, which is filled when
// the call runs again.
//
// In Python each would be several objects, which make its garbage collector run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace peakline::recompute {

// Of one tensor. Lives as long as the node of the graph that wants it.
struct Place {
  at::Tensor tensor;       // undefined: it is not there
  std::int64_t turn = -1;  // the run that has filled it
};

// All tensors that the first run saved are there again.
struct Enough : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "all tensors are there"; }
};

// The run that was to give the same tensors gave others.
struct Differs : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Those of one call, in the order in which they were saved.
class Places {
 public:
  // The first run saves a tensor.
  std::shared_ptr<Place> add(const at::Tensor& tensor);

  // From here on `fill` is called for the tensors of another run.
  void begin(std::int64_t turn);
  // The tensor as it is to be saved by that run. Raises Enough with the last one, and Differs.
  at::Tensor fill(const at::Tensor& tensor);
  // How many there were less than the first run saved.
  [[nodiscard]] std::size_t missing() const { return entries_.size() - filled_; }

 private:
  struct Entry {
    std::weak_ptr<Place> place;
    std::vector<std::int64_t> sizes;
    at::ScalarType type;
    c10::Device device;
  };

  std::vector<Entry> entries_;
  std::size_t filled_ = 0;
  std::int64_t turn_ = -1;
};

}  // namespace peakline::recompute
