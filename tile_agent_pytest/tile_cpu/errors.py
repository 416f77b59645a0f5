"""What a kernel can do wrong that a GPU would not report."""

from __future__ import annotations


class TileCpuError(Exception):
    """Anything that only the CPU execution reports."""


class UnsupportedVersion(TileCpuError):
    """cuda-tile is missing, or its dispatch hook is not the one we know."""


class UnsupportedOperation(TileCpuError):
    """The kernel is fine, but the CPU execution lacks an operation that it uses."""


class UndefinedAccess(TileCpuError):
    """A memory access that is undefined behavior on a GPU."""


class UninitializedRead(TileCpuError):
    """A kernel read memory that nobody had written."""
