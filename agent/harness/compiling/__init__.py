"""Compiling kernels where nothing runs them: evidence, and which candidates are duplicates."""
