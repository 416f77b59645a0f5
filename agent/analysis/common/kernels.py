"""What the rest of tile-agent knows of a kernel: its interface, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KernelClass(StrEnum):
    """What bounds a kernel on the roofline; it only orders the playbook."""

    MEMORY = "memory-bound"
    """Fewer than 10 floating-point operations for each byte of device memory."""
    BALANCED = "balanced"
    """10 to 50 operations a byte."""
    COMPUTE = "compute-bound"
    """More than 50 operations a byte."""


@dataclass(frozen=True)
class KernelFunction:
    """A kernel in the file."""

    name: str
    line: int
    parameters: tuple[str, ...]
    """All of them, in order."""
    constants: tuple[str, ...]
    """Those fixed at compile time: `tl.constexpr`, `ct.Constant`."""
    launched_from: tuple[str, ...]
    """Functions of the file that launch it, or else hand it on, in order; empty for a helper."""
    in_sight: bool = True
    """Whether these launch it; else they name it, and who is given it may."""
    called_by: tuple[str, ...] = ()
    """Other kernels of the file that mention it: call it, or hand it to a scan."""


@dataclass(frozen=True)
class Classification:
    """An estimate of the arithmetic intensity from the source alone, and what it rests on."""

    kernel_class: KernelClass
    flop_per_byte: float
    evidence: tuple[str, ...]


def class_of(flop_per_byte: float) -> KernelClass:
    """The class of an arithmetic intensity: below 10 memory, to 50 balanced, above compute."""
    if flop_per_byte < 10:
        return KernelClass.MEMORY
    return KernelClass.BALANCED if flop_per_byte <= 50 else KernelClass.COMPUTE
