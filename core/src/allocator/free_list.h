// Free blocks in the order in which the allocator looks at them: by size, then by address.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace peakline {

// Size, address and block number in two comparable words. Sizes and addresses are multiples of 512;
// sizes stay below 2^57, addresses, too. Blocks of one size mostly differ in the second word only.
struct FreeKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the 0 that <=> compares with
  friend constexpr auto operator<=>(const FreeKey&, const FreeKey&) = default;
};

constexpr FreeKey free_key(std::uint64_t size, std::uint64_t address, std::uint32_t block) {
  return {(size >> 9 << 16) | (address >> 41), (address >> 9 << 32) | block};
}
constexpr std::uint32_t block_of(FreeKey key) { return static_cast<std::uint32_t>(key.low); }
constexpr std::uint64_t size_of(FreeKey key) { return key.high >> 16 << 9; }

// An ordered set of FreeKeys: a B+ tree whose nodes are dropped only when they are empty, so that
// churn at one size does not split and join nodes. Search, insert and erase are logarithmic.
class FreeList {
  static constexpr unsigned kFanout = 32;
  // Past the last key: above every size.
  static constexpr std::int32_t kNoSize = std::numeric_limits<std::int32_t>::max();
  struct Node {
    Node() { sizes.fill(kNoSize); }
    void insert(unsigned at, FreeKey key) noexcept;
    void erase(unsigned at) noexcept;
    void move_upper_half_to(Node& right) noexcept;
    void move(unsigned from, unsigned to) noexcept;
    void set(unsigned at, FreeKey key) noexcept;
    [[nodiscard]] unsigned count_smaller(std::uint64_t size) const noexcept;
    [[nodiscard]] unsigned count_below(FreeKey key) const noexcept;
    [[nodiscard]] unsigned child_for(FreeKey key) const noexcept;

    // The sizes of the keys once more, short and side by side: a search compares them all at once
    // in a few vector instructions instead of waiting for one after the other.
    std::array<std::int32_t, kFanout> sizes;
    std::array<FreeKey, kFanout> keys;  // of an inner node: lower bounds of the children
    unsigned count = 0;
    bool is_leaf = true;
  };
  struct Leaf : Node {
    Leaf* previous = nullptr;
    Leaf* next = nullptr;
  };
  struct Inner : Node {
    std::array<Node*, kFanout> children;
  };

 public:
  // A place in the list; invalid once the list changes.
  class Cursor {
   public:
    [[nodiscard]] bool at_end() const noexcept { return leaf_ == nullptr; }
    [[nodiscard]] FreeKey key() const noexcept { return leaf_->keys[index_]; }
    void advance() noexcept;
    void retreat() noexcept;  // from the first place: to the end

    Cursor() = default;

   private:
    friend class FreeList;
    Cursor(Leaf* leaf, unsigned index) : leaf_(leaf), index_(index) {}
    Leaf* leaf_ = nullptr;
    unsigned index_ = 0;
  };

  FreeList();
  ~FreeList();
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;

  void insert(FreeKey key);
  void erase(FreeKey key);  // which is in the list
  void erase(Cursor at);
  // The same as erasing a key that is in the list and inserting another, but mostly cheaper.
  void replace(FreeKey key, FreeKey with);
  void replace(Cursor at, FreeKey with);
  // The first block of at least `size` bytes.
  [[nodiscard]] Cursor first_of_size(std::uint64_t size) const noexcept;
  // The first key that is not below `key`.
  [[nodiscard]] Cursor lower_bound(FreeKey key) const noexcept;
  [[nodiscard]] Cursor first() const noexcept { return make_cursor(first_, 0); }
  [[nodiscard]] Cursor last() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Step {
    Inner* node;
    unsigned child;
  };
  // A tree of this height holds more than 2^64 keys.
  using Path = std::array<Step, 16>;

  static Cursor make_cursor(Leaf* leaf, unsigned index) noexcept;
  Leaf* descend(FreeKey key, Path& path, unsigned& depth) const noexcept;
  void split_leaf(Leaf* leaf, FreeKey key, Path& path, unsigned depth);
  void add_child(Node* child, FreeKey bound, Path& path, unsigned depth);
  void drop_leaf(Leaf* leaf, Path& path, unsigned depth);
  Leaf* new_leaf();
  static void destroy(Node* node);

  Node* root_;
  Leaf* first_;
  Leaf* last_;
  Leaf* spare_ = nullptr;  // one empty leaf is kept, for lists that go back and forth
  std::size_t size_ = 0;
};

}  // namespace peakline
