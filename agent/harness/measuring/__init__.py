"""Asking the frozen tests which of two checkouts is faster, and by how much."""
