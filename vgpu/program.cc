// What an op allocates, and in which order: asked once per op and shapes.
#include "vgpu/shape_builder.h"

namespace peakline::vgpu {
namespace {

void outputs_in_order(ShapeEntry& entry) {
  for (std::size_t i = 0; i < entry.fresh.size(); ++i) {
    Step step;
    step.index = static_cast<int>(i);
    step.bytes = Bytes(static_cast<std::int64_t>(entry.fresh[i]));
    entry.program.push_back(step);
  }
}

}  // namespace

void add_program(const Call&, Engine&, ShapeEntry& entry) { outputs_in_order(entry); }

}  // namespace peakline::vgpu
