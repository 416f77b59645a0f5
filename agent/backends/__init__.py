"""The kernel languages."""

from __future__ import annotations

from agent.backends.base import Backend
from agent.backends.cutile import CuTileBackend
from agent.backends.triton import TritonBackend
from agent.syntax import Source

BACKENDS: dict[str, Backend] = {b.name: b for b in (CuTileBackend(), TritonBackend())}


def detect(source: Source) -> Backend | None:
    """The language of a file's kernels: of those it launches, where it holds two languages."""
    found = [(b, kernels) for b in BACKENDS.values() if (kernels := b.kernels(source))]
    if not found:
        return None
    backend, _ = max(found, key=lambda item: sum(bool(k.launched_from) for k in item[1]))
    return backend
