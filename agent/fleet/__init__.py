"""Many kernels on many GPUs: each run is a task of Ray's, and what comes of it comes home."""
