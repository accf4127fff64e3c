// Convolutions of a picture per channel.
#pragma once

#include <peakline/dtype.h>

#include "cost/machine.h"

namespace peakline::cost {

struct Depthwise {
  double inputs = 0;         // elements
  double results = 0;        // elements
  double channels = 0;       // of the results
  double taps = 1;           // places of the window
  double bytes = 0;          // of input, weight and result
  double picture_bytes = 0;  // of input and result: what is turned to another layout
  DType dtype = DType::kFloat32;
  bool own = false;  // torch's own kernels, not cuDNN's
  bool strided = false;
  bool channels_last = false;
};

void add_depthwise_forward(const Depthwise& d, OpTimer& op);
void add_depthwise_input(const Depthwise& d, OpTimer& op);   // the gradient of the input
void add_depthwise_weight(const Depthwise& d, OpTimer& op);  // of the weight

}  // namespace peakline::cost
