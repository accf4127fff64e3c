// The random programs of tools/allocator_truth/random_program.py, number by number the
// same: what they do follows from a seed and from which allocations fail.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace peakline::testing {

// splitmix64
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

// What a program acts on. Handles are numbers from 0 on, one for each allocation that succeeded.
class ProgramSubject {
 public:
  virtual ~ProgramSubject() = default;
  virtual bool allocate(std::uint64_t handle, std::uint64_t size, std::uint32_t stream) = 0;
  virtual void free(std::uint64_t handle, bool waits) = 0;
  virtual void record_stream(std::uint64_t handle, std::uint32_t stream) = 0;
  virtual void empty_cache() = 0;
  virtual void set_limit(std::uint64_t bytes) = 0;  // 0: none
  virtual void reset_peaks() = 0;
};

class RandomProgram {
 public:
  static constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  static constexpr std::uint32_t kStreams = 4;

  RandomProgram(ProgramSubject& subject, std::uint64_t seed, std::uint64_t byte_cap, bool limited)
      : subject_(subject), random_(seed), byte_cap_(byte_cap) {
    if (limited) change_limit(4 * kGiB);
  }

  void step() {
    static constexpr std::uint64_t kMaxLive[] = {60, 500, 4000};
    const std::uint64_t max_live = kMaxLive[(operation_ / 20000) % 3];
    ++operation_;
    if (to_free_ > 0 && !live_.empty()) {
      --to_free_;
      free();
      return;
    }
    const std::uint64_t kind = random_.below(1000);
    if (kind < 560) {
      if (live_bytes_ < byte_cap_ && live_.size() < max_live) {
        allocate();
      } else {
        free();
      }
    } else if (kind < 960) {
      free();
    } else if (kind < 992) {
      use_elsewhere();
    } else if (kind < 996) {
      toggle_gate();
    } else {
      rare(kind, random_.below(20));
    }
  }

 private:
  struct Live {
    std::uint64_t handle;
    std::uint64_t size;
    std::uint32_t stream;
    std::uint32_t others;  // a mask of streams
  };

  void rare(std::uint64_t kind, std::uint64_t dice) {
    static constexpr std::uint64_t kLimits[] = {0, 2, 3, 4, 6, 8};
    if (kind == 996 && dice < 2) {
      free_busy_then_allocate();
    } else if (kind == 997 && dice < 2) {
      change_limit(kLimits[random_.below(6)] * kGiB);
    } else if (kind == 998 && dice < 2) {
      gate_closed_ = false;
      subject_.empty_cache();
    } else if (kind == 999 && dice < 1) {
      subject_.reset_peaks();
    }
  }

  std::uint64_t size() {
    const std::uint64_t kind = random_.below(100);
    const auto [low, high] = kind < 50   ? std::pair(0, 20)
                             : kind < 82 ? std::pair(20, 23)
                             : kind < 97 ? std::pair(23, 27)
                                         : std::pair(27, 29);
    const std::uint64_t bits = low + random_.below(high - low);
    const std::uint64_t size = (std::uint64_t{1} << bits) + random_.below(std::uint64_t{1} << bits);
    if (random_.below(2) != 0) return size;
    const std::uint64_t shift = bits > 2 ? bits - 2 : 0;
    return std::max<std::uint64_t>(1, size >> shift << shift);
  }

  void allocate() {
    const std::uint64_t bytes = size();
    const auto stream =
        static_cast<std::uint32_t>(random_.below(4) == 0 ? random_.below(kStreams) : 0);
    if (!subject_.allocate(handles_, bytes, stream)) {
      to_free_ = live_.size() / 2;
      return;
    }
    live_.push_back({handles_++, bytes, stream, 0});
    live_bytes_ += bytes;
  }

  void free() {
    if (!live_.empty()) release(random_.below(live_.size()));
  }

  void release(std::size_t index) {
    const Live block = live_[index];
    live_[index] = live_.back();
    live_.pop_back();
    live_bytes_ -= block.size;
    subject_.free(block.handle, block.others != 0);
  }

  void use_elsewhere() {
    if (live_.empty()) return;
    Live& block = live_[random_.below(live_.size())];
    const auto stream = static_cast<std::uint32_t>(random_.below(kStreams));
    if (stream != block.stream) block.others |= 1u << stream;
    subject_.record_stream(block.handle, stream);
  }

  // Whether other streams are held back shows in the recorded order of completed frees; here it
  // only decides what the program does next.
  void toggle_gate() { gate_closed_ = !gate_closed_ && !limited_; }

  void change_limit(std::uint64_t limit) {
    gate_closed_ = false;
    limited_ = limit != 0;
    subject_.set_limit(limit);
  }

  void free_busy_then_allocate() {
    if (!limited_ || live_.empty()) return;
    const std::size_t index = random_.below(live_.size());
    const std::uint32_t other = (live_[index].stream + 1) % kStreams;
    live_[index].others |= 1u << other;
    subject_.record_stream(live_[index].handle, other);
    release(index);
    allocate();
  }

  ProgramSubject& subject_;
  SplitMix random_;
  std::uint64_t byte_cap_;
  std::vector<Live> live_;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t handles_ = 0;
  std::uint64_t to_free_ = 0;
  std::uint64_t operation_ = 0;
  bool limited_ = false;
  bool gate_closed_ = false;
};

}  // namespace peakline::testing
