// peakline for C++ programs that train with libtorch. Include it after <torch/torch.h> and before your
// own modules.
#pragma once

#include <peakline/torch/module_call.h>
#include <peakline/torch/tracker.h>
#include <peakline/torch/virtual_gpu.h>
