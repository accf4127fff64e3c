"""`peakline fit`: the largest value of a script's argument that fits, found by trying."""
