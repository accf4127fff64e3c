#include "export/pickle_writer.h"

namespace peakline {
namespace {

// Python's opcodes, by its names for them.
enum Opcode : int {
  kProto = 0x80,
  kStop = '.',
  kMark = '(',
  kEmptyList = ']',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItems = 'u',
  kBinUnicode = 'X',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kLong1 = 0x8a,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kTuple2 = 0x86,
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
};

constexpr std::uint32_t kPiece = 1000;  // items, as in pickles that Python writes

}  // namespace

PickleWriter::PickleWriter(std::unique_ptr<Sink> sink) : file_(std::move(sink)) {
  byte(kProto);
  byte(2);
}

void PickleWriter::begin_list() {
  byte(kEmptyList);
  byte(kMark);
  items_.push_back(0);
}

void PickleWriter::next_item() {
  file_.settle();
  if (++items_.back() <= kPiece) return;
  byte(kAppends);
  byte(kMark);
  items_.back() = 1;
}

void PickleWriter::end_list() {
  byte(kAppends);
  items_.pop_back();
}

void PickleWriter::begin_dict() {
  byte(kEmptyDict);
  byte(kMark);
}

void PickleWriter::end_dict() { byte(kSetItems); }

void PickleWriter::fixed(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) byte(static_cast<int>(value >> (8 * i) & 0xff));
}

void PickleWriter::number(std::int64_t value) {
  if (value >= 0 && value < 256) {
    byte(kBinInt1);
    fixed(static_cast<std::uint64_t>(value), 1);
  } else if (value == static_cast<std::int32_t>(value)) {
    byte(kBinInt);
    fixed(static_cast<std::uint64_t>(value), 4);
  } else {
    byte(kLong1);
    byte(8);
    fixed(static_cast<std::uint64_t>(value), 8);
  }
}

void PickleWriter::text(std::string_view value) {
  const auto [found, is_new] = words_.try_emplace(std::string(value), remembered_);
  if (!is_new) return use(found->second);
  byte(kBinUnicode);
  fixed(value.size(), 4);
  file_.text() += value;
  remember();
}

void PickleWriter::truth(bool value) { byte(value ? kNewTrue : kNewFalse); }

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  number(first);
  number(second);
  byte(kTuple2);
}

MemoId PickleWriter::remember() {
  const MemoId id = remembered_++;
  byte(id < 256 ? kBinPut : kLongBinPut);
  fixed(id, id < 256 ? 1 : 4);
  return id;
}

void PickleWriter::use(MemoId value) {
  byte(value < 256 ? kBinGet : kLongBinGet);
  fixed(value, value < 256 ? 1 : 4);
}

Status PickleWriter::finish() {
  byte(kStop);
  return file_.finish();
}

}  // namespace peakline
