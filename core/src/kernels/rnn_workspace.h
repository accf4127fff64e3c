// cuDNN's memory for recurrent networks: what a pass needs while it runs, and what it keeps.
#pragma once

#include <cstdint>

#include <peakline/dtype.h>

namespace peakline::kernels {

enum class RnnMode : std::int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };
enum class RnnPass : std::uint8_t { kForward, kBackward };

struct Rnn {
  RnnMode mode = RnnMode::kLstm;
  DType dtype = DType::kFloat32;
  std::int64_t hidden = 1;
  std::int64_t input = 1;
  std::int64_t layers = 1;
  std::int64_t directions = 1;
  std::int64_t length = 1;
  std::int64_t batch = 1;
  std::int64_t steps = 1;  // of all sequences together
  bool dropout = false;
  bool training = true;
  bool batch_first = false;
  bool packed = false;  // sequences of different lengths
  std::int64_t projection = 0;

  [[nodiscard]] std::int64_t element() const { return size_of(dtype); }
  [[nodiscard]] std::int64_t gates() const {
    return mode == RnnMode::kLstm ? 4 : mode == RnnMode::kGru ? 3 : 1;
  }
};

// For the backward pass, kept by forward in training.
std::int64_t rnn_reserve(const Rnn& r);
std::int64_t rnn_workspace(const Rnn& r, RnnPass pass);

}  // namespace peakline::kernels
