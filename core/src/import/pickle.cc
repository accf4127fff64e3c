#include "import/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "import/pickle_input.h"

namespace peakline::pickle {
namespace {

constexpr std::uint32_t kGone = std::numeric_limits<std::uint32_t>::max();

// What an opcode that is refused would have done.
std::string_view refused(std::uint8_t opcode) {
  switch (opcode) {
    case 'c':
    case 0x93:
      return "names a Python class or function";
    case 'R':
    case 'o':
    case 'i':
    case 0x81:
    case 0x92:
      return "calls a Python function or class";
    case 'b':
      return "sets the state of a Python object";
    case 'P':
    case 'Q':
      return "refers to an object outside of the file";
    case 0x82:
    case 0x83:
    case 0x84:
      return "uses a registered Python class";
    case 0x8f:
    case 0x90:
    case 0x91:
      return "builds a set";
    case 0x96:
    case 0x97:
    case 0x98:
      return "builds a buffer";
    default:
      return {};
  }
}

class Reader {
 public:
  Reader(Source& source, Listener* listener, const Limits& limits)
      : input_(source), listener_(listener), limits_(limits) {}

  Result<Value> run() {
    for (;;) {
      std::uint8_t opcode = 0;
      if (!input_.byte(opcode)) return cut();
      if (opcode == '.') break;
      PEAKLINE_RETURN_IF_ERROR(step(opcode));
    }
    if (stack_.size() != 1 || !marks_.empty()) return bad("ends with a stack of several values");
    close(stack_[0]);
    return std::move(stack_[0]);
  }

 private:
  Status bad(std::string_view what) const {
    return invalid_input(
        fmt::format("{}: byte {} of the pickle {}", input_.name(), input_.position(), what));
  }
  Status cut() const {
    if (!input_.status().ok()) return input_.status();
    return invalid_input(
        fmt::format("{}: the pickle ends at byte {} without its end mark; the file "
                    "is cut off",
                    input_.name(), input_.position()));
  }

  Status step(std::uint8_t opcode) {
    switch (opcode) {
      case 0x80: {  // PROTO
        std::uint8_t version = 0;
        if (!input_.byte(version)) return cut();
        if (version > 5) return bad(fmt::format("asks for protocol {}, above 5", version));
        return {};
      }
      case 0x95:  // FRAME: its length is of no use to a stream
        return number<std::uint64_t>([](auto) { return Status{}; });
      case '(':
        marks_.push_back(stack_.size());
        return {};
      case '0':
        if (stack_.size() <= floor()) return bad("drops a value that is not there");
        close(stack_.back());
        stack_.pop_back();
        return {};
      case '1': {
        std::vector<Value> dropped;
        return take_marked(dropped);
      }
      case '2':
        return bad("duplicates a value, which plain data never does");
      default:
        break;
    }
    if (Status status; scalar(opcode, status)) return status;
    if (Status status; text(opcode, status)) return status;
    if (Status status; container(opcode, status)) return status;
    if (Status status; memo(opcode, status)) return status;
    const std::string_view why = refused(opcode);
    if (!why.empty()) {
      return unsupported(fmt::format(
          "{}: byte {} of the pickle {}; only plain data is read, so this file is refused",
          input_.name(), input_.position(), why));
    }
    return bad(fmt::format("is {:#04x}, which is no pickle opcode", opcode));
  }

  template <class T, class Then>
  Status number(Then then) {
    T value{};
    if (!input_.read(&value, sizeof value)) return cut();
    return then(value);  // pickles are little-endian, as the machines this runs on
  }
  Status push(Value value) {
    if (stack_.size() + kept_ > limits_.values) {
      return bad("would hold more values than fit into memory");
    }
    stack_.push_back(std::move(value));
    return {};
  }

