"""What one GPU was measured to do, beside what its data sheet says. Pure.

The two are for different questions. How far a kernel is from what can be had is asked of the
measured figures; what cannot be true at all is asked of the data sheet, for a cache may well give
more than the memory behind it was measured to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agent.evidence.peaks import Peaks, peaks_of

LAYOUT = 1
"""Of what is kept on disk, and of how it is measured: a higher one measures again."""
BEYOND_CACHE = 4
"""Tensors of so many times the L2 cache are moved from and to memory, whatever the cache holds."""
_ROWS = {
    "half": ("bfloat16", "float16"),
    "tf32": ("tf32",),
    "fp8": ("float8_e4m3fn",),
}
"""A row of the data sheet -> the products that were timed for it."""


@dataclass(frozen=True)
class MeasuredRoof:
    """One GPU's attainable bandwidth and throughput."""

    gpu: str
    setting: str
    """The driver and the limits of clock and power that it was measured under."""
    copy_gb_s: float
    """Of device memory, read and written in equal parts, 10^9 bytes a second."""
    read_gb_s: float
    write_gb_s: float
    tflops: Mapping[str, float]
    """Operand type -> 10^12 operations a second of a large product; 'float32' is without tf32."""
    multiprocessors: int
    l2_bytes: int
    torch: str
    """The release whose products were timed."""

    def memory_ms(self, tensor_bytes: int, written_bytes: int | None) -> float:
        """The least for bytes that are moved once, each read or written.

        A copy is slower than either alone: bytes that are written are paired with as many that are
        read, and the rest goes one way. Where it is not known what is written, it is the fastest.
        """
        if written_bytes is None:
            fastest = max(self.copy_gb_s, self.read_gb_s, self.write_gb_s)
            return tensor_bytes / fastest / 1e6
        read_bytes = tensor_bytes - written_bytes
        both = 2 * min(read_bytes, written_bytes)
        one_way = self.read_gb_s if read_bytes > written_bytes else self.write_gb_s
        return (both / self.copy_gb_s + (tensor_bytes - both) / one_way) / 1e6

    def peaks(self) -> Peaks:
        """In the form of a data sheet, for a GPU that the table lacks."""
        rows = {row: max(self.tflops.get(n, 0.0) for n in names) for row, names in _ROWS.items()}
        return Peaks(self.copy_gb_s, rows["half"], rows["tf32"], rows["fp8"], self.multiprocessors)

    def compute_ms(self, flop: float, dtype: str) -> float:
        """The least for a product's operations; 0 where its type was not timed."""
        tflops = self.peaks().tensor_tflops(dtype)
        return flop / tflops / 1e9 if tflops else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"layout": LAYOUT}

    @classmethod
    def from_json(cls, value: Any) -> MeasuredRoof | None:
        """What was kept; None where it is of another layout or damaged."""
        if not isinstance(value, dict) or value.pop("layout", None) != LAYOUT:
            return None
        try:
            found = cls(**value)
            figures = (found.copy_gb_s, found.read_gb_s, found.write_gb_s, *found.tflops.values())
            return found if all(figure > 0 for figure in figures) else None
        except (AttributeError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class NotMeasured:
    """Why a GPU's figures are those of its data sheet."""

    reason: str


def key_of(uuid: str, setting: str) -> str:
    """Names what is kept: another card, driver or limit of clock or power is another roof."""
    told = f"{LAYOUT}\n{uuid}\n{setting}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def described(roof: MeasuredRoof | NotMeasured) -> list[str]:
    """Bytes and products, a line each, with the part of the data sheet that they are."""
    if isinstance(roof, NotMeasured):
        return [f"not measured, its data sheet stands for it: {roof.reason}"]
    sheet = peaks_of(roof.gpu)
    of_sheet = f" ({roof.copy_gb_s / sheet.bandwidth_gb_s:.0%} of its data sheet)" if sheet else ""
    products = []
    for name, tflops in roof.tflops.items():
        row = "float32" if name == "tf32" else name
        peak = sheet.tensor_tflops(row) if sheet and name != "float32" else None
        products.append(f"{name} {tflops:.0f}{f' ({tflops / peak:.0%})' if peak else ''}")
    return [
        f"copies {roof.copy_gb_s:.0f} GB/s{of_sheet}, reads {roof.read_gb_s:.0f}, "
        f"writes {roof.write_gb_s:.0f}",
        f"multiplies, in TFLOP/s: {', '.join(products)}",
    ]
