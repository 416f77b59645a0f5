"""Edits of cuTile kernels and of the host code that launches them."""
