"""Models of Hugging Face's that are given by their configuration alone: no script, no weights."""