  // True when `opcode` is a scalar's.
  bool scalar(std::uint8_t opcode, Status& status) {
    const auto push_number = [&](auto value) { return push(static_cast<std::int64_t>(value)); };
    switch (opcode) {
      case 'N':
        status = push(std::monostate{});
        return true;
      case 0x88:
      case 0x89:
        status = push(opcode == 0x88);
        return true;
      case 'J':
        status = number<std::int32_t>(push_number);
        return true;
      case 'K':
        status = number<std::uint8_t>(push_number);
        return true;
      case 'M':
        status = number<std::uint16_t>(push_number);
        return true;
      case 0x8a:
        status = number<std::uint8_t>([&](std::uint8_t size) { return long_integer(size); });
        return true;
      case 0x8b:
        status = number<std::uint32_t>([&](std::uint32_t size) { return long_integer(size); });
        return true;
      case 'G':
        status = number<std::uint64_t>([&](std::uint64_t bits) {
          return push(std::bit_cast<double>(__builtin_bswap64(bits)));
        });
        return true;
      case 'I':
      case 'L':
      case 'F':
        status = written_number(opcode);
        return true;
      default:
        return false;
    }
  }

  // Little-endian two's complement of any length.
  Status long_integer(std::uint32_t size) {
    if (size > 4096) return bad("holds an integer of more than 4096 bytes");
    std::string bytes(size, '\0');
    if (!input_.read(bytes.data(), size)) return cut();
    const bool negative = size > 0 && (bytes.back() & 0x80) != 0;
    std::uint64_t low = negative ? ~std::uint64_t{0} : 0;
    std::memcpy(&low, bytes.data(), std::min<std::size_t>(size, 8));
    bool fits = size <= 8 && ((low >> 63) != 0) == negative;
    for (std::size_t i = 8; i < size; ++i) {
      fits = static_cast<std::uint8_t>(bytes[i]) == (negative ? 0xff : 0) &&
             (i > 8 ? fits : ((low >> 63) != 0) == negative);
      if (!fits) break;
    }
    if (fits) return push(static_cast<std::int64_t>(low));
    return push(negative ? std::numeric_limits<std::int64_t>::min()
                         : std::numeric_limits<std::int64_t>::max());
  }

  // Protocol 0 writes numbers as text: "I42", "L42L", "F1.5", "I01" for True.
  Status written_number(std::uint8_t opcode) {
    std::string line;
    if (!input_.line(line)) return cut();
    if (opcode == 'I' && (line == "00" || line == "01")) return push(line == "01");
    if (opcode == 'L' && !line.empty() && line.back() == 'L') line.pop_back();
    if (opcode == 'F') {
      char* end = nullptr;
      const double value = std::strtod(line.c_str(), &end);
      if (line.empty() || *end != '\0') return bad("is not a number");
      return push(value);
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    if (error == std::errc::result_out_of_range) {
      value = line[0] == '-' ? std::numeric_limits<std::int64_t>::min()
                             : std::numeric_limits<std::int64_t>::max();
    } else if (error != std::errc{} || end != line.data() + line.size()) {
      return bad("is not a number");
    }
    return push(value);
  }

  bool text(std::uint8_t opcode, Status& status) {
    const auto push_sized = [&](auto size) { return sized_text(size); };
    switch (opcode) {
      case 'U':
      case 'C':
      case 0x8c:
        status = number<std::uint8_t>(push_sized);
        return true;
      case 'T':
      case 'B':
      case 'X':
        status = number<std::uint32_t>(push_sized);
        return true;
      case 0x8d:
      case 0x8e:
        status = number<std::uint64_t>(push_sized);
        return true;
      case 'S':
      case 'V':
        status = written_text(opcode == 'S');
        return true;
      default:
        return false;
    }
  }

  Status sized_text(std::uint64_t size) {
    if (size > limits_.text_bytes) return bad("holds a text that is too long");
    word_.clear();
    // Grown piece by piece: a wrong length in a short file must not ask for gigabytes.
    while (word_.size() < size) {
      const std::size_t piece = std::min<std::uint64_t>(size - word_.size(), std::size_t{1} << 16);
      const std::size_t old = word_.size();
      word_.resize(old + piece);
      if (!input_.read(word_.data() + old, piece)) return cut();
    }
    return push_text();
  }

  Status written_text(bool quoted) {
    if (!input_.line(word_)) return cut();
    if (quoted) {
      if (word_.size() < 2 || word_.front() != word_.back()) return bad("is a text without quotes");
      word_ = word_.substr(1, word_.size() - 2);
    }
    return push_text();
  }

  // Equal texts are one: traces repeat few words very often.
  Status push_text() {
    const auto it = texts_.find(std::string_view(word_));
    if (it != texts_.end()) return push(Text(it->second));
    text_bytes_ += word_.size() + 64;
    if (text_bytes_ > limits_.text_bytes) return bad("holds more text than fits into memory");
    auto owned = std::make_shared<const std::string>(word_);
    texts_.emplace(std::string_view(*owned), owned);
    return push(Text(std::move(owned)));
  }

  bool container(std::uint8_t opcode, Status& status) {
    switch (opcode) {
      case ']':
        status = push(fresh(Container::Kind::kList));
        return true;
      case '}':
        status = push(fresh(Container::Kind::kDict));
        return true;
      case ')':
        status = push(fresh(Container::Kind::kTuple));
        return true;
      case 'l':
      case 't':
      case 'd':
        status = from_mark(opcode);
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        status = small_tuple(static_cast<std::size_t>(opcode - 0x84));
        return true;
      case 'a':
      case 's':
        status = add_top(opcode == 'a' ? Container::Kind::kList : Container::Kind::kDict);
        return true;
      case 'e':
      case 'u':
        status = add_marked(opcode == 'e' ? Container::Kind::kList : Container::Kind::kDict);
        return true;
      default:
        return false;
    }
  }

  static Ref fresh(Container::Kind kind) {
    auto made = std::make_shared<Container>();
    made->kind = kind;
    return made;
  }
  [[nodiscard]] std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }

