"""Edits of Triton kernels and of the host code that launches them."""
