#include <peakline/replay.h>

namespace peakline {
namespace {

CategoryId born_in_forward(const Block& block, const Context& context, bool alive) {
  const Birth& birth = block.birth;
  const Progress& now = context.progress();
  const bool in_module = block.module != ModuleId{};
  // Where no module was ever seen (imports), nothing tells a forward from anything else.
  const bool cut_off = now.any_module && now.out_of_memory > birth.progress.out_of_memory;
  const bool kept = now.backwards_begun > birth.progress.backwards_begun || cut_off;
  if (kept) {
    // A checkpoint that is read and kept. (A function of the program's own may allocate its result
    // itself; that one's step is its last.)
    const bool outlived_its_step = now.steps > birth.progress.steps;
    if (outlived_its_step && !in_module && context.only_allocates(block.op)) {
      return category::kOther;
    }
    const bool before_the_model =
        birth.progress.any_module && birth.progress.forwards_in_step == 0 && !in_module;
    return before_the_model ? category::kInput : category::kActivation;
  }
  if (alive) return in_module ? category::kActivation : category::kOther;
  // Without a backward (evaluation, inference) modules hand results on to each other.
  const bool outlived_its_call =
      birth.module_call && !context.runs_module(birth.thread, *birth.module_call);
  return outlived_its_call ? category::kActivation : category::kTemp;
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
      return kept ? category::kOther : born_in_forward(block, context, alive);
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