  Status take_marked(std::vector<Value>& items) {
    if (marks_.empty()) return bad("closes something that was never opened");
    items.assign(std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(floor())),
                 std::make_move_iterator(stack_.end()));
    stack_.resize(floor());
    marks_.pop_back();
    return {};
  }

  Status from_mark(std::uint8_t opcode) {
    std::vector<Value> items;
    PEAKLINE_RETURN_IF_ERROR(take_marked(items));
    const auto kind = opcode == 'l'   ? Container::Kind::kList
                      : opcode == 't' ? Container::Kind::kTuple
                                      : Container::Kind::kDict;
    if (kind == Container::Kind::kTuple) return push_tuple(items);
    Ref made = fresh(kind);
    PEAKLINE_RETURN_IF_ERROR(join(*made, items));
    return push(std::move(made));
  }

  // Equal tuples of a few numbers are one, like equal texts: every entry of a trace has some.
  Status push_tuple(std::vector<Value>& items) {
    std::string key;
    for (const Value& item : items) {
      const auto* integer = std::get_if<std::int64_t>(&item);
      if (integer == nullptr || items.size() > 3) {
        Ref made = fresh(Container::Kind::kTuple);
        PEAKLINE_RETURN_IF_ERROR(join(*made, items));
        return push(std::move(made));
      }
      key.append(reinterpret_cast<const char*>(integer), sizeof *integer);
    }
    const auto [it, is_new] = tuples_.try_emplace(std::move(key));
    if (is_new) {
      it->second = fresh(Container::Kind::kTuple);
      PEAKLINE_RETURN_IF_ERROR(join(*it->second, items));
      it->second->is_open = false;
      it->second->memo = kGone;  // shared, so no single use may drop it
    }
    return push(it->second);
  }

  Status small_tuple(std::size_t count) {
    if (stack_.size() < floor() + count) return bad("takes values that are not there");
    std::vector<Value> items(
        std::make_move_iterator(stack_.end() - static_cast<std::ptrdiff_t>(count)),
        std::make_move_iterator(stack_.end()));
    stack_.resize(stack_.size() - count);
    return push_tuple(items);
  }

  Status add_top(Container::Kind kind) {
    const std::size_t count = kind == Container::Kind::kDict ? 2 : 1;
    if (stack_.size() < floor() + count + 1) return bad("adds to something that is not there");
    std::vector<Value> items(
        std::make_move_iterator(stack_.end() - static_cast<std::ptrdiff_t>(count)),
        std::make_move_iterator(stack_.end()));
    stack_.resize(stack_.size() - count);
    return add(kind, items);
  }

