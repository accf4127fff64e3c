// Python's own view of its frames. Nothing but this file sees the interpreter's insides: its public
// functions make objects, which takes Python's lock.
#include <Python.h>
#undef _PyGC_FINALIZED  // 3.12 has it twice
#define Py_BUILD_CORE
#define Py_BUILD_CORE_MODULE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#undef Py_BUILD_CORE_MODULE

#include "capture/python/python_frames.h"

namespace peakline::capture {
namespace {

const _PyInterpreterFrame* innermost(const PyThreadState* thread) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame;
#else
  return thread->cframe == nullptr ? nullptr : thread->cframe->current_frame;
#endif
}

const PyCodeObject* code_of(const _PyInterpreterFrame& frame) noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  if (frame.owner == FRAME_OWNED_BY_CSTACK) return nullptr;  // how C calls Python, and not a call
#endif
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* code = frame.f_executable;
  return code != nullptr && PyCode_Check(code) ? reinterpret_cast<PyCodeObject*>(code) : nullptr;
#else
  return frame.f_code;
#endif
}

std::int32_t instruction_of(const _PyInterpreterFrame& frame, const PyCodeObject* code) noexcept {
  const auto* first = reinterpret_cast<const _Py_CODEUNIT*>(code->co_code_adaptive);
#if PY_VERSION_HEX >= 0x030D0000
  const auto* at = frame.instr_ptr;
#else
  const auto* at = frame.prev_instr;
#endif
  return static_cast<std::int32_t>((at - first) * static_cast<std::ptrdiff_t>(sizeof *first));
}

std::uint64_t mixed(std::uint64_t sum, std::uint64_t value) noexcept {
  sum = (sum ^ value) * 0x9E3779B97F4A7C15U;
  return sum ^ sum >> 29;
}

std::uint64_t address(const void* object) noexcept {
  return reinterpret_cast<std::uint64_t>(object);
}

// Python may use a code object's memory again, but hardly with the same tables at the same addresses.
std::uint64_t key_of(const PyCodeObject* code, std::int32_t instruction) noexcept {
  std::uint64_t key = mixed(address(code), address(code->co_linetable));
  key = mixed(key, address(code->co_filename));
  return mixed(key, static_cast<std::uint64_t>(static_cast<std::uint32_t>(code->co_firstlineno))
                            << 32 |
                        static_cast<std::uint32_t>(instruction));
}

void append_utf8(std::string& out, std::uint32_t c) {
  const auto more = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    more(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    more(6), more(0);
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    more(12), more(6), more(0);
  }
}

// A string never changes, so it can be read by anybody. Python's own conversion keeps its result.
std::string text_of(PyObject* text) {
  std::string out;
  if (text == nullptr || !PyUnicode_Check(text)) return out;
  const auto kind = static_cast<int>(PyUnicode_KIND(text));
  const void* data = PyUnicode_DATA(text);
  const Py_ssize_t length = PyUnicode_GET_LENGTH(text);
  for (Py_ssize_t i = 0; i < length; ++i) append_utf8(out, PyUnicode_READ(kind, data, i));
  return out;
}

std::size_t read_frames(std::span<Frame> frames) noexcept {
  std::size_t count = 0;
#ifndef Py_GIL_DISABLED
  const PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) return 0;
  const _PyInterpreterFrame* frame = innermost(thread);
  for (; frame != nullptr && count < frames.size(); frame = frame->previous) {
    const PyCodeObject* code = code_of(*frame);
    if (code == nullptr) continue;
    const std::int32_t instruction = instruction_of(*frame, code);
    frames[count++] = {code, instruction, key_of(code, instruction)};
  }
#endif
  return count;
}

FramePlace place_of(const Frame& frame) {
  auto* code = static_cast<PyCodeObject*>(const_cast<void*>(frame.code));
  const int line = PyCode_Addr2Line(code, frame.instruction);
  return {text_of(code->co_filename), text_of(code->co_qualname),
          line > 0 ? static_cast<std::uint32_t>(line) : 0};
}

constexpr FrameReader kPython{&read_frames, &place_of};

}  // namespace

void know_python_frames() noexcept { set_frame_reader(&kPython); }

}  // namespace peakline::capture
