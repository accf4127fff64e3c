#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "command.h"
#include "output.h"

namespace peakline::cli {
namespace {

// $PEAKLINE_PYTHON, else the python beside this program, else python3.
std::string find_python() {
  if (const char* chosen = std::getenv("PEAKLINE_PYTHON"); chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length > 0) {
    const std::string path(self, static_cast<std::size_t>(length));
    std::string beside = path.substr(0, path.rfind('/') + 1) + "python";
    if (access(beside.c_str(), X_OK) == 0) return beside;
  }
  return "python3";
}

}  // namespace

int launch_python(const char* module, int argc, char** argv) {
  std::string python = find_python();
  std::string dash_m = "-m";
  std::string name = std::string("peakline.") + module;
  std::vector<char*> args{python.data(), dash_m.data(), name.data()};
  args.insert(args.end(), argv, argv + argc);
  args.push_back(nullptr);
  execvp(python.c_str(), args.data());
  complain("cannot start " + python + ": " + std::strerror(errno) +
           "; set PEAKLINE_PYTHON to the Python that has torch and peakline");
  return kFailed;
}

}  // namespace peakline::cli
