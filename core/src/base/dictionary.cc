#include <algorithm>
#include <limits>
#include <utility>

#include <peakline/dictionary.h>

namespace peakline {
namespace {

template <class IdType, class T>
const T& at_or_first(const std::vector<T>& table, IdType id) noexcept {
  return id.raw() < table.size() ? table[id.raw()] : table.front();
}

template <class IdType, class T>
IdType last_of(const std::vector<T>& table) noexcept {
  return IdType(static_cast<typename IdType::rep>(table.size() - 1));
}

}  // namespace

Dictionary::Dictionary() : names_{""}, ops_{""}, modules_{{}}, lines_(1), stacks_(1) {
  for (const auto& builtin : category::kBuiltins) {
    categories_.push_back({std::string(builtin.name), builtin.parent});
  }
}

bool Dictionary::has_room(std::size_t text_bytes) const noexcept {
  return words_ < kMaxWords && text_bytes <= kMaxTextBytes - text_bytes_;
}

void Dictionary::set_aside(std::size_t text_bytes) noexcept {
  text_bytes_ += std::min(text_bytes, kMaxTextBytes - text_bytes_);
}

// Ids are as wide as IdType: a table never gets longer than they can say.
template <class IdType, class Table>
bool Dictionary::append(Table& table, std::size_t text_bytes, typename Table::value_type entry) {
  constexpr std::size_t kMost = std::numeric_limits<typename IdType::rep>::max();
  if (!has_room(text_bytes) || table.size() > kMost) return false;
  table.push_back(std::move(entry));
  text_bytes_ += text_bytes;
  ++words_;
  return true;
}

NameId Dictionary::intern_name(std::string_view text) {
  if (text.empty()) return NameId{};
  if (auto found = name_index_.find(text); found != name_index_.end()) return NameId(found->second);
  if (define_name(std::string(text))) return last_of<NameId>(names_);
  ++refused_;
  return NameId{};
}

OpId Dictionary::intern_op(std::string_view name) {
  if (name.empty()) return OpId{};
  if (auto found = op_index_.find(name); found != op_index_.end()) return OpId(found->second);
  if (define_op(std::string(name))) return last_of<OpId>(ops_);
  ++refused_;
  return OpId{};
}

ModuleId Dictionary::intern_module(std::string_view path, std::string_view type, ModuleId parent) {
  if (path.empty()) return ModuleId{};
  if (auto found = module_index_.find(path); found != module_index_.end()) {
    return ModuleId(found->second);
  }
  if (define_module({std::string(path), std::string(type), parent})) {
    return last_of<ModuleId>(modules_);
  }
  ++refused_;
  return ModuleId{};
}

DeviceId Dictionary::intern_device(const DeviceInfo& device) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].name == device.name) return DeviceId(static_cast<std::uint8_t>(i));
  }
  if (define_device(device)) return last_of<DeviceId>(devices_);
  ++refused_;
  return DeviceId{};
}

ThreadId Dictionary::intern_thread(std::string_view name) {
  if (auto found = thread_index_.find(name); found != thread_index_.end()) {
    return ThreadId(static_cast<std::uint16_t>(found->second));
  }
  if (define_thread(std::string(name))) return last_of<ThreadId>(threads_);
  ++refused_;
  return ThreadId{};
}

CategoryId Dictionary::intern_category(std::string_view name, CategoryId parent) {
  for (std::size_t i = 0; i < categories_.size(); ++i) {
    if (categories_[i].name == name && categories_[i].parent == parent) {
      return CategoryId(static_cast<std::uint8_t>(i));
    }
  }
  if (define_category({std::string(name), parent})) return last_of<CategoryId>(categories_);
  ++refused_;
  return category::kOther;
}

LineId Dictionary::intern_line(const CodeLine& line) {
  const Triple key{line.file.raw(), line.function.raw(), line.line};
  if (auto found = line_index_.find(key); found != line_index_.end()) return LineId(found->second);
  if (define_line(line)) return last_of<LineId>(lines_);
  ++refused_;
  return LineId{};
}

StackId Dictionary::intern_stack(StackId caller, LineId line) {
  if (line == LineId{}) return caller;
  const Triple key{caller.raw(), line.raw(), 0};
  if (auto found = stack_index_.find(key); found != stack_index_.end()) {
    return StackId(found->second);
  }
  if (define_stack(caller, line)) return last_of<StackId>(stacks_);
  ++refused_;
  return StackId{};
}

