"""What this peakline was built for; written by the build."""

torch: str
