"""Records, in any Python process of a command, all launches, and what kernels take of the GPU."""
