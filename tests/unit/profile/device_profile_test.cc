#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <peakline/device_profile.h>

namespace peakline {
namespace {

const char* const kWhole = R"(
name = "My GPU"
[measured]
compute_capability = "8.9"
sm_count = 128
max_threads_per_sm = 1536
total_memory = "24GiB"
shared_memory_per_block = 49152
shared_memory_per_block_opt_in = 101376
shared_memory_per_sm = 102400
[estimated]
context = "450MiB"
context_with_cublas = "500MiB"
context_with_cudnn = 550000000
)";

std::string without(std::string text, const std::string& line_begin) {
  const std::size_t at = text.find(line_begin);
  return text.erase(at, text.find('\n', at) - at);
}

TEST(DeviceProfile, AllGpusAreKnownByTheNamesPeopleType) {
  for (const char* id : {"h200", "h100", "a100-80", "a100-40", "l40s", "rtx4090", "a10", "t4",
                         "b200", "gb200", "l4", "a6000", "rtx3090", "rtx5090"}) {
    const Result<DeviceProfile> profile = load_profile(id);
    ASSERT_TRUE(profile.ok()) << profile.status().message();
    EXPECT_EQ(profile->id, id);
    EXPECT_GT(profile->usable_memory(), 14_GiB) << id;
    EXPECT_GE(profile->capability(), 75) << id;
  }
  EXPECT_EQ(known_profiles().size(), 14U);
  EXPECT_EQ(known_profiles().front().id, "h200");
}

TEST(DeviceProfile, FullNamesAndCapitalsWorkToo) {
  EXPECT_EQ(load_profile("NVIDIA H200")->id, "h200");
  EXPECT_EQ(load_profile("T4")->id, "t4");
}

TEST(DeviceProfile, ShortWordsForAGpuAreUnderstood) {
  EXPECT_EQ(load_profile("a100")->id, "a100-80");
  EXPECT_EQ(load_profile("A100-40GB")->id, "a100-40");
  EXPECT_EQ(load_profile("4090")->id, "rtx4090");
  EXPECT_EQ(load_profile("H100")->id, "h100");
  EXPECT_EQ(load_profile("RTX A6000")->id, "a6000");
  const std::string wrong = "aliases = \"one\"\n" + std::string(kWhole);
  EXPECT_EQ(parse_profile(wrong, "my.toml").status().message(),
            "my.toml:1: 'aliases' must be a list of texts");
}

TEST(DeviceProfile, UnknownNameListsTheKnownOnes) {
  const Result<DeviceProfile> profile = load_profile("h300");
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.status().message(),
            "unknown GPU 'h300': known are h200, h100, a100-80, a100-40, l40s, rtx4090, a10, t4, "
            "b200, gb200, l4, a6000, rtx3090, rtx5090; or give the path of a .toml file");
}

TEST(DeviceProfile, OnlyTheVersionsThatWereMeasuredCountAsSuch) {
  const DeviceProfile h200 = *load_profile("h200");
  EXPECT_TRUE(h200.measured_with_torch("2.11"));
  EXPECT_TRUE(h200.measured_with_torch("2.11.0"));
  EXPECT_FALSE(h200.measured_with_torch("2.110"));
  EXPECT_FALSE(h200.measured_with_torch("2.1"));
  EXPECT_TRUE(h200.measured_with_cudnn("9.19.0"));
  EXPECT_FALSE(h200.measured_with_cudnn(""));
  for (const DeviceProfile& other : known_profiles()) {
    EXPECT_EQ(other.measured_with_torch("2.11"), other.id == "h200") << other.id;
  }
}

TEST(DeviceProfile, MeasuredVersionsAreWrittenAndReadAgain) {
  const std::string versions = "[versions]\ntorch = [\"2.11\", \"2.13\"]\n";
  const Result<DeviceProfile> read = parse_profile(kWhole + versions, "my.toml");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->measured_with_torch("2.13.0"));
  EXPECT_TRUE(parse_profile(to_toml(*read), "again.toml")->measured_with_torch("2.13.0"));
}

