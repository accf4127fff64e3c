#include <algorithm>
#include <cmath>

#include <peakline/checkpoint_plan.h>

namespace peakline {
namespace {

using Row = std::vector<double>;

// 1, x - x0, and what lies beyond each inner break: pieces that are joined by construction.
Row basis(double x, double first, const Row& inner) {
  Row row{1, x - first};
  for (const double at : inner) row.push_back(std::max(0.0, x - at));
  return row;
}

// Gauss with pivots, on few unknowns. Directions that the points do not tell stay zero.
Row solve(std::vector<Row> a, Row b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i + 1; r < n; ++r) {
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    if (std::abs(a[i][i]) < 1e-13) {
      a[i][i] = 1e30;
      continue;
    }
    for (std::size_t r = i + 1; r < n; ++r) {
      const double factor = a[r][i] / a[i][i];
      for (std::size_t c = i; c < n; ++c) a[r][c] -= factor * a[i][c];
      b[r] -= factor * b[i];
    }
  }
  Row x(n);
  for (std::size_t i = n; i-- > 0;) {
    double rest = b[i];
    for (std::size_t c = i + 1; c < n; ++c) rest -= a[i][c] * x[c];
    x[i] = rest / a[i][i];
  }
  return x;
}

class Curve {
 public:
  Curve(const Row& x, const Row& y) : x_(x), y_(y) {}

  [[nodiscard]] Row coefficients(const Row& inner) const {
    const std::size_t n = inner.size() + 2;
    std::vector<Row> a(n, Row(n));
    Row b(n);
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const Row row = basis(x_[i], x_.front(), inner);
      for (std::size_t r = 0; r < n; ++r) {
        b[r] += row[r] * y_[i];
        for (std::size_t c = 0; c < n; ++c) a[r][c] += row[r] * row[c];
      }
    }
    return solve(std::move(a), std::move(b));
  }

  [[nodiscard]] double distance(const Row& inner) const {
    const Row k = coefficients(inner);
    double sum = 0;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const Row row = basis(x_[i], x_.front(), inner);
      double at = 0;
      for (std::size_t c = 0; c < k.size(); ++c) at += k[c] * row[c];
      sum += (at - y_[i]) * (at - y_[i]);
    }
    return sum;
  }

 private:
  const Row& x_;
  const Row& y_;
};

// Moves one break between its neighbours to where the distance is least: a coarse look, then closer.
double place_break(const Curve& curve, Row inner, std::size_t which, double low, double high) {
  constexpr int kLooks = 24;
  double best = inner[which];
  double least = curve.distance(inner);
  for (int closer = 0; closer < 6; ++closer) {
    const double step = (high - low) / kLooks;
    for (int i = 1; i < kLooks; ++i) {
      inner[which] = low + i * step;
      if (const double now = curve.distance(inner); now < least) {
        least = now;
        best = inner[which];
      }
    }
    low = std::max(low, best - step);
    high = std::min(high, best + step);
  }
  return best;
}

}  // namespace

Result<Pieces> fit_pieces(const std::vector<double>& x, const std::vector<double>& y, int count) {
  if (x.size() != y.size() || x.size() < 2 || count < 1) {
    return invalid_input("a curve needs two points or more, and one piece or more");
  }
  if (!std::is_sorted(x.begin(), x.end()) || !(x.back() > x.front())) {
    return invalid_input("the points of a curve must ascend");
  }
  const Curve curve(x, y);
  const double first = x.front();
  const double last = x.back();
  Row inner;
  for (int i = 1; i < count; ++i) inner.push_back(first + (last - first) * i / count);
  for (int round = 0; round < (count > 2 ? 8 : 1); ++round) {
    for (std::size_t i = 0; i < inner.size(); ++i) {
      const double low = i == 0 ? first : inner[i - 1];
      const double high = i + 1 == inner.size() ? last : inner[i + 1];
      inner[i] = place_break(curve, inner, i, low, high);
    }
  }
  const Row k = curve.coefficients(inner);
  Pieces pieces;
  pieces.breaks.push_back(first);
  pieces.breaks.insert(pieces.breaks.end(), inner.begin(), inner.end());
  pieces.breaks.push_back(last);
  double slope = 0;
  double height = k[0];
  for (std::size_t i = 0; i + 1 < k.size(); ++i) {
    slope += k[i + 1];
    pieces.slopes.push_back(slope);
    pieces.intercepts.push_back(height - slope * pieces.breaks[i]);
    height += slope * (pieces.breaks[i + 1] - pieces.breaks[i]);
  }
  return pieces;
}

}  // namespace peakline
