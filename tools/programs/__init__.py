"""Other people's programs, and how `peakline estimate` is shown on them."""
