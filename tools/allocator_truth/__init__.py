"""What tools/record_allocator_truth.py runs on a GPU, one file per kind of run."""
