// Fits a GPU's rates to a measured table and tells how well they predict calls that the fit has not
// seen: `fit_times TABLE.jsonl [GPU|PROFILE.toml] [-o PROFILE.toml]`. `peakline calibrate --time`
// makes such a table; docs/time.md tells what the columns are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include <peakline/measured_calls.h>

namespace {

using peakline::DeviceProfile;
using peakline::MeasuredTable;

struct Errors {
  std::vector<double> relative;
  [[nodiscard]] double at(double share) {
    std::sort(relative.begin(), relative.end());
    return relative[static_cast<std::size_t>(share * static_cast<double>(relative.size() - 1))];
  }
};

std::vector<bool> random_half(std::size_t count) {
  std::mt19937 generator(20);
  std::vector<bool> half(count);
  for (std::size_t i = 0; i < count; ++i) half[i] = (generator() & 1U) != 0;
  return half;
}

void print_errors(const MeasuredTable& table, const DeviceProfile& gpu,
                  const std::vector<bool>& fitted) {
  std::map<std::string, Errors> families;
  for (std::size_t i = 0; i < table.calls.size(); ++i) {
    if (fitted[i]) continue;
    const double off = peakline::predict(table.calls[i], gpu) / table.calls[i].us - 1;
    families[table.calls[i].family].relative.push_back(std::abs(off));
    families["all"].relative.push_back(std::abs(off));
  }
  fmt::print("{:14} {:>6} {:>8} {:>8}\n", "held out", "calls", "median", "90%");
  for (auto& [family, errors] : families) {
    fmt::print("{:14} {:6} {:7.1f}% {:7.1f}%\n", family, errors.relative.size(),
               100 * errors.at(0.5), 100 * errors.at(0.9));
  }
}

void print_rows(const MeasuredTable& table, const DeviceProfile& gpu) {
  for (const peakline::MeasuredCall& call : table.calls) {
    fmt::print("{:.2f}\t{}\n", peakline::predict(call, gpu), call.line);
  }
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.empty()) {
    fmt::print(stderr, "usage: fit_times TABLE.jsonl [GPU|PROFILE.toml] [-o OUT.toml | --rows]\n");
    return 2;
  }
  const auto table = peakline::read_measured(text_of(args[0]));
  const auto gpu = peakline::load_profile(args.size() > 1 && args[1][0] != '-' ? args[1] : "h200");
  if (!table.ok() || !gpu.ok() || table->calls.empty()) {
    fmt::print(stderr, "fit_times: {}\n",
               !table.ok() ? table.status().message()
               : !gpu.ok() ? gpu.status().message()
                           : "no call in the table is known");
    return 2;
  }
  if (args.back() == "--rows") {
    print_rows(*table, *gpu);
    return 0;
  }
  const std::vector<bool> half = random_half(table->calls.size());
  if (args.back() == "--as-is") {
    print_errors(*table, *gpu, half);
    return 0;
  }
  print_errors(*table, peakline::fit_rates(*table, *gpu, half), half);
  if (args.size() > 2 && args[args.size() - 2] == "-o") {
    std::ofstream(args.back()) << to_toml(peakline::fit_rates(*table, *gpu));
  }
  return 0;
}
