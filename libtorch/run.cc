#include "libtorch/run.h"

#include <ATen/Context.h>
#include <torch/version.h>

#include <cctype>
#include <fstream>

#include "libtorch/backward_watch.h"
#include "libtorch/errors.h"
#include "peakline/torch/module_call.h"

namespace peakline {

std::atomic<bool> torch_detail::g_tracking{false};

namespace {

std::mutex g_mutex;
std::shared_ptr<TorchRun> g_run;  // under g_mutex

// Arguments as they were typed, with spaces between them.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string words((std::istreambuf_iterator<char>(file)), {});
  while (!words.empty() && words.back() == '\0') words.pop_back();
  for (char& letter : words) letter = letter == '\0' ? ' ' : letter;
  return words;
}

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace

std::string type_name(const torch::nn::Module& module) {
  std::string name = module.name();
  const std::size_t arguments = name.find('<');  // of a template
  const std::size_t scope = name.rfind("::", arguments);
  if (scope != std::string::npos) name = name.substr(scope + 2);
  if (name.ends_with("Impl") && name.size() > 4) name.resize(name.size() - 4);
  return name;
}

std::shared_ptr<TorchRun> TorchRun::current() {
  const std::lock_guard guard(g_mutex);
  return g_run;
}

std::shared_ptr<TorchRun> TorchRun::start(const RunOptions& options) {
  TORCH_CHECK(
      current() == nullptr,
      "peakline records this process already, and one recording cannot contain another: stop "
      "the first Tracker or VirtualGpu before making the next");
  BackwardWatch::check();
  std::shared_ptr<TorchRun> run(new TorchRun(options));
  run->spool_ = value_or_throw(capture::Spool::open(options.path));
  capture::SessionOptions session;
  session.ops = options.ops && !options.is_virtual;
  session.cuda = !options.is_virtual && at::hasCUDA();
  session.cuda_trace = session.cuda;
  session.repeats = !options.is_virtual;
  session.info = {{"torch", TORCH_VERSION},
                  {"peakline", PEAKLINE_VERSION},
                  {"producer", "track"},
                  {"command", command_line()}};
  for (const auto& [key, value] : options.info) session.info[key] = value;
  run->session_ = value_or_throw(capture::Session::start(*run->spool_, session));
  return run;
}

TorchRun::~TorchRun() { session_.reset(); }

void TorchRun::add(const torch::nn::Module& model) {
  const std::lock_guard guard(mutex_);
  if (find(model) == nullptr) add_tree(model, new_root(type_name(model)), ModuleId{}, "");
  if (session_->recording()) session_->labels().label_added();
}

void TorchRun::add(const torch::optim::Optimizer& optimizer) {
  const std::lock_guard guard(mutex_);
  add_parameters(optimizer);
  given_.push_back(&optimizer);
}

void TorchRun::watch() {
  const std::lock_guard guard(mutex_);
  capture::Labels& labels = session_->labels();
  labels.adopt_all();
  for (const torch::optim::Optimizer* optimizer : given_) labels.adopt_state(state_of(*optimizer));
  labels.label_alive();
  for (const torch::optim::Optimizer* optimizer : given_) {
    labels.label_state([optimizer] { return state_of(*optimizer); });
  }
  given_.clear();
  throw_if_error(session_->watch());
  if (!is_virtual_ && at::hasCUDA()) session_->cuda_started();
  BackwardWatch::install();
  const std::lock_guard lock(g_mutex);
  g_run = shared_from_this();
  torch_detail::g_tracking.store(true, std::memory_order_release);
}

void TorchRun::stop() {
  const std::lock_guard guard(mutex_);
  if (stopped_) return;
  stopped_ = true;
  {
    const std::lock_guard lock(g_mutex);
    torch_detail::g_tracking.store(false, std::memory_order_release);
    if (g_run.get() == this) g_run.reset();
  }
  BackwardWatch::remove();
  if (session_->recording()) session_->labels().label_alive();  // what the last step replaced
  const Status status = session_->stop();
  // A program that was tracked goes on; one on a virtual GPU has nothing to save beside the answer.
  if (is_virtual_) throw_if_error(status);
  if (!status.ok()) ending_fault_ = status.message();
  tell_of_fault();
}

std::string TorchRun::known_fault() const {
  const std::string_view fault = session_->fault();
  return fault.empty() ? ending_fault_ : std::string(fault);
}

void TorchRun::tell_of_fault() {
  if (told_ || known_fault().empty()) return;
  told_ = true;
  TORCH_WARN("peakline has turned tracking off, and the run goes on without it: ", known_fault());
}

template <class Note>
void TorchRun::undisturbing(Note&& note) noexcept {
  try {
    const std::lock_guard guard(mutex_);
    if (stopped_) return;
    try {
      if (session_->recording()) note();
    } catch (const std::exception& error) {
      session_->fail(error.what());
    } catch (...) {
      session_->fail("an unknown error");
    }
    tell_of_fault();
  } catch (...) {  // whoever was told
  }
}

const TorchRun::Known* TorchRun::find(const torch::nn::Module& module) const {
  const auto found = modules_.find(&module);
  if (found == modules_.end()) return nullptr;
  const Known& known = found->second;
  return known.shared && known.alive.expired() ? nullptr : &known;
}

std::string TorchRun::new_root(const std::string& type) {
  const int count = ++roots_[type];
  return count == 1 ? type : type + "#" + std::to_string(count);
}

void TorchRun::add_tree(const torch::nn::Module& module, const std::string& path, ModuleId parent,
                        const std::string& below_root) {
  if (find(module) != nullptr) return;  // shared: its first name stays
  const ModuleId id = session_->add_module(path, type_name(module), parent);
  const std::weak_ptr<const torch::nn::Module> alive = module.weak_from_this();
  modules_[&module] = {alive, !alive.expired(), id, path};
  add_tensors(module, id, below_root);
  for (const auto& child : module.named_children()) {
    add_tree(*child.value(), path + "." + child.key(), id, join(below_root, child.key()));
  }
}

void TorchRun::add_tensors(const torch::nn::Module& module, ModuleId id,
                           const std::string& below_root) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    session_->add_tensor(parameter.value(), category::kParameter, id,
                         join(below_root, parameter.key()));
    steps_.sample(parameter.value());
  }
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    session_->add_tensor(buffer.value(), category::kBuffer, id, join(below_root, buffer.key()));
  }
}

