"""The optimizations of cuTile kernels, one a file."""
