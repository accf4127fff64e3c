#include "import/pickle.h"

#include <gtest/gtest.h>

#include "import_support.h"

namespace peakline::pickle {
namespace {

using peakline::testing::PickleWriter;
using peakline::testing::source_of;
using namespace std::string_view_literals;

Result<Value> read_text(std::string_view bytes, Listener* listener = nullptr,
                        const Limits& limits = {}) {
  return read(*source_of(bytes), listener, limits);
}

std::string error_of(std::string_view bytes, const Limits& limits = {}) {
  const Result<Value> value = read_text(bytes, nullptr, limits);
  return value.ok() ? "" : value.status().message();
}

TEST(Pickle, ScalarsOfEveryProtocolAreRead) {
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*read_text("N.")));
  EXPECT_EQ(std::get<bool>(*read_text("\x80\x02\x88."sv)), true);
  EXPECT_EQ(std::get<bool>(*read_text("I01\n.")), true);
  EXPECT_EQ(*integer_of(*read_text("I-42\n.")), -42);
  EXPECT_EQ(*integer_of(*read_text("L42L\n.")), 42);
  EXPECT_EQ(*integer_of(*read_text("K\x07."sv)), 7);
  EXPECT_EQ(*integer_of(*read_text("M\x01\x02."sv)), 513);
  EXPECT_EQ(*integer_of(*read_text("J\xff\xff\xff\xff."sv)), -1);
  EXPECT_EQ(*integer_of(*read_text("\x8a\x02\x00\x80."sv)), -32768);
  EXPECT_EQ(*integer_of(*read_text("\x8a\x00."sv)), 0);
  EXPECT_DOUBLE_EQ(std::get<double>(*read_text("F1.5\n.")), 1.5);
  EXPECT_DOUBLE_EQ(std::get<double>(*read_text("G\x3f\xf8\0\0\0\0\0\0."sv)), 1.5);
  EXPECT_EQ(text_of(*read_text("S'abc'\n.")), "abc");
  EXPECT_EQ(text_of(*read_text("Vabc\n.")), "abc");
  EXPECT_EQ(text_of(*read_text("X\x03\0\0\0abc."sv)), "abc");
}

TEST(Pickle, IntegersBeyond64BitsBecomeTheNearest) {
  EXPECT_EQ(*integer_of(*read_text("\x8a\x09\0\0\0\0\0\0\0\0\x01."sv)), INT64_MAX);
  EXPECT_EQ(*integer_of(*read_text("\x8a\x09\0\0\0\0\0\0\0\0\xff."sv)), INT64_MIN);
  EXPECT_EQ(*integer_of(*read_text("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00."sv)), INT64_MAX);
  EXPECT_EQ(*integer_of(*read_text("L99999999999999999999999L\n.")), INT64_MAX);
}

TEST(Pickle, ContainersNest) {
  const Result<Value> value = read_text("(dp0\nS'a'\n(lp1\nI1\naI2\nasS'b'\n(I3\nI4\ntp2\ns.");
  ASSERT_TRUE(value.ok()) << value.status().message();
  const Container* dict = container_of(*value);
  ASSERT_NE(dict, nullptr);
  EXPECT_EQ(container_of(*dict->find("a"))->items.size(), 2u);
  EXPECT_EQ(container_of(*dict->find("b"))->kind, Container::Kind::kTuple);
  EXPECT_EQ(dict->find("c"), nullptr);
}

TEST(Pickle, AValueMayBeInOneListTwice) {
  // [d, d] in one go: the second refers to the first before the list has either
  const Result<Value> value = read_text(
      "\x80\x02]q\x00(}q\x01X\x01\0\0\0aK\x07sh\x01"
      "e."sv);
  ASSERT_TRUE(value.ok()) << value.status().message();
  const Container* list = container_of(*value);
  ASSERT_EQ(list->items.size(), 2u);
  EXPECT_EQ(container_of(list->items[0]), container_of(list->items[1]));
  EXPECT_EQ(*integer_of(*container_of(list->items[1])->find("a")), 7);
}

TEST(Pickle, AListInItselfIsRefused) {
  EXPECT_NE(error_of("\x80\x02]q\x00(h\x00"
                     "e."sv)
                .find("into itself"),
            std::string::npos);
  EXPECT_NE(error_of("\x80\x02]q\x00h\x00"
                     "a."sv),
            "");
  EXPECT_NE(error_of("\x80\x02}q\x00(X\x01\0\0\0a](h\x00"
                     "eu."sv)
                .find("into itself"),
            std::string::npos);
}

