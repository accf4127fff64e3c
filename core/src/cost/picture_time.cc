// Pooling and upsampling: a thread for each place, which looks at a window of others. Counts of
// instructions are those of single kernels on an H200, over its rate of instructions.
#include "cost/rules.h"

namespace peakline::cost {
namespace {

bool channels_last(const TensorMeta& picture) {
  return picture.sizes.size() == 4 && picture.strides[1] == 1 && picture.sizes[1] > 1;
}

double count_of(const TensorMeta& tensor) { return static_cast<double>(tensor.numel()); }

// The window's places; the list may have one number for all of `dims`.
double taps_of(const std::vector<std::int64_t>& window, double dims) {
  if (window.size() == 1) return std::pow(static_cast<double>(window[0]), dims);
  double taps = 1;
  for (const std::int64_t size : window) taps *= static_cast<double>(size);
  return taps;
}

// The places of one picture.
double places_of(const TensorMeta& picture, double dims) {
  double places = 1;
  const std::size_t rank = picture.sizes.size();
  for (std::size_t i = rank - std::min(rank, static_cast<std::size_t>(dims)); i < rank; ++i) {
    places *= static_cast<double>(picture.sizes[i]);
  }
  return places;
}

void add_places(const CallView& view, double instructions, OpTimer& op) {
  const double bytes = bytes_read(view) + bytes_written(view);
  op.add({.compute_us = op.machine().instructions_us(instructions),
          .memory_us = op.machine().memory_us(bytes)},
         bytes);
}

bool pooling(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  const bool backward = name.ends_with("_backward");
  const bool largest = name.starts_with("max_pool");
  if (!largest && !name.starts_with("avg_pool")) return false;
  const double dims = name.find("3d") != name.npos ? 3 : name.find("1d") != name.npos ? 1 : 2;
  const TensorMeta& input = view.args.tensor(backward ? 1 : 0);
  // A window may be larger than the picture, which then ends it.
  const double taps =
      std::min(taps_of(view.args.integers(backward ? 2 : 1), dims), places_of(input, dims));
  const bool last = channels_last(input);
  if (backward) {
    // Every place of the input looks for the windows that it is in.
    const double work = !largest ? 530 : last ? 60 + 25 * taps : 280 + 8 * taps;
    add_places(view, count_of(input) * work, op);
  } else {
    const double work = largest ? 240 + 25 * taps : (250 + 25 * taps) * (last ? 2 : 1);
    add_places(view, count_of(view.args.out(0)) * work, op);
  }
  return true;
}

bool upsampling(const CallView& view, OpTimer& op) {
  const std::string_view name = view.name;
  const bool linear = name.starts_with("upsample_bilinear") || name.starts_with("_upsample_bilin");
  const bool nearest =
      name.starts_with("upsample_nearest") || name.starts_with("_upsample_nearest");
  if (!linear && !nearest) return false;
  const bool backward = name.ends_with("_backward");
  const TensorMeta& large = backward ? view.args.tensor(0) : view.args.out(0);
  const bool last = channels_last(view.args.tensor(0));
  const double places = count_of(large);
  if (nearest) {
    const double work = backward ? (last ? 100 : 48) : (last ? 183 : 84);
    add_places(view, places * work, op);
    return true;
  }
  if (backward) {
    // Four atomic additions for each place; those of 16 bits try until nobody was faster.
    const bool half = is_reduced_float(large.dtype);
    add_places(view, places * (half ? (last ? 356 : 588) : 255), op);
    return true;
  }
  // Planes are walked one after another by the thread of a place.
  constexpr double kPlaneUs = 0.38;
  const double planes =
      last || large.sizes.size() < 2 ? 0 : static_cast<double>(large.sizes[0] * large.sizes[1]);
  const double bytes = bytes_read(view) + bytes_written(view);
  op.add({.compute_us = std::max(op.machine().instructions_us(places * (last ? 262 : 237)),
                                 planes * kPlaneUs),
          .memory_us = op.machine().memory_us(bytes)},
         bytes);
  return true;
}

}  // namespace

bool picture_rules(const CallView& view, OpTimer& op) {
  return pooling(view, op) || upsampling(view, op);
}

}  // namespace peakline::cost