TEST(DeviceProfile, VersionsThatMakeNoSenseAreRefusedInOneSentence) {
  const auto message = [](const std::string& text) {
    return parse_profile(kWhole + text, "my.toml").status().message();
  };
  EXPECT_EQ(message("[versions]\ntorch = 2.11\n"),
            "my.toml:16: 'torch' must be a list of texts like \"2.11\"");
  EXPECT_EQ(message("[versions]\ncublas = [\"13.0\"]\n"),
            "my.toml:16: unknown key 'cublas': versions are of torch and cudnn");
}

TEST(DeviceProfile, EveryNumberTellsItsSource) {
  const DeviceProfile h200 = *load_profile("h200");
  EXPECT_EQ(h200.source_of("context"), NumberSource::kMeasured);
  EXPECT_EQ(h200.source_of("shared_memory_per_block"), NumberSource::kPublic);
  const DeviceProfile a10 = *load_profile("a10");
  EXPECT_EQ(a10.source_of("context"), NumberSource::kEstimated);
  EXPECT_EQ(a10.source_of("sm_count"), NumberSource::kPublic);
}

TEST(DeviceProfile, OwnFileIsReadWithSizesAsPeopleWriteThem) {
  const Result<DeviceProfile> profile = parse_profile(kWhole, "my.toml");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->name, "My GPU");
  EXPECT_EQ(profile->id, "custom");
  EXPECT_EQ(profile->total_memory, 24_GiB);
  EXPECT_EQ(profile->context_with_cudnn, Bytes(550000000));
  EXPECT_EQ(profile->capability(), 89);
}

TEST(DeviceProfile, WrittenProfileReadsBackTheSame) {
  for (const DeviceProfile& profile : known_profiles()) {
    const Result<DeviceProfile> again = parse_profile(to_toml(profile), "written");
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(to_toml(*again), to_toml(profile));
    EXPECT_EQ(again->id, profile.id);
    EXPECT_EQ(again->source_of("context"), profile.source_of("context"));
  }
}

TEST(DeviceProfile, MissingNumberIsNamed) {
  EXPECT_EQ(parse_profile(without(kWhole, "sm_count"), "my.toml").status().message(),
            "my.toml: 'sm_count' is missing");
  EXPECT_EQ(parse_profile(without(kWhole, "compute"), "my.toml").status().message(),
            "my.toml: 'compute_capability' is missing");
}

TEST(DeviceProfile, WrongValuesAreRefusedWithTheirLine) {
  const auto message = [](const std::string& from, const std::string& to) {
    std::string text = kWhole;
    text.replace(text.find(from), from.size(), to);
    return parse_profile(text, "my.toml").status().message();
  };
  EXPECT_EQ(message("sm_count = 128", "sm_count = -1"),
            "my.toml:5: 'sm_count' must be a number between 1 and 4096");
  EXPECT_EQ(message("\"24GiB\"", "\"24 bananas\"").substr(0, 25), "my.toml:7: 'total_memory'");
  EXPECT_EQ(message("\"8.9\"", "89"), "my.toml:4: 'compute_capability' must be text like \"9.0\"");
  EXPECT_EQ(message("sm_count = 128", "smcount = 128"), "my.toml:5: unknown number 'smcount'");
  EXPECT_EQ(message("[estimated]", "[guessed]").substr(0, 35),
            "my.toml:11: unknown key 'guessed': ");
  EXPECT_EQ(message("\"500MiB\"", "\"5MiB\"").substr(0, 20), "my.toml: context, co");
  EXPECT_EQ(message("sm_count = 128", "sm_count = = 3").substr(0, 9), "my.toml:5");
  EXPECT_EQ(message("context = \"450MiB\"", "sm_count = 4"),
            "my.toml:5: 'sm_count' is given twice");
}

TEST(DeviceProfile, FileThatIsNotThereIsOneSentence) {
  EXPECT_EQ(load_profile("no/such.toml").status().message(), "no/such.toml: cannot be opened");
}

TEST(DeviceProfile, SimulatedDriverHasTheProfilesMemory) {
  const DeviceProfile h200 = *load_profile("h200");
  const auto device = make_driver_model(driver_options(h200));
  EXPECT_EQ(device->total(), Bytes(150109880320));
  EXPECT_EQ(device->free(), Bytes(150109880320) - 703_MiB);
}

}  // namespace
}  // namespace peakline
