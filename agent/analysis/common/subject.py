"""What an optimization is asked about: the file, the machine, its parameters; and a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.analysis.common.kernels import KernelClass
from agent.launches import ObservedLaunch
from agent.syntax import Source

Params = Mapping[str, Any]
"""An optimization's parameters: JSON values only, so that the journal can hold them."""


class NotApplicable(Exception):
    """The optimization does not apply; the message says why in one line, with the numbers."""


@dataclass(frozen=True)
class Hardware:
    """What a precondition may ask of the machine. `sm` is the compute capability times ten.

    `sm` is 0 without a GPU: nothing is gated then, because nothing runs on one.
    """

    sm: int = 0
    interpreted: bool = False
    """Triton's CPU interpreter runs the kernel, not a GPU."""


@dataclass(frozen=True)
class Subject:
    """The kernel file that an optimization is asked to change."""

    source: Source
    kernel_class: KernelClass
    hardware: Hardware
    launches: tuple[ObservedLaunch, ...] = ()
    """What perf tests launch of it; empty where nobody looked. They choose what is worth trying,
    and never what is right: a rewrite holds for every input."""
    elsewhere: frozenset[str] = frozenset()
    """The kernels that other files launch, too, where that is known: what those hand them has to
    do."""
