#include "ledger/growth.h"

#include <algorithm>
#include <utility>

namespace peakline {
namespace {

// What training is made of, and says so.
bool is_expected(const Dictionary& dictionary, CategoryId label) {
  const CategoryId top = dictionary.top_level(label);
  return top == category::kParameter || top == category::kBuffer || top == category::kGradient ||
         top == category::kOptstate;
}

Origin origin_of(const Dictionary& dictionary, const Block& block) {
  Origin origin{block.device, line_place(dictionary, block.birth.call), OpId{}, ModuleId{}};
  if (origin.place.line == LineId{}) {
    origin.op = block.op;
    origin.module = block.module;
  }
  return origin;
}

}  // namespace

std::map<Origin, GrowthPass::Kept> GrowthPass::kept_by_origin(const Now& now) {
  std::map<Origin, Kept> all;
  const std::uint32_t done = now.context.progress().steps;
  now.ledger.for_each_live([&](const Block& block) {
    if (is_expected(now.dictionary, block.label)) return;
    Kept& kept = all[origin_of(now.dictionary, block)];
    if (block.birth.progress.steps + 1 >= done) {
      ++kept.fresh;
      return;
    }
    kept.bytes += block.bytes;
    ++kept.blocks;
  });
  return all;
}

void GrowthPass::follow(Course& course, const Kept& kept, std::uint32_t step) {
  const Kept before = course.now;
  course.now = kept;
  if (kept.bytes < before.bytes) course.rises = 0;
  // Larger, but no more of them: a larger one stands in the place of the last, as a prefetched batch does.
  if (kept.bytes <= before.bytes || kept.blocks <= before.blocks) return;
  if (course.rises++ == 0) {
    course.first_rise = step;
    course.first = kept;
  }
  course.last_rise = step;
}

void GrowthPass::on_step_end(const Now& now) {
  work_ += now.ledger.live_count();
  if (work_ > kMostWork) return;
  step_ = now.context.progress().steps;
  std::map<Origin, Kept> kept = kept_by_origin(now);
  std::erase_if(courses_, [&](const auto& course) { return !kept.contains(course.first); });
  for (const auto& [origin, found] : kept) follow(courses_[origin], found, step_);
}

// What rises every so many steps is growing until it is overdue.
bool GrowthPass::grows(const Course& course) const noexcept {
  const bool is_short = step_ <= kShortRun;
  if (course.rises < (is_short ? kRisesOfShortRun : kRises)) return false;
  if (is_short && course.now.fresh == 0) return false;
  const std::uint32_t gap = (course.last_rise - course.first_rise) / (course.rises - 1);
  return step_ - course.last_rise < std::max<std::uint32_t>(gap, 1);
}

bool GrowthPass::is_light(const Kept& kept) const noexcept {
  return step_ <= kShortRun && kept.bytes < kWeighs;
}

bool GrowthPass::suspects(DeviceId device) const noexcept {
  return std::ranges::any_of(courses_, [&](const auto& entry) {
    const auto& [origin, course] = entry;
    if (origin.device != device) return false;
    if (grows(course)) return is_light(kept_by_rises(course));
    return course.rises == 1 && course.last_rise == step_ && course.now.fresh > 0;
  });
}

void GrowthPass::finish(const Now& now) {
  std::map<Origin, std::vector<std::pair<std::uint64_t, Address>>> alive;
  for (const auto& [origin, course] : courses_) {
    if (grows(course)) alive[origin] = {};
  }
  if (alive.empty()) return;
  now.ledger.for_each_live([&](const Block& block) {
    if (is_expected(now.dictionary, block.label)) return;
    const auto found = alive.find(origin_of(now.dictionary, block));
    if (found != alive.end()) found->second.emplace_back(block.birth.event, block.address);
  });
  for (auto& [origin, blocks] : alive) {
    const std::size_t count = std::min(kExamples, blocks.size());
    std::partial_sort(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(count),
                      blocks.end());
    for (std::size_t i = 0; i < count; ++i) examples_[origin].push_back(blocks[i].second);
  }
}

// The first rise also has what comes only once, a library's workspace for one. So it counts for as much
// as the others.
GrowthPass::Kept GrowthPass::kept_by_rises(const Course& course) noexcept {
  const std::uint32_t later = course.last_rise - course.first_rise;
  const Bytes bytes = course.now.bytes - course.first.bytes;
  const std::uint64_t blocks = course.now.blocks - std::min(course.now.blocks, course.first.blocks);
  const auto with_the_first = [later](auto sum) { return sum + sum / later; };
  return {std::min(course.now.bytes, Bytes(with_the_first(bytes.raw()))), with_the_first(blocks),
          0};
}

std::vector<Growth> GrowthPass::growing() const {
  std::vector<Growth> all;
  for (const auto& [origin, course] : courses_) {
    if (!grows(course)) continue;
    const Kept kept = kept_by_rises(course);
    if (is_light(kept)) continue;
    const auto examples = examples_.find(origin);
    all.push_back({origin, kept.bytes, kept.blocks, course.first_rise, course.last_rise,
                   examples == examples_.end() ? std::vector<Address>{} : examples->second});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Growth& a, const Growth& b) { return a.kept > b.kept; });
  return all;
}

}  // namespace peakline
