"""What this GPU attains in a process of the user's environment: bytes moved, products computed.

Data sheets state figures that no kernel reaches. Here they are timed, with PyTorch's own kernels,
by CUDA events; no setting of the card is touched. Every figure is the best of many, because a roof
that is too low would call a kernel done that is not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

BUFFER_BYTES = 2**30
"""Of one side of a copy, where memory allows: many times the L2 cache of any GPU."""
LEAST_OVER_CACHE = 8
"""A buffer of fewer times the L2 cache would measure that."""
PRODUCT = 8192
"""Rows and columns of the matrices that are multiplied; half of it where memory is short."""
TIMED_S = 0.12
"""For so long each operation is repeated,"""
LEAST = 8
"""and at least so often."""
MOST = 400
SHARE_OF_FREE = 0.5
"""The part of the free memory that is taken for a moment."""


def main(job: dict[str, Any]) -> None:
    """Measure, and say it in a line of JSON in the file that the job's `answers` names."""
    Path(job["answers"]).write_text(json.dumps(measured()) + "\n", encoding="utf-8")


def measured() -> dict[str, Any]:
    """The figures, or why there are none under `error`."""
    try:
        import torch
    except ImportError:
        return {"error": "torch is not installed"}
    if not torch.cuda.is_available():
        return {"error": "torch sees no CUDA device"}
    begin = time.perf_counter()
    try:
        device = torch.cuda.get_device_properties(0)
        free_bytes = int(torch.cuda.mem_get_info()[0] * SHARE_OF_FREE)
        l2_bytes = int(device.L2_cache_size)
        side_bytes = min(BUFFER_BYTES, free_bytes // 2) // 4096 * 4096
        if side_bytes < LEAST_OVER_CACHE * l2_bytes:
            return {"error": f"{free_bytes / 2**20:.0f} MiB to take are too little to time copies"}
        found: dict[str, Any] = {
            "name": device.name,
            "multiprocessors": device.multi_processor_count,
            "l2_bytes": l2_bytes,
            "gb_s": _bandwidths(torch, side_bytes),
            "tflops": dict(_products(torch, free_bytes)),
            "torch": torch.__version__,
        }
    except RuntimeError as problem:  # out of memory, or a device that does not answer
        return {"error": str(problem).splitlines()[0]}
    return found | {"took_s": round(time.perf_counter() - begin, 2)}


def _bandwidths(torch: Any, side_bytes: int) -> Mapping[str, float]:
    """10^9 bytes a second of device memory: read and written in equal parts, read, written."""
    source = torch.ones(side_bytes // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    ways: dict[str, tuple[int, tuple[Callable[[], object], ...]]] = {
        "copy": (
            2 * side_bytes,
            (lambda: target.copy_(source), lambda: torch.mul(source, 2.0, out=target)),
        ),
        "read": (side_bytes, (source.sum, source.amax)),
        "write": (side_bytes, (lambda: target.fill_(1.5),)),
    }
    return {
        name: count / min(best_ms(torch, call) for call in calls) / 1e6
        for name, (count, calls) in ways.items()
    }


def _products(torch: Any, free_bytes: int) -> Iterator[tuple[str, float]]:
    """10^12 operations a second by operand type, of those that this GPU and torch multiply.

    'tf32' are float32 operands whose tensor cores round them, 'float32' those that are not rounded.
    """
    n = PRODUCT if free_bytes > 4 * 4 * PRODUCT**2 else PRODUCT // 2
    left, right = (torch.randn(n, n, device="cuda") for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    for name, rounded in (("float32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = rounded
        yield name, _tflops(torch, n, partial(torch.mm, left, right, out=torch.empty_like(left)))
    torch.backends.cuda.matmul.allow_tf32 = before
    for name in ("bfloat16", "float16"):
        a, b = (x.to(getattr(torch, name)) for x in (left, right))
        yield name, _tflops(torch, n, partial(torch.mm, a, b, out=torch.empty_like(a)))
    try:
        fp8 = torch.float8_e4m3fn
        a, b = left.to(fp8), right.to(fp8).t()
        one = torch.ones((), device="cuda")

        def product() -> object:
            return torch._scaled_mm(  # torch has no other product of fp8
                a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )

        yield "float8_e4m3fn", _tflops(torch, n, product)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return  # before Ada no tensor core takes it, and older releases ask otherwise


def _tflops(torch: Any, n: int, call: Callable[[], object]) -> float:
    return 2 * n**3 / best_ms(torch, call) / 1e9


def best_ms(torch: Any, call: Callable[[], object]) -> float:
    """The shortest of many calls, in ms, none of which waits for the host.

    Events lie between calls that were all handed over before: the GPU has one behind the other.
    """
    for _ in range(2):
        call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    call()
    events[1].record()
    torch.cuda.synchronize()
    once_ms = max(events[0].elapsed_time(events[1]), 1e-3)
    count = int(min(max(LEAST, TIMED_S * 1e3 / once_ms), MOST))
    call()  # the first event must not lie in front of an idle GPU
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return float(min(begin.elapsed_time(end) for begin, end in pairwise(marks)))
