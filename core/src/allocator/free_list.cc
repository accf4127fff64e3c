#include "allocator/free_list.h"

#include <algorithm>

namespace peakline {
namespace {

// A size in units of 512 bytes. From a terabyte on all are alike, and the whole keys tell.
std::int32_t short_size(std::uint64_t size) noexcept {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int32_t>::max() - 1;
  return static_cast<std::int32_t>(std::min(size >> 9, kLargest));
}

// Word by word: a key that was just put together from two words cannot be read as one yet.
void put(FreeKey& to, FreeKey key) noexcept {
  to.high = key.high;
  to.low = key.low;
}

template <class Array, class Value>
void insert_at(Array& array, unsigned count, unsigned index, Value value) noexcept {
  std::move_backward(array.begin() + index, array.begin() + count, array.begin() + count + 1);
  array[index] = value;
}

template <class Array>
void erase_at(Array& array, unsigned count, unsigned index) noexcept {
  std::move(array.begin() + index + 1, array.begin() + count, array.begin() + index);
}

}  // namespace

// How many keys have a size below `size`. No branch depends on the data.
unsigned FreeList::Node::count_smaller(std::uint64_t size) const noexcept {
  const std::int32_t bound = short_size(size);
  int smaller = 0;
  for (const std::int32_t each : sizes) smaller += static_cast<int>(each < bound);
  return static_cast<unsigned>(smaller);
}

unsigned FreeList::Node::count_below(FreeKey key) const noexcept {
  unsigned at = count_smaller(size_of(key));
  while (at < count && keys[at] < key) ++at;
  return at;
}

// Which child of an inner node is the place of `key`: the last one whose bound is not above it. The
// first child has no lower bound.
unsigned FreeList::Node::child_for(FreeKey key) const noexcept {
  unsigned at = count_smaller(size_of(key));
  while (at < count && keys[at] <= key) ++at;
  return at == 0 ? 0 : at - 1;
}

void FreeList::Node::set(unsigned at, FreeKey key) noexcept {
  sizes[at] = short_size(size_of(key));
  put(keys[at], key);
}

void FreeList::Node::insert(unsigned at, FreeKey key) noexcept {
  insert_at(sizes, count, at, std::int32_t{0});
  std::move_backward(keys.begin() + at, keys.begin() + count, keys.begin() + count + 1);
  set(at, key);
  ++count;
}

void FreeList::Node::erase(unsigned at) noexcept {
  erase_at(sizes, count, at);
  erase_at(keys, count, at);
  sizes[--count] = kNoSize;
}

// Takes the key at `from` out and leaves a hole at `to`, moving those between.
void FreeList::Node::move(unsigned from, unsigned to) noexcept {
  if (to <= from) {
    std::move_backward(sizes.begin() + to, sizes.begin() + from, sizes.begin() + from + 1);
    std::move_backward(keys.begin() + to, keys.begin() + from, keys.begin() + from + 1);
  } else {
    std::move(sizes.begin() + from + 1, sizes.begin() + to + 1, sizes.begin() + from);
    std::move(keys.begin() + from + 1, keys.begin() + to + 1, keys.begin() + from);
  }
}

void FreeList::Node::move_upper_half_to(Node& right) noexcept {
  constexpr unsigned kHalf = kFanout / 2;
  std::copy(sizes.begin() + kHalf, sizes.end(), right.sizes.begin());
  std::copy(keys.begin() + kHalf, keys.end(), right.keys.begin());
  std::fill(sizes.begin() + kHalf, sizes.end(), kNoSize);
  right.count = kFanout - kHalf;
  count = kHalf;
}

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
    node = inner->children[inner->child_for(key)];
  }
  return make_cursor(static_cast<Leaf*>(node), node->count_below(key));
}

FreeList::Cursor FreeList::first_of_size(std::uint64_t size) const noexcept {
  const FreeKey key = free_key(size, 0, 0);
  Node* node = root_;
  while (!node->is_leaf) {
    auto* const inner = static_cast<Inner*>(node);
    node = inner->children[inner->child_for(key)];
  }
  return make_cursor(static_cast<Leaf*>(node), node->count_below(key));
}

