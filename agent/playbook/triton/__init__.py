"""The optimizations of Triton kernels, one a file."""
