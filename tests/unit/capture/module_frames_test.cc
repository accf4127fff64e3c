#include "capture/module_frames.h"

#include <gtest/gtest.h>

namespace peakline::capture {
namespace {

constexpr ModuleId kNet{1};
constexpr ModuleId kLayer{2};

TEST(ModuleFrames, EqualChainsAreOneFrame) {
  ModuleFrames frames;
  const FrameId net = frames.child(0, kNet);
  const FrameId layer = frames.child(net, kLayer);
  EXPECT_EQ(frames.child(0, kNet), net);
  EXPECT_EQ(frames.child(net, kLayer), layer);
  EXPECT_NE(frames.child(0, kLayer), layer);
  std::vector<ModuleId> chain;
  frames.chain(layer, chain);
  EXPECT_EQ(chain, (std::vector<ModuleId>{kNet, kLayer}));
  frames.chain(0, chain);
  EXPECT_TRUE(chain.empty());
}

TEST(ModuleFrames, ANodeBelongsToTheModuleThatWasRunningWhenItWasMade) {
  ModuleFrames frames;
  const FrameId net = frames.child(0, kNet);
  const FrameId layer = frames.child(net, kLayer);
  frames.note(1, 10, net);    // nodes 10, 11
  frames.note(1, 12, layer);  // nodes 12 to 14
  frames.note(1, 15, net);    // node 15
  frames.note(1, 16, 0);
  EXPECT_EQ(frames.find(1, 9), 0U);
  EXPECT_EQ(frames.find(1, 11), net);
  EXPECT_EQ(frames.find(1, 12), layer);
  EXPECT_EQ(frames.find(1, 14), layer);
  EXPECT_EQ(frames.find(1, 15), net);
  EXPECT_EQ(frames.find(1, 100), 0U);
  EXPECT_EQ(frames.find(2, 12), 0U);
}

TEST(ModuleFrames, AModuleThatMadeNoNodesOwnsNone) {
  ModuleFrames frames;
  const FrameId net = frames.child(0, kNet);
  const FrameId layer = frames.child(net, kLayer);
  frames.note(1, 10, net);
  frames.note(1, 10, layer);
  frames.note(1, 10, net);
  EXPECT_EQ(frames.find(1, 10), net);
}

}  // namespace
}  // namespace peakline::capture
