#include <limits>

#include <peakline/dictionary.h>

namespace peakline {
namespace {

template <class IdType, class T>
const T& at_or_first(const std::vector<T>& table, IdType id) noexcept {
  return id.raw() < table.size() ? table[id.raw()] : table.front();
}

template <class IdType, class T>
bool has_room(const std::vector<T>& table) noexcept {
  return table.size() <= std::numeric_limits<typename IdType::rep>::max();
}

}  // namespace

Dictionary::Dictionary() : names_{""}, ops_{""}, modules_{{}} {
  for (const auto& builtin : category::kBuiltins) {
    categories_.push_back({std::string(builtin.name), builtin.parent});
  }
}

NameId Dictionary::intern_name(std::string_view text) {
  if (text.empty()) return NameId{};
  if (auto found = name_index_.find(text); found != name_index_.end()) return NameId(found->second);
  define_name(std::string(text));
  return NameId(static_cast<std::uint32_t>(names_.size() - 1));
}

OpId Dictionary::intern_op(std::string_view name) {
  if (name.empty()) return OpId{};
  if (auto found = op_index_.find(name); found != op_index_.end()) return OpId(found->second);
  define_op(std::string(name));
  return OpId(static_cast<std::uint32_t>(ops_.size() - 1));
}

ModuleId Dictionary::intern_module(std::string_view path, std::string_view type, ModuleId parent) {
  if (auto found = module_index_.find(path); found != module_index_.end()) {
    return ModuleId(found->second);
  }
  define_module({std::string(path), std::string(type), parent});
  return ModuleId(static_cast<std::uint32_t>(modules_.size() - 1));
}

DeviceId Dictionary::intern_device(const DeviceInfo& device) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].name == device.name) return DeviceId(static_cast<std::uint8_t>(i));
  }
  return define_device(device) ? DeviceId(static_cast<std::uint8_t>(devices_.size() - 1))
                               : DeviceId{};
}

ThreadId Dictionary::intern_thread(std::string_view name) {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i] == name) return ThreadId(static_cast<std::uint16_t>(i));
  }
  return define_thread(std::string(name))
             ? ThreadId(static_cast<std::uint16_t>(threads_.size() - 1))
             : ThreadId{};
}

CategoryId Dictionary::intern_category(std::string_view name, CategoryId parent) {
  for (std::size_t i = 0; i < categories_.size(); ++i) {
    if (categories_[i].name == name && categories_[i].parent == parent) {
      return CategoryId(static_cast<std::uint8_t>(i));
    }
  }
  return define_category({std::string(name), parent})
             ? CategoryId(static_cast<std::uint8_t>(categories_.size() - 1))
             : category::kOther;
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

CategoryId Dictionary::top_level(CategoryId id) const noexcept { return category(id).parent; }

std::string Dictionary::category_label(CategoryId id) const {
  const CategoryInfo& info = category(id);
  return info.parent == id ? info.name : category(info.parent).name + " / " + info.name;
}

bool Dictionary::define_name(std::string text) {
  if (!has_room<NameId>(names_)) return false;
  name_index_.emplace(text, static_cast<std::uint32_t>(names_.size()));
  names_.push_back(std::move(text));
  return true;
}

bool Dictionary::define_op(std::string name) {
  if (!has_room<OpId>(ops_)) return false;
  op_index_.emplace(name, static_cast<std::uint32_t>(ops_.size()));
  ops_.push_back(std::move(name));
  return true;
}

bool Dictionary::define_module(ModuleInfo module) {
  // A parent comes before its children, so walks towards the root always end.
  if (!has_room<ModuleId>(modules_) || module.parent.raw() >= modules_.size()) return false;
  module_index_.emplace(module.path, static_cast<std::uint32_t>(modules_.size()));
  modules_.push_back(std::move(module));
  return true;
}

bool Dictionary::define_device(DeviceInfo device) {
  if (!has_room<DeviceId>(devices_)) return false;
  devices_.push_back(std::move(device));
  return true;
}

bool Dictionary::define_thread(std::string name) {
  if (!has_room<ThreadId>(threads_)) return false;
  threads_.push_back(std::move(name));
  return true;
}

bool Dictionary::define_category(CategoryInfo category) {
  const std::size_t id = categories_.size();
  const bool top = category.parent.raw() == id;
  const bool below_top =
      category.parent.raw() < id && top_level(category.parent) == category.parent;
  if (id >= category::kMaxCategories || !(top || below_top)) return false;
  categories_.push_back(std::move(category));
  return true;
}

}  // namespace peakline