  Status add_marked(Container::Kind kind) {
    std::vector<Value> items;
    PEAKLINE_RETURN_IF_ERROR(take_marked(items));
    if (stack_.empty() || stack_.size() <= floor())
      return bad("adds to something that is not there");
    return add(kind, items);
  }

  // Adds to the container on top of the stack, which must be one that was made there.
  Status add(Container::Kind kind, std::vector<Value>& items) {
    const auto* const ref = std::get_if<Ref>(&stack_.back());
    if (ref == nullptr || (*ref)->kind != kind) return bad("adds to something of another kind");
    if (!(*ref)->is_open) return bad("changes a container after it was used");
    Container& target = **ref;
    if (listener_ != nullptr && kind == Container::Kind::kList) {
      for (Value& item : items) close(item);
      const Result<bool> taken = offer(items);
      if (!taken.ok()) return taken.status();
      if (*taken) {
        for (const Value& item : items) forget(item);
        return {};
      }
    }
    return join(target, items);
  }

  // Asks the listener about items of the list on top of the stack.
  Result<bool> offer(std::vector<Value>& items) {
    std::size_t at = stack_.size() - 1;
    std::size_t between = 0;
    while (at > 0 && !std::holds_alternative<Text>(stack_[at - 1])) {
      if (!std::holds_alternative<Ref>(stack_[at - 1])) return false;
      --at;
      if (++between > 4096) return false;
    }
    if (at == 0) return false;
    const std::string_view key = text_of(stack_[at - 1]);
    if (between == 0) return listener_->on_items(key, false, 0, items);
    const Container* outer = container_of(stack_[at]);
    if (outer == nullptr || outer->kind != Container::Kind::kList) return false;
    return listener_->on_items(key, true, outer->items.size() + between - 1, items);
  }

  Status join(Container& target, std::vector<Value>& items) {
    if (target.kind == Container::Kind::kDict && items.size() % 2 != 0) {
      return bad("gives a dict a key without a value");
    }
    for (Value& item : items) {
      close(item);
      if (const Container* inner = container_of(item)) {
        if (inner->depth >= limits_.depth) return bad("nests containers too deeply");
        target.depth = std::max<std::uint8_t>(target.depth, inner->depth + 1);
      }
      target.items.push_back(std::move(item));
    }
    kept_ += items.size();
    return {};
  }

  static void close(const Value& value) {
    if (const auto* ref = std::get_if<Ref>(&value)) (*ref)->is_open = false;
  }

  bool memo(std::uint8_t opcode, Status& status) {
    switch (opcode) {
      case 0x94:
        status = put(memo_.size());
        return true;
      case 'q':
        status = number<std::uint8_t>([&](auto at) { return put(at); });
        return true;
      case 'r':
        status = number<std::uint32_t>([&](auto at) { return put(at); });
        return true;
      case 'h':
        status = number<std::uint8_t>([&](auto at) { return get(at); });
        return true;
      case 'j':
        status = number<std::uint32_t>([&](auto at) { return get(at); });
        return true;
      case 'p':
      case 'g':
        status = written_memo(opcode == 'p');
        return true;
      default:
        return false;
    }
  }

