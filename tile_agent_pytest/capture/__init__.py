"""Records the calls of a command, in any Python process of it, that launch kernels of one file."""
