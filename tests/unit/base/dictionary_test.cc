#include <gtest/gtest.h>

#include <string>

#include <peakline/dictionary.h>

namespace peakline {
namespace {

TEST(Dictionary, GivesEachWordOneId) {
  Dictionary words;
  EXPECT_EQ(words.intern_op("aten::mm"), OpId(1));
  EXPECT_EQ(words.intern_op("aten::add"), OpId(2));
  EXPECT_EQ(words.intern_op("aten::mm"), OpId(1));
  EXPECT_EQ(words.op(OpId(2)), "aten::add");
  EXPECT_EQ(words.intern_name("aten::mm"), NameId(1)) << "tables are apart";
  EXPECT_EQ(words.intern_thread("main"), ThreadId(0));
  EXPECT_EQ(words.intern_thread("autograd"), ThreadId(1));
  EXPECT_EQ(words.intern_thread("main"), ThreadId(0));
}

TEST(Dictionary, NoTextIsNone) {
  Dictionary words;
  EXPECT_EQ(words.intern_name(""), NameId{});
  EXPECT_EQ(words.intern_op(""), OpId{});
  EXPECT_EQ(words.intern_module("", "Net", ModuleId{}), ModuleId{});
  EXPECT_EQ(words.refused(), 0u);
}

TEST(Dictionary, UnknownIdsAnswerWithNone) {
  const Dictionary words;
  EXPECT_EQ(words.name(NameId(99)), "");
  EXPECT_EQ(words.op(OpId(99)), "");
  EXPECT_EQ(words.module(ModuleId(99)).path, "");
  EXPECT_EQ(words.thread(ThreadId(99)), "");
  EXPECT_EQ(words.device(DeviceId(99)).name, "unknown");
  EXPECT_EQ(words.category(CategoryId(99)).name, "Unlabelled");
}

TEST(Dictionary, TheFirstParentAndTypeOfAModuleStay) {
  Dictionary words;
  const ModuleId net = words.intern_module("Net", "Net", ModuleId{});
  const ModuleId layer = words.intern_module("Net.fc", "Linear", net);
  EXPECT_EQ(words.intern_module("Net.fc", "Other", ModuleId{}), layer);
  EXPECT_EQ(words.module(layer).type, "Linear");
  EXPECT_EQ(words.module(layer).parent, net);
}

TEST(Dictionary, AModuleUnderAnUnknownParentIsRefused) {
  Dictionary words;
  const ModuleId net = words.intern_module("Net", "Net", ModuleId{});
  EXPECT_EQ(words.intern_module("Net.fc", "Linear", ModuleId(77)), ModuleId{});
  EXPECT_EQ(words.refused(), 1u);
  EXPECT_EQ(words.intern_module("Net.fc", "Linear", net), ModuleId(2)) << "it can still come";
}

TEST(Dictionary, CategoriesHaveTwoLevels) {
  Dictionary words;
  const CategoryId cache = words.intern_category("Cache", category::kOther);
  EXPECT_EQ(words.category_label(cache), "Other / Cache");
  EXPECT_EQ(words.top_level(cache), category::kOther);
  EXPECT_EQ(words.category_label(category::kShardedParameter), "Parameter / Sharded");
  EXPECT_EQ(words.intern_category("Keys", cache), category::kOther) << "no third level";
  EXPECT_EQ(words.refused(), 1u);
  EXPECT_EQ(words.intern_category("Sharded", category::kGradient), category::kShardedGradient);
}

TEST(Dictionary, TablesEndWhereTheirIdsDo) {
  Dictionary words;
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(words.intern_device({std::to_string(i), "", Bytes{}}).raw(), i);
  }
  EXPECT_EQ(words.intern_device({"one more", "", Bytes{}}), DeviceId(0));
  EXPECT_EQ(words.refused(), 1u);
  EXPECT_EQ(words.device_count(), 256u);
  for (std::size_t i = words.category_count(); i < category::kMaxCategories; ++i) {
    words.intern_category(std::to_string(i), category::kOther);
  }
  EXPECT_EQ(words.refused(), 1u);
  EXPECT_EQ(words.intern_category("one more", category::kOther), category::kOther);
  EXPECT_EQ(words.refused(), 2u);
}

TEST(Dictionary, TextIsLimitedInAllTablesTogether) {
  Dictionary words;
  const std::string half(Dictionary::kMaxTextBytes / 2, 'x');
  EXPECT_TRUE(words.define_name(half));
  EXPECT_TRUE(words.has_room(half.size()));
  EXPECT_TRUE(words.define_op(half));
  EXPECT_FALSE(words.has_room(1));
  EXPECT_EQ(words.intern_op("aten::mm"), OpId{});
  EXPECT_EQ(words.intern_op(half), OpId(1)) << "what is there is still found";
  EXPECT_EQ(words.refused(), 1u);
}

}  // namespace
}  // namespace peakline
