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
};

void before_fork();
void after_in_parent();
void after_in_child();

Registry& registry() {
  static Registry* const kRegistry = [] {
    pthread_atfork(&before_fork, &after_in_parent, &after_in_child);
    return new Registry;
  }();
  return *kRegistry;
}

void before_fork() {
  registry().mutex.lock();
  for (const Entry& entry : registry().entries) entry.before();
}

void after_fork(bool in_child) {
  const auto& entries = registry().entries;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) entry->after(in_child);
  registry().mutex.unlock();
}
void after_in_parent() { after_fork(false); }
void after_in_child() { after_fork(true); }

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
