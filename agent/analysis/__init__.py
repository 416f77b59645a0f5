"""Facts of a kernel, read from its source. No analysis changes a file."""