FreeList::Leaf* FreeList::descend(FreeKey key, Path& path, unsigned& depth) const noexcept {
  Node* node = root_;
  depth = 0;
  while (!node->is_leaf) {
    auto* const inner = static_cast<Inner*>(node);
    const unsigned child = inner->child_for(key);
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
  leaf->insert(leaf->count_below(key), key);
}

FreeList::Leaf* FreeList::new_leaf() {
  if (spare_ == nullptr) return new Leaf;
  Leaf* const leaf = spare_;
  spare_ = nullptr;
  return leaf;
}

void FreeList::split_leaf(Leaf* leaf, FreeKey key, Path& path, unsigned depth) {
  Leaf* const right = new_leaf();
  leaf->move_upper_half_to(*right);
  right->previous = leaf;
  right->next = leaf->next;
  (right->next != nullptr ? right->next->previous : last_) = right;
  leaf->next = right;
  Leaf* const home = key < right->keys[0] ? leaf : right;
  home->insert(home->count_below(key), key);
  add_child(right, right->keys[0], path, depth);
}

// Puts `child` behind the child that `path` leads to, splitting full nodes on the way up.
void FreeList::add_child(Node* child, FreeKey bound, Path& path, unsigned depth) {
  while (depth > 0) {
    auto [node, at] = path[--depth];
    if (node->count < kFanout) {
      insert_at(node->children, node->count, at + 1, child);
      node->insert(at + 1, bound);
      return;
    }
    auto* const right = new Inner;
    right->is_leaf = false;
    constexpr unsigned kHalf = kFanout / 2;
    std::copy(node->children.begin() + kHalf, node->children.end(), right->children.begin());
    node->move_upper_half_to(*right);
    Inner* const home = at < kHalf ? node : right;
    const unsigned index = at < kHalf ? at + 1 : at + 1 - kHalf;
    insert_at(home->children, home->count, index, child);
    home->insert(index, bound);
    child = right;
    bound = right->keys[0];
  }
  auto* const root = new Inner;
  root->is_leaf = false;
  root->insert(0, FreeKey{});
  root->insert(1, bound);
  root->children[0] = root_;
  root->children[1] = child;
  root_ = root;
}

void FreeList::erase(FreeKey key) {
  Path path;
  unsigned depth = 0;
  Leaf* const leaf = descend(key, path, depth);
  const unsigned index = leaf->count_below(key);
  if (index == leaf->count || leaf->keys[index] != key) return;
  --size_;
  leaf->erase(index);
  if (leaf->count == 0 && depth > 0) drop_leaf(leaf, path, depth);
}

// Without the way down from the root a leaf cannot be dropped, so the last key of one takes the
// long way.
void FreeList::erase(Cursor at) {
  if (at.leaf_->count == 1) {
    erase(at.key());
    return;
  }
  --size_;
  at.leaf_->erase(at.index_);
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
  const unsigned from = at.index_;
  const unsigned to = leaf.count_below(with);
  const bool is_here =
      (to > 0 || leaf.previous == nullptr) && (to < leaf.count || leaf.next == nullptr);
  if (!is_here) {
    erase(at);
    insert(with);
    return;
  }
  const unsigned hole = to <= from ? to : to - 1;
  leaf.move(from, hole);
  leaf.set(hole, with);
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
    erase_at(node->children, node->count, at);
    node->erase(at);
    if (node->count > 0) {
      node->set(0, FreeKey{});  // whatever comes first takes everything below it, too
      break;
    }
    delete node;  // never the root: that one is replaced by its last child below
  }
  while (!root_->is_leaf && root_->count == 1) {
    auto* const inner = static_cast<Inner*>(root_);
    root_ = inner->children[0];
    delete inner;
  }
}

}  // namespace peakline
