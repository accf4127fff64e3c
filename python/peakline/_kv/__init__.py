"""`peakline kv`: how many tokens and requests a model can serve beside its weights."""
