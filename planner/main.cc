// peakline-planner CUDNN_FOLDER: asks cuDNN, on a machine without a GPU, which kernels it would take. A
// process of its own, because cuDNN aborts where it misses something, and because it is given a
// cuBLASLt (beside this program) that no other program should meet.
//
// Reads a line with the GPU's properties (cuDNN's JSON), then a line per convolution; answers each
// with one line.
#include <dlfcn.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>

#include "planner/convolution.h"
#include "planner/request.h"

namespace {

using namespace peakline::planner;

// cuDNN looks for cuBLASLt by name, and finds what is already loaded under it.
void load_cublaslt() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* file : {"peakline_cublasLt_12.so", "peakline_cublasLt_13.so"}) {
    dlopen((program.parent_path() / file).c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
}

void answer_all(const ConvolutionPlanner& planner) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = parse_request(line);
    std::string text = "none not a convolution";
    if (request) {
      try {
        text = answer(planner.plan(*request));
      } catch (const Refused& refused) {
        text = answer(refused);
      }
    }
    std::cout << text << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: peakline-planner CUDNN_FOLDER\n";
    return 2;
  }
  load_cublaslt();
  std::string problem;
  const Api api = open_cudnn(argv[1], problem);
  if (!problem.empty()) {
    std::cout << "none " << problem << std::endl;
    return 1;
  }
  std::string device;
  std::getline(std::cin, device);
  try {
    const ConvolutionPlanner planner(api, device);
    std::cout << "cudnn " << api.version() << std::endl;
    answer_all(planner);
  } catch (const Refused& refused) {
    std::cout << answer(refused) << std::endl;
    return 1;
  }
  return 0;
}
