"""tile-agent: makes cuTile and Triton kernels faster, one believed optimization at a time."""

__version__ = "0.1.0"