  Status written_memo(bool puts) {
    std::string line;
    if (!input_.line(line)) return cut();
    std::uint64_t at = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), at);
    if (error != std::errc{} || end != line.data() + line.size()) return bad("is not a number");
    return puts ? put(at) : get(at);
  }

  Status put(std::uint64_t at) {
    if (stack_.size() <= floor()) return bad("numbers a value that is not there");
    // Numbers are given in order; leaving many out would only serve to eat memory.
    if (at > memo_.size() + 1024 || at >= kGone) return bad("numbers a value far out of order");
    if (at >= memo_.size()) memo_.resize(at + 1, kGone);
    const Value& value = stack_.back();
    std::uint32_t place = kGone;
    const auto* const ref = std::get_if<Ref>(&value);
    const auto* const word = std::get_if<Text>(&value);
    const bool is_shared = word != nullptr || (ref != nullptr && !(*ref)->is_open);
    if (is_shared) {
      const void* const identity =
          word != nullptr ? static_cast<const void*>(word->get()) : ref->get();
      const auto [it, is_new] = shared_places_.try_emplace(identity, kGone);
      if (is_new) it->second = hold(value);
      place = it->second;
    } else {
      place = hold(value);
      if (ref != nullptr) {
        (*ref)->memo = (*ref)->memo == 0 ? static_cast<std::uint32_t>(at + 1) : kGone;
      }
    }
    memo_[at] = place;
    return {};
  }

  std::uint32_t hold(const Value& value) {
    if (free_places_.empty()) {
      held_.push_back(value);
      return static_cast<std::uint32_t>(held_.size() - 1);
    }
    const std::uint32_t place = free_places_.back();
    free_places_.pop_back();
    held_[place] = value;
    return place;
  }

  Status get(std::uint64_t at) {
    if (at >= memo_.size() || memo_[at] == kGone) {
      return bad("refers to a value that was never numbered, or is gone");
    }
    const Value& value = held_[memo_[at]];
    if (const Container* inner = container_of(value); inner != nullptr && inner->is_open) {
      if (is_being_filled(*inner)) return bad("puts a container into itself");
      close(value);  // complete, and only waiting for the list that it belongs to
    }
    return push(value);
  }

  // What follows a mark goes into the container before it.
  [[nodiscard]] bool is_being_filled(const Container& container) const {
    return std::any_of(marks_.begin(), marks_.end(), [&](std::size_t mark) {
      return mark > 0 && container_of(stack_[mark - 1]) == &container;
    });
  }

  // A listener has taken this list item: let it go, as far as nothing else needs it. What is inside
  // of it stays numbered, since later items share it.
  void forget(const Value& value) {
    const auto* ref = std::get_if<Ref>(&value);
    if (ref == nullptr || (*ref)->memo == kGone) return;
    kept_ -= (*ref)->items.size();
    for (const Value& inner : (*ref)->items) {
      const Container* container = container_of(inner);
      if (container != nullptr && container->memo == 0) kept_ -= container->items.size();
    }
    if ((*ref)->memo == 0) return;
    const std::uint32_t number = std::exchange((*ref)->memo, kGone) - 1;
    const std::uint32_t place = memo_[number];
    // The number may have been given to another value since.
    if (place == kGone || held_[place] != Value(*ref)) return;
    memo_[number] = kGone;
    held_[place] = std::monostate{};
    free_places_.push_back(place);
  }

  Input input_;
  Listener* listener_;
  Limits limits_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::uint32_t> memo_;  // number to place in held_
  std::vector<Value> held_;
  std::vector<std::uint32_t> free_places_;
  std::unordered_map<std::string_view, Text> texts_;
  std::unordered_map<std::string, Ref> tuples_;
  std::unordered_map<const void*, std::uint32_t> shared_places_;  // of texts and such tuples
  std::string word_;
  std::uint64_t text_bytes_ = 0;
  std::uint64_t kept_ = 0;  // values that joined a container
};

}  // namespace

const Value* Container::find(std::string_view key) const noexcept {
  if (kind != Kind::kDict) return nullptr;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (text_of(items[i]) == key && std::holds_alternative<Text>(items[i])) return &items[i + 1];
  }
  return nullptr;
}

std::string_view text_of(const Value& value) noexcept {
  const auto* text = std::get_if<Text>(&value);
  return text != nullptr ? std::string_view(**text) : std::string_view();
}
const Container* container_of(const Value& value) noexcept {
  const auto* ref = std::get_if<Ref>(&value);
  return ref != nullptr ? ref->get() : nullptr;
}
const std::int64_t* integer_of(const Value& value) noexcept {
  return std::get_if<std::int64_t>(&value);
}

Result<Value> read(Source& source, Listener* listener, const Limits& limits) {
  return Reader(source, listener, limits).run();
}

}  // namespace peakline::pickle
