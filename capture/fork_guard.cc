#include "capture/fork_guard.h"

#include <pthread.h>

#include <list>
#include <mutex>
#include <utility>

namespace peakline::capture {
namespace {

struct Entry {
  ForkOrder order;
  const void* owner;
  std::function<void()> before;
  std::function<void(bool)> after;
};

// Never destroyed: a process may fork while it ends.
struct Registry {
  std::mutex mutex;
  std::list<Entry> entries;  // in the order of ForkOrder

  void before_fork() {
    mutex.lock();
    for (const Entry& entry : entries) entry.before();
  }
  void after_fork(bool in_child) {
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) entry->after(in_child);
    mutex.unlock();
  }
};

Registry& registry() {
  static Registry* const kRegistry = [] {
    pthread_atfork([] { registry().before_fork(); }, [] { registry().after_fork(false); },
                   [] { registry().after_fork(true); });
    return new Registry;
  }();
  return *kRegistry;
}

}  // namespace

void ForkGuard::add(ForkOrder order, const void* owner, std::function<void()> before,
                    std::function<void(bool)> after) {
  const std::lock_guard guard(registry().mutex);
  auto& entries = registry().entries;
  auto place = entries.begin();
  while (place != entries.end() && place->order <= order) ++place;
  entries.insert(place, {order, owner, std::move(before), std::move(after)});
}

void ForkGuard::remove(const void* owner) {
  const std::lock_guard guard(registry().mutex);
  registry().entries.remove_if([owner](const Entry& entry) { return entry.owner == owner; });
}

}  // namespace peakline::capture
