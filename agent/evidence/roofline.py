"""Where a timed launch stands under the roofs of its GPU."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent.evidence.model import TensorArgument, TimedWork
from agent.evidence.peaks import Peaks
from agent.evidence.roof import MeasuredRoof, NotMeasured
from agent.least_time import LeastTime, LeastTimes

MATRICES = 3
"""Of a product: two operands and the result."""
_REAL = ("float", "bfloat", "complex")
"""How the names of types begin that tell no kernel where to read."""


@dataclass(frozen=True)
class Position:
    """One timing beside the least that its GPU needs for the same work."""

    latency_ms: float
    memory_ms: float
    """The least for its bytes: each tensor once, or read and written, at the peak bandwidth."""
    compute_ms: float
    """The least for its operations, at the peak of the tensor cores; 0 where not known."""
    tensor_bytes: int
    """Those of what is read and written count twice."""
    flop: float
    """Floating-point operations of its matrix product; 0 where not known."""
    asked_bytes: float
    """What the tiles of its product ask for together, from caches or not; 0 where not known."""

    @property
    def gb_s(self) -> float:
        """Bytes that it must move over its latency, in 10^9 a second."""
        return self.tensor_bytes / self.latency_ms / 1e6

    @property
    def tflops(self) -> float:
        """Operations that it must do over its latency, in 10^12 a second."""
        return self.flop / self.latency_ms / 1e9

    @property
    def memory_share(self) -> float:
        """Of the peak bandwidth. Above 1 the tensors are not read whole, or come from a cache."""
        return self.memory_ms / self.latency_ms

    @property
    def compute_share(self) -> float:
        """Of the tensor cores' peak."""
        return self.compute_ms / self.latency_ms

    @property
    def nearest_share(self) -> float:
        """Of the nearer of the two."""
        return max(self.memory_share, self.compute_share)


def position(
    work: TimedWork,
    latency_ms: float,
    peaks: Peaks,
    multiplying: Collection[str],
    rewritten: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Position | None:
    """Put a timing under the roofs; None where no tensor was seen.

    Args:
        work: what the timing covers.
        latency_ms: of all its launches together.
        peaks: of the GPU.
        multiplying: names of the kernels whose source asks for matrix products.
        rewritten: kernel -> its parameters that it reads and writes, where they are known.
    """
    if not work.tensor_bytes or not latency_ms > 0:
        return None
    moved_bytes = work.tensor_bytes + _rewritten_bytes(work, rewritten)
    flop, peak = 0.0, None
    if len(work.kernels) == 1 and work.kernels[0] in multiplying:
        flop = product_flop(work.tensors)
        peak = peaks.tensor_tflops(next((t.dtype for t in _matrices(work.tensors)), ""))
    return Position(
        latency_ms=latency_ms,
        memory_ms=moved_bytes / peaks.bandwidth_gb_s / 1e6,
        compute_ms=flop / peak / 1e9 if peak else 0.0,
        tensor_bytes=moved_bytes,
        flop=flop,
        asked_bytes=_asked_bytes(work, flop) if flop else 0.0,
    )


def least_times_of(
    timed: Sequence[tuple[str, TimedWork]],
    peaks: Peaks | None,
    roof: MeasuredRoof | NotMeasured,
    multiplying: Collection[str],
    written: Mapping[str, Collection[str]],
    rewritten: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> LeastTimes | None:
    """The least times of what was timed; None where neither peaks nor measured roof are known.

    Args:
        timed: config, as records name it, and what its timing covers.
        peaks: what the GPU's data sheet says.
        roof: what it was measured to do, which goes before.
        multiplying: names of the kernels whose source asks for matrix products.
        written: kernel -> its parameters that are stored to, where they are known. What is read and
            written takes other bandwidths; the best of all where they are not.
        rewritten: kernel -> its parameters that it reads and writes. Whether it does so with the
            whole of them is not known: what is least then is not certain.
    """
    attainable = roof.attained() if isinstance(roof, MeasuredRoof) else peaks
    if attainable is None:
        return None
    found, best_gb_s = [], 0.0
    for config, work in timed:
        peak = attainable
        again = _rewritten_bytes(work, rewritten)
        share = _written_share(work, written, again)
        if isinstance(roof, MeasuredRoof) and share is not None:
            peak = replace(attainable, bandwidth_gb_s=roof.mixed_gb_s(share))
        best_gb_s = max(best_gb_s, peak.bandwidth_gb_s)
        at = position(work, math.inf, peak, multiplying, rewritten)
        if at is None:
            continue
        uncounted = not at.compute_ms and any(name in multiplying for name in work.kernels)
        found.append(
            LeastTime(
                config,
                memory_ms=at.memory_ms,
                compute_ms=None if uncounted else at.compute_ms,
                tensor_bytes=at.tensor_bytes,
                flop=at.flop,
                certain=not again and all(t.dtype.startswith(_REAL) for t in work.tensors),
            )
        )
    return LeastTimes(
        tuple(found),
        best_gb_s or attainable.bandwidth_gb_s,
        measured=isinstance(roof, MeasuredRoof),
        l2_bytes=roof.l2_bytes if isinstance(roof, MeasuredRoof) else 0,
        note="" if isinstance(roof, MeasuredRoof) else roof.reason,
    )


def _rewritten_bytes(work: TimedWork, rewritten: Mapping[str, Collection[str]]) -> int:
    """Of what is read and written; of several kernels, nobody knows which has which tensor."""
    if len(work.kernels) != 1:
        return 0
    names = rewritten.get(work.kernels[0], ())
    return sum(tensor.size_bytes for tensor in work.tensors if tensor.name in names)


def _written_share(
    work: TimedWork, written: Mapping[str, Collection[str]], again: int
) -> float | None:
    """The part of the bytes that is written; None where that is not known of a kernel.

    Args:
        work: what a timing covers.
        written: kernel -> the parameters that it stores to.
        again: bytes of what is read and written.
    """
    if not work.tensor_bytes or any(kernel not in written for kernel in work.kernels):
        return None
    names = {name for kernel in work.kernels for name in written[kernel]}
    stored = sum(t.size_bytes for t in work.tensors if t.name in names)
    return stored / (work.tensor_bytes + again)


def product_flop(tensors: Sequence[TensorArgument]) -> float:
    """Operations of one product A @ B = C, by the shapes; 0 where they are not those of one.

    Of M x K, K x N and M x N each extent occurs twice, in whatever order and transposed or not, so
    2 * M * N * K is twice the root of the product of all six.
    """
    shapes = [tensor.shape for tensor in _matrices(tensors)]
    if len(shapes) != MATRICES or len({shape[:-2] for shape in shapes}) > 1:
        return 0.0
    extents = sorted(n for shape in shapes for n in shape[-2:])
    if extents[::2] != extents[1::2]:
        return 0.0
    return 2.0 * math.prod(shapes[0][:-2]) * math.isqrt(math.prod(extents))


def _asked_bytes(work: TimedWork, flop: float) -> float:
    """Two operands of `side` a step for tiles of side x side, as if they were square.

    The result is taken to be the last matrix. A persistent grid has fewer blocks than tiles, and
    the figure is then too small.
    """
    blocks = math.prod(work.launches[0][1]) if len(work.launches) == 1 else 0
    first, *_, result = _matrices(work.tensors)
    if not blocks:
        return 0.0
    side = math.sqrt(math.prod(result.shape) / blocks)
    return flop / side * first.size_bytes / math.prod(first.shape)


def _matrices(tensors: Sequence[TensorArgument]) -> list[TensorArgument]:
    return [tensor for tensor in tensors if len(tensor.shape) > 1]