// Those that belong to no module that has been met.
void TorchRun::add_parameters(const torch::optim::Optimizer& optimizer) {
  std::size_t count = 0;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    count += group.params().size();
  }
  std::size_t& met = met_[&optimizer];
  if (met == count) return;
  met = count;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (session_->labels().knows(parameter)) continue;
      session_->add_tensor(parameter, category::kParameter, ModuleId{}, "");
    }
  }
}

ModuleId TorchRun::identify(const torch::nn::Module& module) noexcept {
  ModuleId id;
  undisturbing([&] {
    const Known* known = find(module);
    id = known != nullptr ? known->id : meet(module);
  });
  return id;
}

ModuleId TorchRun::meet(const torch::nn::Module& module) {
  modules_.erase(&module);
  const ModuleId around = session_->running_module();
  const std::string type = type_name(module);
  std::string path = around == ModuleId{} ? new_root(type) : type;
  for (const auto& [address, known] : modules_) {
    if (around != ModuleId{} && known.id == around) path = known.path + "." + type;
  }
  add_tree(module, path, around, "");
  session_->labels().label_added();
  return modules_.at(&module).id;
}

void TorchRun::note_inputs(const std::vector<at::Tensor>& inputs) noexcept {
  undisturbing([&] { session_->labels().label_inputs(inputs); });
}

void TorchRun::backward_begins() noexcept {
  undisturbing([&] {
    if (backward_depth_++ == 0 && steps_.changed_since_backward()) {
      session_->step_end();
      steps_.count();
    }
    session_->phase(Phase::kBackward, true);
  });
}

void TorchRun::backward_ended() noexcept {
  undisturbing([&] {
    if (backward_depth_ == 0) return;
    session_->labels().label_alive_in_step();
    session_->phase(Phase::kBackward, false);
    if (--backward_depth_ == 0) steps_.backward_ended();
  });
}

void TorchRun::step_begins(const torch::optim::Optimizer& optimizer) noexcept {
  undisturbing([&] {
    add_parameters(optimizer);
    session_->labels().label_alive_in_step();
    session_->phase(Phase::kOptimizer, true);
  });
}

void TorchRun::step_ended(const torch::optim::Optimizer& optimizer, bool completed) noexcept {
  undisturbing([&] {
    session_->labels().label_state([&optimizer] { return state_of(optimizer); });
    session_->phase(Phase::kOptimizer, false);
    if (!completed || !steps_.optimizer_stepped(&optimizer)) return;
    session_->step_end();
    steps_.count();
  });
}

void TorchRun::closure(bool begins) noexcept {
  undisturbing([&] { session_->phase(Phase::kForward, begins); });
}

void TorchRun::note(const std::string& key, const std::string& value) noexcept {
  undisturbing([&] { session_->info(key, value); });
}

std::string TorchRun::fault() const {
  const std::lock_guard guard(mutex_);
  return known_fault();
}

Summary TorchRun::summary() const {
  const std::lock_guard guard(mutex_);
  if (!stopped_) throw_if_error(session_->sync());
  TraceReader reader = value_or_throw(TraceReader::open(value_or_throw(spool_->source())));
  return value_or_throw(summarize(reader));
}

void TorchRun::save(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  if (!stopped_) throw_if_error(session_->sync());
  throw_if_error(spool_->copy_to(path));
}

}  // namespace peakline
