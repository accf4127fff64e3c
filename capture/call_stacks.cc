#include "capture/call_stacks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "capture/frames.h"
#include "capture/native_frames.h"

namespace peakline::capture {
namespace {

constexpr std::size_t kMostFrames = 256;  // the innermost; deeper recursion is cut
constexpr std::size_t kMostNativeFrames = 96;
constexpr std::size_t kKnownStacks = 4096;
constexpr std::size_t kMostPlaces = std::size_t{1} << 16;

std::atomic<const FrameReader*> g_reader{nullptr};

enum class Whose : std::uint8_t { kProgram, kLibrary, kNobody };

struct Place {
  LineId line;
  Whose whose = Whose::kNobody;
  bool of_dash_c = false;  // what `python -c` runs, or a string that the program executes
};

// What one thread has met in one recording.
struct ThreadStacks {
  struct Known {
    std::uint64_t key = 0;
    TakenStack taken;
  };
  std::uint64_t recorder = 0;
  std::array<Known, kKnownStacks> known;
  std::unordered_map<std::uint64_t, Place> places;
  std::array<Frame, kMostFrames> frames;
  std::vector<LineId> lines;  // kept for its memory

  // Calls of C++, where they are wanted.
  struct NativePlace {
    LineId line;  // none: nobody's
    bool runs_python = false;
  };
  std::unordered_map<void*, NativePlace> native_places;
  std::array<void*, kMostNativeFrames> native;
  std::vector<LineId> native_lines;  // the innermost first
};

thread_local ThreadStacks* t_stacks __attribute__((tls_model("initial-exec"))) = nullptr;

ThreadStacks& make_stacks() {
  thread_local struct Owner {
    std::unique_ptr<ThreadStacks> stacks = std::make_unique<ThreadStacks>();
    ~Owner() { t_stacks = nullptr; }
  } owner;
  t_stacks = owner.stacks.get();
  return *t_stacks;
}

ThreadStacks& thread_stacks(const Recorder& recorder) {
  ThreadStacks& stacks = t_stacks != nullptr ? *t_stacks : make_stacks();
  if (stacks.recorder != recorder.serial()) {
    stacks.recorder = recorder.serial();
    stacks.known.fill({});
    stacks.places.clear();
    stacks.native_places.clear();
  }
  return stacks;
}

bool lies_in(std::string_view file, const std::vector<std::string>& folders) {
  return std::ranges::any_of(folders, [&](const std::string& folder) {
    return file.size() > folder.size() && file.starts_with(folder) && file[folder.size()] == '/';
  });
}

// Packages may be installed inside Python's own folder.
bool is_installed(std::string_view file) {
  return file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos;
}

// Inductor's, in whatever folder it keeps them: ".../qq/cqqjcqu6l….py", a folder for two letters of a
// hash.
bool is_of_inductor(std::string_view file) {
  constexpr std::size_t kShortestHash = 40;
  const std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos || slash < 3 || !file.ends_with(".py")) return false;
  const std::string_view name = file.substr(slash + 1, file.size() - slash - 4);
  const bool is_hash = name.size() >= kShortestHash && std::ranges::all_of(name, [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
                       });
  return is_hash && file.substr(slash - 3, 3) == "/" + std::string(name.substr(1, 2));
}

// Code that is generated while the program runs, and nobody wrote.
bool is_generated(std::string_view file) {
  return file.starts_with("<frozen ") || file.starts_with("<eval_with_key>") ||
         file.find("/torchinductor_") != std::string_view::npos || is_of_inductor(file);
}

Whose whose(const StackOptions& options, const std::string& file) {
  if (lies_in(file, options.left_out)) return Whose::kNobody;
  return is_library_file(options, file) ? Whose::kLibrary : Whose::kProgram;
}

const Place& place_in(ThreadStacks& stacks, Recorder& recorder, const FrameReader& reader,
                      const Frame& frame) {
  if (stacks.places.size() > kMostPlaces) stacks.places.clear();
  const auto [found, fresh] = stacks.places.try_emplace(frame.key);
  if (!fresh) return found->second;
  const FramePlace place = reader.place_of(frame);
  found->second.whose = whose(recorder.stacks(), place.file);
  found->second.of_dash_c = place.file == "<string>";
  if (found->second.whose != Whose::kNobody) {
    found->second.line = recorder.words().line(place.file, place.function, place.line,
                                               found->second.whose == Whose::kLibrary);
  }
  return found->second;
}

const ThreadStacks::NativePlace& native_place(ThreadStacks& stacks, Recorder& recorder,
                                              void* call) {
  if (stacks.native_places.size() > kMostPlaces) stacks.native_places.clear();
  const auto [found, fresh] = stacks.native_places.try_emplace(call);
  if (!fresh) return found->second;
  const FramePlace place = native_place_of(call);
  found->second.runs_python = runs_python(place);
  const bool named = !place.function.empty() && !is_of_python(place);
  if (named && !lies_in(place.file, recorder.stacks().left_out)) {
    found->second.line = recorder.words().line(place.file, place.function, 0, true);
  }
  return found->second;
}

// The calls of C++ since the last one of Python.
void read_native_lines(ThreadStacks& stacks, Recorder& recorder) {
  stacks.native_lines.clear();
  if (!recorder.stacks().cpp) return;
  const std::size_t count = read_native_frames(stacks.native);
  for (std::size_t i = 0; i < count; ++i) {
    const ThreadStacks::NativePlace& place = native_place(stacks, recorder, stacks.native[i]);
    if (place.runs_python) return;
    if (place.line != LineId{}) stacks.native_lines.push_back(place.line);
  }
}

TakenStack intern(ThreadStacks& stacks, Recorder& recorder, const FrameReader& reader,
                  std::size_t count) {
  std::vector<LineId>& lines = stacks.lines;
  lines.clear();
  LineId library;  // the innermost one since the program's last line
  for (std::size_t i = count; i-- > 0;) {
    const Place& place = place_in(stacks, recorder, reader, stacks.frames[i]);
    const bool is_outermost = i + 1 == count && count < kMostFrames;
    if (is_outermost && place.of_dash_c && recorder.stacks().launched) continue;
    if (place.whose == Whose::kLibrary) library = place.line;
    if (place.whose != Whose::kProgram) continue;
    lines.push_back(place.line);
    library = LineId{};
  }
  TakenStack taken;
  taken.own = taken.stack = recorder.words().stack(lines);
  if (library != LineId{}) lines.push_back(library);
  lines.insert(lines.end(), stacks.native_lines.rbegin(), stacks.native_lines.rend());
  taken.stack = recorder.words().stack(lines);
  return taken;
}

std::uint64_t mixed(std::uint64_t key, std::uint64_t value) noexcept {
  key = (key ^ value) * 0xBF58476D1CE4E5B9U;
  return key ^ key >> 31;
}

std::uint64_t key_of(std::span<const Frame> frames, std::span<const LineId> native) noexcept {
  std::uint64_t key = frames.size();
  for (const Frame& frame : frames) key = mixed(key, frame.key);
  for (const LineId line : native) key = mixed(key, line.raw());
  return key;
}

}  // namespace

