"""What a GPU can do at most, by the name that NVML gives it.

Figures of NVIDIA's data sheets (H200, H100, A100, L40S, L4, A10, HGX B200) and of the appendices of
its Ampere, Ada and Blackwell RTX architecture papers: dense, with 32-bit accumulation, at boost
clock. A kernel on a GPU under a power cap reaches less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_DTYPES = {
    "float16": "half",
    "bfloat16": "half",
    "float32": "tf32",
    "tfloat32": "tf32",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
"""PyTorch's name of an operand's type -> the row of the data sheet, where tensor cores take it."""


@dataclass(frozen=True)
class Peaks:
    """Of one GPU."""

    bandwidth_gb_s: float
    """Of device memory, 10^9 bytes a second."""
    half_tflops: float
    """Tensor cores, fp16 or bf16 operands."""
    tf32_tflops: float
    fp8_tflops: float
    """0 where the tensor cores do not take fp8."""
    multiprocessors: int

    def tensor_tflops(self, dtype: str) -> float | None:
        """The tensor cores' peak for operands of a type; None where it is not known."""
        peaks = {"half": self.half_tflops, "tf32": self.tf32_tflops, "fp8": self.fp8_tflops}
        return peaks.get(_DTYPES.get(dtype, ""), 0.0) or None


_HOPPER = (989.4, 494.7, 1978.9, 132)
_AMPERE = (312.0, 156.0, 0.0, 108)
PEAKS: Mapping[str, Peaks] = {
    "H200 NVL": Peaks(4800, 835.5, 417.5, 1670.5, 132),
    "H200": Peaks(4800, *_HOPPER),
    "H100 PCIe": Peaks(2039, 756, 378, 1513, 114),
    "H100 NVL": Peaks(3938, 835.5, 417.5, 1670.5, 132),
    "H100 80GB HBM3": Peaks(3350, *_HOPPER),
    "A100-SXM4-80GB": Peaks(2039, *_AMPERE),
    "A100 80GB PCIe": Peaks(1935, *_AMPERE),
    "A100-SXM4-40GB": Peaks(1555, *_AMPERE),
    "A100-PCIE-40GB": Peaks(1555, *_AMPERE),
    "B200": Peaks(8000, 2250, 1125, 4500, 148),
    "L40S": Peaks(864, 362.05, 183, 733, 142),
    "L4": Peaks(300, 121, 60, 242.5, 58),
    "A10": Peaks(600, 125, 62.5, 0.0, 72),
    "RTX 5090": Peaks(1792, 209.5, 104.8, 419, 170),
    "RTX 4090": Peaks(1008, 165.2, 82.6, 330.3, 128),
    "RTX 3090": Peaks(936, 71, 35.6, 0.0, 82),
    "RTX A6000": Peaks(768, 154.8, 77.4, 0.0, 84),
}
"""The end of NVML's name -> its figures."""


def peaks_of(name: str) -> Peaks | None:
    """The figures of a GPU; None for one that is not in the table.

    A name must end like the table's: an H200 partition, a laptop's or a capped edition differs.
    """
    ends = [end for end in PEAKS if name == end or name.endswith(f" {end}")]
    return PEAKS[max(ends, key=len)] if ends else None
