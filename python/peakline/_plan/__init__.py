"""`peakline plan`: what to change so that training fits, what it costs, and proof."""
