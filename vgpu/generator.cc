#include "vgpu/generator.h"

#include <ATen/ATen.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "vgpu/engine.h"

namespace peakline::vgpu {
namespace {

// As CUDA's: a seed and an offset, sixteen bytes of state, which several generators may share.
struct State {
  std::uint64_t seed = c10::detail::getNonDeterministicRandom();
  std::uint64_t offset = 0;
};

class VirtualGenerator final : public c10::GeneratorImpl {
 public:
  explicit VirtualGenerator(int device) : VirtualGenerator(device, std::make_shared<State>()) {}
  VirtualGenerator(int device, std::shared_ptr<State> state)
      : c10::GeneratorImpl(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)),
                           c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        state_(std::move(state)) {}

  void set_current_seed(std::uint64_t seed) override { *state_ = {seed, 0}; }
  void set_offset(std::uint64_t offset) override { state_->offset = offset; }
  std::uint64_t get_offset() const override { return state_->offset; }
  std::uint64_t current_seed() const override { return state_->seed; }
  std::uint64_t seed() override {
    std::random_device source;
    set_current_seed(std::uint64_t{source()} << 32 | source());
    return state_->seed;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == kStateBytes || state.numel() == 8, "RNG state is wrong size");
    const auto* bytes = static_cast<const std::uint8_t*>(state.data());
    std::memcpy(&state_->seed, bytes, 8);
    state_->offset = 0;
    if (state.numel() == kStateBytes) std::memcpy(&state_->offset, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state =
        at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    auto* bytes = state.mutable_data_ptr<std::uint8_t>();
    std::memcpy(bytes, &state_->seed, 8);
    std::memcpy(bytes + 8, &state_->offset, 8);
    return state.getIntrusivePtr();
  }
  // Compiled code and CUDA graphs keep a generator's state by sharing it, without a copy.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& from) override {
    const auto* other = dynamic_cast<const VirtualGenerator*>(from.get());
    TORCH_CHECK(other != nullptr, "the state of another kind of generator cannot be set");
    state_ = other->state_;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<VirtualGenerator>(device().index(), state_);
  }

 private:
  static constexpr std::int64_t kStateBytes = 16;
  VirtualGenerator* clone_impl() const override {
    return new VirtualGenerator(device().index(), std::make_shared<State>(*state_));
  }
  std::shared_ptr<State> state_;
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
