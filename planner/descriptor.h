// One of cuDNN's descriptors, owned. Every call that fails throws Refused: cuDNN refuses many
// combinations, and whoever asks goes on with the next.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/cudnn_api.h"

namespace peakline::planner {

struct Refused {
  std::string what;
};

inline void check(int status, const char* what) {
  if (status != 0)
    throw Refused{std::string(what) + " refused with status " + std::to_string(status)};
}

class Descriptor {
 public:
  Descriptor(const Api& api, Kind kind) : api_(&api) {
    check(api.create(static_cast<int>(kind), &handle_), "a descriptor was");
  }
  Descriptor(Descriptor&& other) noexcept
      : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (handle_ != nullptr) api_->destroy(handle_);
  }

  template <class T>
  void set(Attribute attribute, Type type, const std::vector<T>& values) {
    check(api_->set(handle_, static_cast<int>(attribute), static_cast<int>(type),
                    static_cast<std::int64_t>(values.size()), values.data()),
          "an attribute was");
  }
  void set(Attribute attribute, std::int64_t value) {
    set(attribute, Type::kInt64, std::vector<std::int64_t>{value});
  }
  void set(Attribute attribute, const Descriptor& other) {
    set(attribute, Type::kDescriptor, std::vector<void*>{other.handle_});
  }
  void set(Attribute attribute, const std::vector<Descriptor>& others) {
    std::vector<void*> handles;
    handles.reserve(others.size());
    for (const Descriptor& other : others) handles.push_back(other.handle_);
    set(attribute, Type::kDescriptor, handles);
  }
  void finalize() { check(api_->finalize(handle_), "the problem was"); }

  [[nodiscard]] std::int64_t count(Attribute attribute, Type type) const {
    std::int64_t found = 0;
    check(
        api_->get(handle_, static_cast<int>(attribute), static_cast<int>(type), 0, &found, nullptr),
        "a question was");
    return found;
  }
  // Reads up to `room` values into `values`; returns how many there were.
  template <class T>
  std::int64_t get(Attribute attribute, Type type, std::int64_t room, T* values) const {
    std::int64_t found = 0;
    check(api_->get(handle_, static_cast<int>(attribute), static_cast<int>(type), room, &found,
                    values),
          "a question was");
    return found;
  }
  [[nodiscard]] void* handle() const { return handle_; }

 private:
  const Api* api_;
  void* handle_ = nullptr;
};

}  // namespace peakline::planner
