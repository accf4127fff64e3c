// Sees each backward begin and end, through torch's own way to put another engine in its place.
#pragma once

namespace peakline {

class BackwardWatch {
 public:
  // Throws one sentence where the engine is not libtorch's own: in a Python process.
  static void check();
  static void install();
  static void remove();
};

}  // namespace peakline
