#include <peakline/replay.h>

namespace peakline {
namespace {

CategoryId born_in_forward(const Birth& birth, const Progress& now, ModuleId module, bool alive) {
  const bool reached_backward = now.backwards_begun > birth.progress.backwards_begun;
  if (reached_backward) {
    const bool before_the_model =
        birth.progress.any_module && birth.progress.forwards_in_step == 0 && module == ModuleId{};
    return before_the_model ? category::kInput : category::kActivation;
  }
  if (!alive) return category::kTemp;
  return module == ModuleId{} ? category::kOther : category::kActivation;
}

}  // namespace

CategoryId resolve_category(const Block& block, const Context& context, bool alive) {
  if (block.label != category::kUnlabelled) return block.label;
  const Birth& birth = block.birth;
  const Progress& now = context.progress();
  if (!alive && context.runs(birth.thread, birth.op_call)) return category::kWorkspace;
  // A loss that is kept until the next one replaces it lives into the next step, but no further.
  const bool kept = now.steps > birth.progress.steps + 1;
  if (kept && birth.era != Era::kOptimizer && context.multiplies_matrices(block.op)) {
    return category::kWorkspace;
  }

  switch (birth.era) {
    case Era::kForward:
      // A loss that is kept until the next one replaces it lives into the next step, but no
      // further.
      if (now.steps > birth.progress.steps + 1) return category::kOther;
      return born_in_forward(birth, now, block.module, alive);
    case Era::kRecompute:
      return context.recompute_ended(birth.recompute) ? category::kActivation : category::kTemp;
    case Era::kBackward:
      return now.backwards_ended > birth.progress.backwards_ended ? category::kGradient
                                                                  : category::kTemp;
    case Era::kOptimizer:
      return now.optimizers_ended > birth.progress.optimizers_ended ? category::kOptstate
                                                                    : category::kTemp;
  }
  return category::kOther;
}

}  // namespace peakline
