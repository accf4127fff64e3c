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

// As `python -m MODULE ARGS…`, but what keeps peakline from being imported is one sentence, and so is
// Ctrl-C. While torch is imported that ends the process at once: libraries catch what is raised there.
constexpr const char* kProgram = R"(
import os, runpy, signal, sys
module = sys.argv.pop(1)
def interrupted(*_):
    os.write(2, b'peakline: interrupted\n')
    os._exit(130)
heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if heeded:
    signal.signal(signal.SIGINT, interrupted)
try:
    import peakline
except ModuleNotFoundError as error:
    if error.name != 'peakline':
        raise
    sys.exit(f'peakline: {sys.executable} has no peakline; '
             'set PEAKLINE_PYTHON to the Python that has torch and peakline')
except ImportError as error:
    sys.exit(f'peakline: {error}')
if heeded:
    signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    runpy.run_module(module, run_name='__main__', alter_sys=True)
except KeyboardInterrupt:
    print('peakline: interrupted', file=sys.stderr)
    sys.exit(130)
)";

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
  std::string dash_c = "-c";
  std::string program = kProgram;
  std::string name = std::string("peakline.") + module;
  std::vector<char*> args{python.data(), dash_c.data(), program.data(), name.data()};
  args.insert(args.end(), argv, argv + argc);
  args.push_back(nullptr);
  execvp(python.c_str(), args.data());
  complain("cannot start " + python + ": " + std::strerror(errno) +
           "; set PEAKLINE_PYTHON to the Python that has torch and peakline");
  return kFailed;
}

}  // namespace peakline::cli
