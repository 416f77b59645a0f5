"""The checks, a family a file."""
