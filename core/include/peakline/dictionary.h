// The words of a recording: what its ids stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <peakline/category.h>
#include <peakline/ids.h>
#include <peakline/units.h>

namespace peakline {

// A module of the model. `path` is its full dotted name ("GPT2.h.0.attn"), the parent's path
// included.
struct ModuleInfo {
  std::string path;
  std::string type;  // the Python class, for example "Linear"
  ModuleId parent;
};

struct DeviceInfo {
  std::string name;   // "cuda:0", "cpu"
  std::string model;  // "NVIDIA H200"; empty when not known
  Bytes total;        // the device's memory; 0 when not known
};

struct CategoryInfo {
  std::string name;
  CategoryId parent;  // itself for the top level
};

// A line of the program that was being executed.
struct CodeLine {
  NameId file;
  NameId function;
  std::uint32_t line = 0;  // 1 is the first; 0: not known
  bool library = false;    // of torch or Python itself, which the program only calls
  std::string text;        // as it stands in the file; empty when it is not known or not to be kept
};

// A line, and what called it. Stacks that begin alike share their beginnings.
struct StackInfo {
  StackId caller;  // none: the outermost
  LineId line;
  std::uint32_t depth = 0;  // 1 is the outermost
};

// Tables from ids to words. Entry 0 of names, ops, modules, lines and stacks is "none".
// Writers intern, readers define; both only ever append. Growth is limited, so that neither a
// producer that invents names nor a hostile file can take all memory. Not thread-safe.
class Dictionary {
 public:
  static constexpr std::size_t kMaxWords = std::size_t{1} << 20;       // in all tables together
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;  // likewise

  static constexpr std::uint32_t kMaxStackDepth = 1024;

  Dictionary();

  // A word that does not fit any more answers with "none" (the first device or thread,
  // category::kOther) and is counted in refused().

  NameId intern_name(std::string_view text);
  OpId intern_op(std::string_view name);
  // One module per path; the first parent and type given for a path stay. The parent comes first.
  ModuleId intern_module(std::string_view path, std::string_view type, ModuleId parent);
  DeviceId intern_device(const DeviceInfo& device);
  ThreadId intern_thread(std::string_view name);
  CategoryId intern_category(std::string_view name, CategoryId parent);
  // One line per file, function and number; the first text stays.
  LineId intern_line(const CodeLine& line);
  StackId intern_stack(StackId caller, LineId line);

  // Unknown ids answer with the "none" entry, so that a damaged stream cannot reach out of a table.
  [[nodiscard]] std::string_view name(NameId id) const noexcept;
  [[nodiscard]] std::string_view op(OpId id) const noexcept;
  [[nodiscard]] const ModuleInfo& module(ModuleId id) const noexcept;
  [[nodiscard]] const DeviceInfo& device(DeviceId id) const noexcept;
  [[nodiscard]] std::string_view thread(ThreadId id) const noexcept;
  [[nodiscard]] const CategoryInfo& category(CategoryId id) const noexcept;
  [[nodiscard]] const CodeLine& line(LineId id) const noexcept;
  [[nodiscard]] const StackInfo& stack(StackId id) const noexcept;
  // The innermost line of a stack that is not a library's; the innermost of all when all are.
  [[nodiscard]] LineId own_line(StackId id) const noexcept;
  // The top-level category above `id`.
  [[nodiscard]] CategoryId top_level(CategoryId id) const noexcept;
  // "Parameter", or "Parameter / Sharded" for the second level.
  [[nodiscard]] std::string category_label(CategoryId id) const;

  [[nodiscard]] std::size_t name_count() const noexcept { return names_.size(); }
  [[nodiscard]] std::size_t op_count() const noexcept { return ops_.size(); }
  [[nodiscard]] std::size_t module_count() const noexcept { return modules_.size(); }
  [[nodiscard]] std::size_t device_count() const noexcept { return devices_.size(); }
  [[nodiscard]] std::size_t thread_count() const noexcept { return threads_.size(); }
  [[nodiscard]] std::size_t category_count() const noexcept { return categories_.size(); }
  [[nodiscard]] std::size_t line_count() const noexcept { return lines_.size(); }
  [[nodiscard]] std::size_t stack_count() const noexcept { return stacks_.size(); }

  // How often a word was asked for and not taken in.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }
  // Keeps room for text that another dictionary with the same words has and this one has not.
  void set_aside(std::size_t text_bytes) noexcept;
  // Whether one more word with this much text fits.
  [[nodiscard]] bool has_room(std::size_t text_bytes) const noexcept;

  // Readers: appends the next entry of a table as the file defines it. False when there is no room,
  // or what it names is not defined.
  bool define_name(std::string text);
  bool define_op(std::string name);
  bool define_module(ModuleInfo module);
  bool define_device(DeviceInfo device);
  bool define_thread(std::string name);
  bool define_category(CategoryInfo category);
  bool define_line(CodeLine line);
  bool define_stack(StackId caller, LineId line);

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };
  // A line by file, function and number; a stack by caller and line.
  struct Triple {
    std::uint32_t a, b, c;
    bool operator==(const Triple&) const = default;
  };
  struct TripleHash {
    std::size_t operator()(const Triple& key) const noexcept {
      const std::uint64_t mixed =
          (std::uint64_t{key.a} << 32 | key.b) * 0x9E3779B97F4A7C15U + key.c;
      return static_cast<std::size_t>((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9U);
    }
  };
  using TripleIndex = std::unordered_map<Triple, std::uint32_t, TripleHash>;
  using Index = std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>>;

  template <class IdType, class Table>
  bool append(Table& table, std::size_t text_bytes, typename Table::value_type entry);

  std::vector<std::string> names_;
  std::vector<std::string> ops_;
  std::vector<ModuleInfo> modules_;
  std::vector<DeviceInfo> devices_;
  std::vector<std::string> threads_;
  std::vector<CategoryInfo> categories_;
  std::vector<CodeLine> lines_;
  std::vector<StackInfo> stacks_;
  Index name_index_;
  Index op_index_;
  Index module_index_;
  Index thread_index_;
  TripleIndex line_index_;
  TripleIndex stack_index_;
  std::size_t words_ = 0;  // defined, the entries that are always there not counted
  std::size_t text_bytes_ = 0;
  std::uint64_t refused_ = 0;
};

}  // namespace peakline