TEST(Pickle, WhatWouldBuildAnythingElseIsRefused) {
  const auto refused = [](std::string_view bytes) {
    const Result<Value> value = read_text(bytes);
    return !value.ok() && value.status().code() == StatusCode::kUnsupported;
  };
  EXPECT_TRUE(refused("cos\nsystem\n(S'echo'\ntR."));
  EXPECT_TRUE(refused("\x80\x04\x8c\x02os\x8c\x06system\x93."sv));
  EXPECT_TRUE(refused("N)R."));
  EXPECT_TRUE(refused("N)\x81."));
  EXPECT_TRUE(refused("}}b."));
  EXPECT_TRUE(refused("(i__main__\nX\n."));
  EXPECT_TRUE(refused("Pid\n."));
  EXPECT_TRUE(refused("\x82\x01."sv));
  EXPECT_TRUE(refused("\x8f."sv));
  EXPECT_EQ(error_of("cos\nsystem\n."),
            "memory: byte 1 of the pickle names a Python class or function; only plain data is "
            "read, so this file is refused");
}

TEST(Pickle, ACutFileSaysWhereItEnds) {
  EXPECT_EQ(error_of("\x80\x04K"sv),
            "memory: the pickle ends at byte 3 without its end mark; the file is cut off");
  EXPECT_NE(error_of(""), "");
  EXPECT_NE(error_of("X\xff\xff\xff\x0f"sv), "") << "a text longer than the file";
}

TEST(Pickle, StacksThatDoNotFitAreRefused) {
  for (const char* bytes : {"a.", "e.", "(e.", "u.", "s.", "t.", "0.", "1.", ".", "NN.", "(N.",
                            "Na.", "]s.", "}(Nu.", "g5\n.", "\x94.", "2.", "\xf0."}) {
    EXPECT_NE(error_of(bytes), "") << bytes;
  }
}

TEST(Pickle, NoContainerCanHoldItself) {
  EXPECT_NE(error_of("]q\0h\0a."sv), "");
  EXPECT_NE(error_of("]q\0]q\1ah\1h\0a."sv), "") << "changing one that is in use";
}

TEST(Pickle, DepthAndSizeAreLimited) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "]";
  for (int i = 0; i < 99; ++i) deep += "a";
  EXPECT_NE(error_of(deep + "."), "");
  Limits limits;
  limits.values = 100;
  std::string wide = "](";
  for (int i = 0; i < 200; ++i) wide += "N";
  EXPECT_NE(error_of(wide + "e.", limits), "");
}

// Counts what it takes.
class Taker : public Listener {
 public:
  Result<bool> on_items(std::string_view key, bool nested, std::size_t index,
                        std::vector<Value>& items) override {
    if (key != "traces" || !nested) return false;
    taken[index] += items.size();
    return true;
  }
  std::map<std::size_t, std::size_t> taken;
};

TEST(Pickle, AListenerTakesItemsOfNestedListsAsTheyCome) {
  PickleWriter writer;
  writer.dict().text("other").list().number(1).end_list().text("traces").list();
  for (int device = 0; device < 2; ++device) {
    writer.list();
    for (int i = 0; i < 10; ++i) writer.entry("alloc", i, i);
    writer.end_list();
  }
  writer.end_list().end_dict();
  Taker taker;
  const std::string bytes = writer.done();
  const Result<Value> value = read_text(bytes, &taker);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(taker.taken, (std::map<std::size_t, std::size_t>{{0, 10}, {1, 10}}));
  EXPECT_EQ(container_of(*container_of(*value)->find("other"))->items.size(), 1u);
}

TEST(Pickle, WhatAListenerTookCannotBeReferredTo) {
  // {"traces": [[{}]]} where the {} is memo 3, and then that again.
  Taker taker;
  const Result<Value> value = read_text("}q\0U\6tracesq\1]q\2]q\3}q\4aah\4s."sv, &taker);
  EXPECT_FALSE(value.ok());
}

// Found by fuzzing: two items that are taken had the same number, one after the other.
TEST(Pickle, ItemsThatAreTakenMayHaveLostTheirNumber) {
  Taker taker;
  EXPECT_TRUE(read_text("}U\6traces]](}q\0}q\0}q\0eas."sv, &taker).ok());
  EXPECT_EQ(taker.taken[0], 3u);
}

TEST(Pickle, MemoryDoesNotGrowWithWhatIsTaken) {
  PickleWriter writer;
  writer.dict().text("traces").list().list();
  for (int i = 0; i < 200'000; ++i) {
    writer.entry("alloc", i, i);
    if (i % 1000 == 999) writer.end_list().op('(');
  }
  writer.end_list().end_list().end_dict();
  Limits limits;
  limits.values = 100'000;  // two million values pass through
  Taker taker;
  const std::string bytes = writer.done();
  const Result<Value> value = read_text(bytes, &taker, limits);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(taker.taken[0], 200'000u);
}

}  // namespace
}  // namespace peakline::pickle
