#include "allocator/free_list.h"

#include <algorithm>

namespace peakline {
namespace {

// How many of the first `count` keys have a first word below `high`. No branch depends on the data.
template <class Keys>
unsigned count_high_below(const Keys& keys, unsigned count, std::uint64_t high) noexcept {
  unsigned base = 0;
  while (count > 1) {
    const unsigned half = count / 2;
    // A mask instead of a condition, which compilers turn into a branch that is never predicted.
    base += half & (0u - static_cast<unsigned>(keys[base + half - 1].high < high));
    count -= half;
  }
  return base + static_cast<unsigned>(count == 1 && keys[base].high < high);
}

// How many are below `key`.
template <class Keys>
unsigned count_below(const Keys& keys, unsigned count, FreeKey key) noexcept {
  unsigned at = count_high_below(keys, count, key.high);
  while (at < count && keys[at].high == key.high && keys[at].low < key.low) ++at;
  return at;
}

// Which child of an inner node is the place of `key`: the last one whose bound is not above it. The
// first child has no lower bound.
template <class Keys>
unsigned child_for(const Keys& keys, unsigned count, FreeKey key) noexcept {
  unsigned at = count_high_below(keys, count, key.high);
  while (at < count && keys[at].high == key.high && keys[at].low <= key.low) ++at;
  return at == 0 ? 0 : at - 1;
}

// Word by word: a key that was just put together from two words cannot be read as one yet.
void put(FreeKey& to, FreeKey key) noexcept {
  to.high = key.high;
  to.low = key.low;
}
template <class T>
void put(T*& to, T* value) noexcept {
  to = value;
}

template <class Array, class Value>
void insert_at(Array& array, unsigned count, unsigned index, Value value) noexcept {
  std::move_backward(array.begin() + index, array.begin() + count, array.begin() + count + 1);
  put(array[index], value);
}

template <class Array>
void erase_at(Array& array, unsigned count, unsigned index) noexcept {
  std::move(array.begin() + index + 1, array.begin() + count, array.begin() + index);
}

}  // namespace

FreeList::FreeList() {
  first_ = last_ = new Leaf;
  root_ = first_;
}

FreeList::~FreeList() {
  destroy(root_);
  delete spare_;
}

void FreeList::destroy(Node* node) {
  if (node->is_leaf) {
    delete static_cast<Leaf*>(node);
    return;
  }
  auto* const inner = static_cast<Inner*>(node);
  for (unsigned i = 0; i < inner->count; ++i) destroy(inner->children[i]);
  delete inner;
}

void FreeList::Cursor::advance() noexcept {
  if (++index_ < leaf_->count) return;
  leaf_ = leaf_->next;  // leaves in the chain are never empty, but for a lone root
  index_ = 0;
}

void FreeList::Cursor::retreat() noexcept {
  if (index_ > 0) {
    --index_;
    return;
  }
  leaf_ = leaf_->previous;
  index_ = leaf_ != nullptr ? leaf_->count - 1 : 0;
}

FreeList::Cursor FreeList::make_cursor(Leaf* leaf, unsigned index) noexcept {
  if (leaf != nullptr && index >= leaf->count) {
    leaf = leaf->next;
    index = 0;
  }
  return {leaf, index};
}

FreeList::Cursor FreeList::last() const noexcept {
  if (size_ == 0) return {nullptr, 0};
  return {last_, last_->count - 1};
}

FreeList::Cursor FreeList::lower_bound(FreeKey key) const noexcept {
  Node* node = root_;
  while (!node->is_leaf) {
    auto* const inner = static_cast<Inner*>(node);
    node = inner->children[child_for(inner->keys, inner->count, key)];
  }
  return make_cursor(static_cast<Leaf*>(node), count_below(node->keys, node->count, key));
}

FreeList::Cursor FreeList::first_of_size(std::uint64_t size) const noexcept {
  const FreeKey key = free_key(size, 0, 0);
  Node* node = root_;
  while (!node->is_leaf) {
    auto* const inner = static_cast<Inner*>(node);
    node = inner->children[child_for(inner->keys, inner->count, key)];
  }
  return make_cursor(static_cast<Leaf*>(node), count_high_below(node->keys, node->count, key.high));
}

FreeList::Leaf* FreeList::descend(FreeKey key, Path& path, unsigned& depth) const noexcept {
  Node* node = root_;
  depth = 0;
  while (!node->is_leaf) {
    auto* const inner = static_cast<Inner*>(node);
    const unsigned child = child_for(inner->keys, inner->count, key);
    path[depth++] = {inner, child};
    node = inner->children[child];
  }
  return static_cast<Leaf*>(node);
}

void FreeList::insert(FreeKey key) {
  ++size_;
  Path path;
  unsigned depth = 0;
  Leaf* const leaf = descend(key, path, depth);
  if (leaf->count == kFanout) {
    split_leaf(leaf, key, path, depth);
    return;
  }
  insert_at(leaf->keys, leaf->count, count_below(leaf->keys, leaf->count, key), key);
  ++leaf->count;
}

FreeList::Leaf* FreeList::new_leaf() {
  if (spare_ == nullptr) return new Leaf;
  Leaf* const leaf = spare_;
  spare_ = nullptr;
  return leaf;
}

void FreeList::split_leaf(Leaf* leaf, FreeKey key, Path& path, unsigned depth) {
  Leaf* const right = new_leaf();
  constexpr unsigned kHalf = kFanout / 2;
  std::copy(leaf->keys.begin() + kHalf, leaf->keys.end(), right->keys.begin());
  right->count = kFanout - kHalf;
  leaf->count = kHalf;
  right->previous = leaf;
  right->next = leaf->next;
  (right->next != nullptr ? right->next->previous : last_) = right;
  leaf->next = right;
  Leaf* const home = key < right->keys[0] ? leaf : right;
  insert_at(home->keys, home->count, count_below(home->keys, home->count, key), key);
  ++home->count;
  add_child(right, right->keys[0], path, depth);
}

// Puts `child` behind the child that `path` leads to, splitting full nodes on the way up.
void FreeList::add_child(Node* child, FreeKey bound, Path& path, unsigned depth) {
  while (depth > 0) {
    auto [node, at] = path[--depth];
    if (node->count < kFanout) {
      insert_at(node->keys, node->count, at + 1, bound);
      insert_at(node->children, node->count, at + 1, child);
      ++node->count;
      return;
    }
    auto* const right = new Inner;
    right->is_leaf = false;
    constexpr unsigned kHalf = kFanout / 2;
    std::copy(node->keys.begin() + kHalf, node->keys.end(), right->keys.begin());
    std::copy(node->children.begin() + kHalf, node->children.end(), right->children.begin());
    right->count = kFanout - kHalf;
    node->count = kHalf;
    Inner* const home = at < kHalf ? node : right;
    const unsigned index = at < kHalf ? at + 1 : at + 1 - kHalf;
    insert_at(home->keys, home->count, index, bound);
    insert_at(home->children, home->count, index, child);
    ++home->count;
    child = right;
    bound = right->keys[0];
  }
  auto* const root = new Inner;
  root->is_leaf = false;
  root->count = 2;
  root->keys[0] = {};
  root->children[0] = root_;
  root->keys[1] = bound;
  root->children[1] = child;
  root_ = root;
}

void FreeList::erase(FreeKey key) {
  Path path;
  unsigned depth = 0;
  Leaf* const leaf = descend(key, path, depth);
  const unsigned index = count_below(leaf->keys, leaf->count, key);
  if (index == leaf->count || leaf->keys[index] != key) return;
  --size_;
  erase_at(leaf->keys, leaf->count, index);
  if (--leaf->count == 0 && depth > 0) drop_leaf(leaf, path, depth);
}

// Without the way down from the root a leaf cannot be dropped, so the last key of one takes the
// long way.
void FreeList::erase(Cursor at) {
  if (at.leaf_->count == 1) {
    erase(at.key());
    return;
  }
  --size_;
  erase_at(at.leaf_->keys, at.leaf_->count, at.index_);
  --at.leaf_->count;
}

void FreeList::replace(FreeKey key, FreeKey with) {
  const Cursor at = lower_bound(key);
  if (at.at_end() || at.key() != key) {
    insert(with);
    return;
  }
  replace(at, with);
}

// Inside of its leaf a key only moves those between its old and its new place. At the leaf's ends
// it might belong to a neighbour.
void FreeList::replace(Cursor at, FreeKey with) {
  Leaf& leaf = *at.leaf_;
  auto& keys = leaf.keys;
  const unsigned from = at.index_;
  const unsigned to = count_below(keys, leaf.count, with);
  const bool is_here =
      (to > 0 || leaf.previous == nullptr) && (to < leaf.count || leaf.next == nullptr);
  if (!is_here) {
    erase(at);
    insert(with);
    return;
  }
  if (to <= from) {
    std::move_backward(keys.begin() + to, keys.begin() + from, keys.begin() + from + 1);
    put(keys[to], with);
  } else {
    std::move(keys.begin() + from + 1, keys.begin() + to, keys.begin() + from);
    put(keys[to - 1], with);
  }
}

void FreeList::drop_leaf(Leaf* leaf, Path& path, unsigned depth) {
  (leaf->previous != nullptr ? leaf->previous->next : first_) = leaf->next;
  (leaf->next != nullptr ? leaf->next->previous : last_) = leaf->previous;
  if (spare_ == nullptr) {
    leaf->previous = leaf->next = nullptr;
    spare_ = leaf;
  } else {
    delete leaf;
  }
  while (depth > 0) {
    auto [node, at] = path[--depth];
    erase_at(node->keys, node->count, at);
    erase_at(node->children, node->count, at);
    node->keys[0] = {};  // whatever comes first takes everything below it, too
    if (--node->count > 0) break;
    delete node;  // never the root: that one is replaced by its last child below
  }
  while (!root_->is_leaf && root_->count == 1) {
    auto* const inner = static_cast<Inner*>(root_);
    root_ = inner->children[0];
    delete inner;
  }
}

}  // namespace peakline
