#include <gtest/gtest.h>

#include <peakline/allocator_config.h>

namespace peakline {
namespace {

std::string error_of(std::string_view text, TorchVersion torch = {}) {
  const Result<AllocatorConfig> config = AllocatorConfig::parse(text, torch);
  return config.ok() ? "" : config.status().message();
}

TEST(AllocatorConfig, ReadsEveryOptionThatChangesMemory) {
  const Result<AllocatorConfig> config = AllocatorConfig::parse(
      "expandable_segments:True, max_split_size_mb:128,max_non_split_rounding_mb:40,"
      "garbage_collection_threshold:0.75,large_segment_size_mb:32,per_process_memory_fraction:0.5,"
      "roundup_power2_divisions:8,backend:native");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->expandable_segments);
  EXPECT_EQ(config->max_split_size, 128_MiB);
  EXPECT_EQ(config->max_non_split_rounding, 40_MiB);
  EXPECT_DOUBLE_EQ(config->garbage_collection_threshold, 0.75);
  EXPECT_EQ(config->large_segment_size, 32_MiB);
  EXPECT_DOUBLE_EQ(config->memory_fraction, 0.5);
  EXPECT_EQ(config->roundup_power2_divisions[3], 8u);
}

TEST(AllocatorConfig, NothingMeansTorchsDefaults) {
  const Result<AllocatorConfig> config = AllocatorConfig::parse("");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->max_split_size, AllocatorConfig::kUnlimited);
  EXPECT_EQ(config->large_segment_size, 20_MiB);
  EXPECT_FALSE(config->expandable_segments);
}

TEST(AllocatorConfig, LargeSegmentSizeIsReadBeforeOptionsThatDependOnIt) {
  EXPECT_EQ(error_of("max_split_size_mb:30,large_segment_size_mb:40"),
            "allocator settings: max_split_size_mb must be at least 40, not 30");
  const Result<AllocatorConfig> config = AllocatorConfig::parse("large_segment_size_mb:40");
  EXPECT_EQ(config->max_non_split_rounding, 40_MiB);
}

TEST(AllocatorConfig, EveryErrorNamesTheOptionAndTheValue) {
  EXPECT_EQ(error_of("max_split_size_mb:abc"),
            "allocator settings: max_split_size_mb needs a whole number, not 'abc'");
  EXPECT_EQ(error_of("max_split_size_mb:-5"),
            "allocator settings: max_split_size_mb needs a whole number, not '-5'");
  EXPECT_EQ(error_of("max_split_size_mb:19"),
            "allocator settings: max_split_size_mb must be at least 20, not 19");
  EXPECT_EQ(error_of("max_split_size_mb"),
            "allocator settings: option 'max_split_size_mb' needs a value, as in "
            "'max_split_size_mb:VALUE'");
  EXPECT_EQ(error_of("max_split_size_mb:"),
            "allocator settings: option 'max_split_size_mb' has no value");
  EXPECT_EQ(error_of("expandable_segments:yes"),
            "allocator settings: expandable_segments must be True or False, not 'yes'");
  EXPECT_EQ(error_of("garbage_collection_threshold:1"),
            "allocator settings: garbage_collection_threshold must lie between 0 and 1, both "
            "excluded, not '1'");
  EXPECT_EQ(error_of("roundup_power2_divisions:3"),
            "allocator settings: roundup_power2_divisions: the number of divisions must be a power "
            "of two, not 3");
  EXPECT_EQ(error_of("roundup_power2_divisions:[100:2]"),
            "allocator settings: roundup_power2_divisions: a size in MiB must be a power of two, "
            "not 100");
  EXPECT_EQ(error_of("roundup_power2_divisions:[256:2"),
            "allocator settings: roundup_power2_divisions needs a number, or a list such as "
            "[256:1,512:2,>:4]");
  EXPECT_NE(error_of("expandable_segments:True max_split_size_mb:30").find("True or False"),
            std::string::npos);
  EXPECT_NE(error_of("no_such_option:1").find("'no_such_option' is not an option"),
            std::string::npos);
  EXPECT_EQ(error_of(",expandable_segments:True"),
            "allocator settings: expected an option name, found ','");
}

TEST(AllocatorConfig, OtherAllocatorsAreRefused) {
  const Result<AllocatorConfig> config = AllocatorConfig::parse("backend:cudaMallocAsync");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(error_of("backend:mine").find("not 'mine'"), std::string::npos);
}

TEST(AllocatorConfig, OptionsOfHostMemoryAreCheckedAndPutAside) {
  const Result<AllocatorConfig> config =
      AllocatorConfig::parse("pinned_use_background_threads:True,pinned_num_register_threads:4");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->without_effect.size(), 2u);
  EXPECT_NE(error_of("pinned_num_register_threads:x"), "");
}

TEST(AllocatorConfig, NewerOptionsNeedANewerTorch) {
  EXPECT_NE(error_of("throw_on_cudamalloc_oom:True", {2, 11}), "");
  EXPECT_EQ(error_of("throw_on_cudamalloc_oom:True", {2, 13}), "");
}

TEST(AllocatorConfig, AnyTextIsAnswered) {
  // Every string of three tokens over this alphabet: no crash, no endless loop.
  const std::vector<std::string> words = {
      ":", ",", "[", "]", "roundup_power2_divisions", "large_segment_size_mb", "4", ">", "x", ""};
  std::size_t accepted = 0;
  for (const auto& a : words) {
    for (const auto& b : words) {
      for (const auto& c : words) {
        for (const auto& d : words) {
          accepted += AllocatorConfig::parse(a + b + c + d).ok() ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(accepted, 0u);
}

TEST(AllocatorConfig, EqualSettingsHaveOneSpelling) {
  const auto canonical = [](std::string_view text) {
    return AllocatorConfig::parse(text).value().canonical();
  };
  EXPECT_EQ(canonical(""), "");
  EXPECT_EQ(canonical("expandable_segments:False,backend:native"), "");
  EXPECT_EQ(canonical(" max_split_size_mb : 64 , expandable_segments:True,"),
            "expandable_segments:True,max_split_size_mb:64");
  EXPECT_EQ(canonical("roundup_power2_divisions:8"), "roundup_power2_divisions:8");
  EXPECT_EQ(canonical("garbage_collection_threshold:0.80"), "garbage_collection_threshold:0.8");
  for (const char* text : {"roundup_power2_divisions:[256:1,512:2,>:4]", "large_segment_size_mb:64",
                           "max_non_split_rounding_mb:40,per_process_memory_fraction:0.5"}) {
    EXPECT_EQ(canonical(canonical(text)), canonical(text)) << text;
    EXPECT_NE(canonical(text), "") << text;
  }
}

TEST(AllocatorConfig, SettingsThatAreAddedReplaceTheirOwnKindOnly) {
  EXPECT_EQ(add_settings("", "expandable_segments:True"), "expandable_segments:True");
  EXPECT_EQ(add_settings("max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]",
                         "max_split_size_mb:128,expandable_segments:True"),
            "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4],expandable_segments:True");
}

TEST(TorchVersion, IsReadFromWhatTorchSays) {
  EXPECT_EQ(*parse_torch_version("2.13.0+cu130"), (TorchVersion{2, 13}));
  EXPECT_EQ(*parse_torch_version("2.11"), (TorchVersion{2, 11}));
  EXPECT_FALSE(parse_torch_version("2.10.1").ok());
  EXPECT_FALSE(parse_torch_version("3").ok());
  EXPECT_FALSE(parse_torch_version("two").ok());
}

}  // namespace
}  // namespace peakline
