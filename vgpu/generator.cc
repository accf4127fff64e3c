#include "vgpu/generator.h"

#include <ATen/ATen.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <random>

#include "vgpu/engine.h"

namespace peakline::vgpu {
namespace {

// As CUDA's: a seed and an offset, sixteen bytes of state.
class VirtualGenerator final : public c10::GeneratorImpl {
 public:
  explicit VirtualGenerator(int device)
      : c10::GeneratorImpl(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)),
                           c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}

  void set_current_seed(std::uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override {
    std::random_device source;
    set_current_seed(std::uint64_t{source()} << 32 | source());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == kStateBytes || state.numel() == 8, "RNG state is wrong size");
    const auto* bytes = static_cast<const std::uint8_t*>(state.data());
    std::memcpy(&seed_, bytes, 8);
    offset_ = 0;
    if (state.numel() == kStateBytes) std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state =
        at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    auto* bytes = state.mutable_data_ptr<std::uint8_t>();
    std::memcpy(bytes, &seed_, 8);
    std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }

 private:
  static constexpr std::int64_t kStateBytes = 16;
  VirtualGenerator* clone_impl() const override {
    auto* copy = new VirtualGenerator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }
  std::uint64_t seed_ = c10::detail::getNonDeterministicRandom();
  std::uint64_t offset_ = 0;
};

}  // namespace

at::Generator make_generator(int device) { return at::make_generator<VirtualGenerator>(device); }

const at::Generator& default_generator(int device) {
  static auto* const kGenerators = [] {
    auto* made = new std::array<at::Generator, kMaxDevices>;
    for (int i = 0; i < kMaxDevices; ++i) (*made)[static_cast<std::size_t>(i)] = make_generator(i);
    return made;
  }();
  const int index = device < 0 ? ThisThread::device() : device;
  return kGenerators->at(static_cast<std::size_t>(index));
}

}  // namespace peakline::vgpu
