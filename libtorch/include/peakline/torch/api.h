// What the library peakline::torch exports.
#pragma once

#define PEAKLINE_TORCH_API __attribute__((visibility("default")))