std::string_view Dictionary::name(NameId id) const noexcept { return at_or_first(names_, id); }

std::string_view Dictionary::op(OpId id) const noexcept { return at_or_first(ops_, id); }

const ModuleInfo& Dictionary::module(ModuleId id) const noexcept {
  return at_or_first(modules_, id);
}

const DeviceInfo& Dictionary::device(DeviceId id) const noexcept {
  static const DeviceInfo kUnknown{"unknown", "", Bytes{}};
  return id.raw() < devices_.size() ? devices_[id.raw()] : kUnknown;
}

std::string_view Dictionary::thread(ThreadId id) const noexcept {
  return id.raw() < threads_.size() ? std::string_view(threads_[id.raw()]) : std::string_view();
}

const CategoryInfo& Dictionary::category(CategoryId id) const noexcept {
  return at_or_first(categories_, id);
}

const CodeLine& Dictionary::line(LineId id) const noexcept { return at_or_first(lines_, id); }

const StackInfo& Dictionary::stack(StackId id) const noexcept { return at_or_first(stacks_, id); }

LineId Dictionary::own_line(StackId id) const noexcept {
  for (StackId at = id; at != StackId{}; at = stack(at).caller) {
    if (!line(stack(at).line).library) return stack(at).line;
  }
  return stack(id).line;
}

CategoryId Dictionary::top_level(CategoryId id) const noexcept { return category(id).parent; }

std::string Dictionary::category_label(CategoryId id) const {
  const CategoryInfo& info = category(id);
  return info.parent == id ? info.name : category(info.parent).name + " / " + info.name;
}

bool Dictionary::define_name(std::string text) {
  const std::size_t size = text.size();
  if (!append<NameId>(names_, size, std::move(text))) return false;
  name_index_.emplace(names_.back(), last_of<NameId>(names_).raw());
  return true;
}

bool Dictionary::define_op(std::string name) {
  const std::size_t size = name.size();
  if (!append<OpId>(ops_, size, std::move(name))) return false;
  op_index_.emplace(ops_.back(), last_of<OpId>(ops_).raw());
  return true;
}

bool Dictionary::define_module(ModuleInfo module) {
  // A parent comes before its children, so walks towards the root always end.
  if (module.parent.raw() >= modules_.size()) return false;
  const std::size_t size = module.path.size() + module.type.size();
  if (!append<ModuleId>(modules_, size, std::move(module))) return false;
  module_index_.emplace(modules_.back().path, last_of<ModuleId>(modules_).raw());
  return true;
}

bool Dictionary::define_device(DeviceInfo device) {
  const std::size_t size = device.name.size() + device.model.size();
  return append<DeviceId>(devices_, size, std::move(device));
}

bool Dictionary::define_thread(std::string name) {
  const std::size_t size = name.size();
  if (!append<ThreadId>(threads_, size, std::move(name))) return false;
  thread_index_.emplace(threads_.back(), last_of<ThreadId>(threads_).raw());
  return true;
}

bool Dictionary::define_category(CategoryInfo category) {
  const std::size_t id = categories_.size();
  const bool top = category.parent.raw() == id;
  const bool below_top =
      category.parent.raw() < id && top_level(category.parent) == category.parent;
  if (id >= category::kMaxCategories || !(top || below_top)) return false;
  const std::size_t size = category.name.size();
  return append<CategoryId>(categories_, size, std::move(category));
}

bool Dictionary::define_line(CodeLine line) {
  if (line.file.raw() >= names_.size() || line.function.raw() >= names_.size()) return false;
  const Triple key{line.file.raw(), line.function.raw(), line.line};
  const std::size_t size = line.text.size();
  if (!append<LineId>(lines_, size, std::move(line))) return false;
  line_index_.emplace(key, last_of<LineId>(lines_).raw());
  return true;
}

bool Dictionary::define_stack(StackId caller, LineId line) {
  // A caller comes before what it calls, so walks outwards always end.
  if (caller.raw() >= stacks_.size() || line.raw() >= lines_.size() || line == LineId{})
    return false;
  const std::uint32_t depth = stacks_[caller.raw()].depth + 1;
  if (depth > kMaxStackDepth || !append<StackId>(stacks_, 0, {caller, line, depth})) return false;
  stack_index_.emplace(Triple{caller.raw(), line.raw(), 0}, last_of<StackId>(stacks_).raw());
  return true;
}

}  // namespace peakline
