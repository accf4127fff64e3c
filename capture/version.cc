namespace peakline::capture {}
