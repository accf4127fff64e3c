"""`peakline estimate`: an unmodified training script on a GPU that is not there."""