bool is_library_file(const StackOptions& options, const std::string& file) {
  if (is_generated(file)) return true;
  // The first is torch's folder; in the others packages may lie that are not Python's.
  if (!options.library.empty() && lies_in(file, {options.library.front()})) return true;
  return lies_in(file, options.library) && !is_installed(file);
}

void set_frame_reader(const FrameReader* reader) noexcept {
  g_reader.store(reader, std::memory_order_release);
}

TakenStack take_stack(Recorder& recorder) noexcept {
  const FrameReader* reader = g_reader.load(std::memory_order_acquire);
  if (reader == nullptr) return {};
  try {
    ThreadStacks& stacks = thread_stacks(recorder);
    const std::size_t count = reader->read(stacks.frames);
    if (count == 0) return {};
    read_native_lines(stacks, recorder);
    const std::uint64_t key = key_of({stacks.frames.data(), count}, stacks.native_lines);
    ThreadStacks::Known& known = stacks.known[key % kKnownStacks];
    if (known.key != key) known = {key, intern(stacks, recorder, *reader, count)};
    return known.taken;
  } catch (...) {
    return {};  // no memory: the program has other worries
  }
}

void push_failure(Recorder& recorder, const RawEvent& event) noexcept {
  const bool wanted = recorder.stacks().from_bytes != StackOptions::kNever;
  const TakenStack taken = wanted ? take_stack(recorder) : TakenStack{};
  std::array<RawEvent, 2> events{stack_event(taken), event};
  recorder.push_all(events);
}

}  // namespace peakline::capture
