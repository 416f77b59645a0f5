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

COPIED = 0.5
"""The part of a copy's traffic that is written."""
LAYOUT = 1
"""Of what is kept on disk, and of how it is measured: a higher one measures again."""


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

    def attained(self) -> Peaks:
        """The same as a data sheet has it: the best of what was measured."""
        most = self.tflops.get
        return Peaks(
            bandwidth_gb_s=max(self.copy_gb_s, self.read_gb_s, self.write_gb_s),
            half_tflops=max(most("float16", 0.0), most("bfloat16", 0.0)),
            tf32_tflops=most("tf32", 0.0),
            fp8_tflops=most("float8_e4m3fn", 0.0),
            multiprocessors=self.multiprocessors,
        )

    def mixed_gb_s(self, written: float) -> float:
        """The bandwidth of traffic of which a part is written, 0 to 1, in 10^9 bytes a second.

        By the time a byte takes, between what was measured of reads, copies and writes.
        """
        one, other = (self.read_gb_s, self.copy_gb_s), (self.copy_gb_s, self.write_gb_s)
        begin, end = one if written <= COPIED else other
        part = (written if written <= COPIED else written - COPIED) / COPIED
        return 1 / ((1 - part) / begin + part / end)

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
