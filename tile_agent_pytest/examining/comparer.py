"""How far results are from those expected, told by a process that imports nothing of the user's.

The sums are taken where the results are; only numbers travel. A difference is measured in units of
the last place (ulps) of the result's type, at the size of the values around it: a sum of values
that cancel is as uncertain as what it sums.
"""

from __future__ import annotations

import math
from typing import Any

from tile_agent_pytest.bench import open_sampler
from tile_agent_pytest.examining.exchange import Message, NotExchangeable, take
from tile_agent_pytest.examining.tensors import torch
from tile_agent_pytest.wire import Channel, Closed

_CHUNK = 1 << 24
"""Elements that are compared together, in float64."""

_FILLS = 20
"""Samples of a device that writes."""


def serve(channel: Channel) -> None:
    """Obey until the parent hangs up.

    keep (results)    -> keep (fits), once there are copies of what was handed out
    compare (results) -> compare (found): what was kept, with these, one by one
    fill (count, method) -> fill (ms): how long it takes to write so many bytes
    room              -> room (room): whether at least half of the device's memory is free
    forget            -> forget, once the memory is given back
    """
    kept: list[Any] = []
    while True:
        try:
            request = channel.receive()
        except Closed:
            return
        answer: Message = {"event": request["op"], "fits": True}
        match request["op"]:
            case "keep":
                kept = []
                try:
                    kept = [_kept(described) for described in request["results"]]
                except torch().OutOfMemoryError:
                    answer["fits"] = False
                if not answer["fits"]:
                    torch().cuda.empty_cache()
            case "compare":
                pairs = zip(kept, request["results"], strict=False)
                answer["found"] = [_compared(expected, actual) for expected, actual in pairs]
            case "fill":
                answer["ms"] = _filling_ms(request["count"], request["method"])
            case "room":
                answer["room"] = _has_room()
            case _:
                kept = []
                if torch().cuda.is_initialized():
                    torch().cuda.empty_cache()
        channel.send(answer)


def _filling_ms(count: int, method: str) -> float:
    """The shortest of a few; 0 where there is no room."""
    device = "cuda" if torch().cuda.is_available() else "cpu"
    try:
        octets = torch().empty(count, dtype=torch().uint8, device=device)
        sampler, _ = open_sampler(lambda: octets.fill_(1), method, tensors=())
        return min(sampler.sample(_FILLS))
    except torch().OutOfMemoryError:
        return 0.0


def _has_room() -> bool:
    """Of the memory of a computer nobody can say that it is full."""
    if not torch().cuda.is_available():
        return True
    free, total = torch().cuda.mem_get_info()
    return bool(2 * free >= total)


def _kept(described: Message) -> Any:
    """A copy, or why there is none."""
    try:
        return take(described).clone()
    except NotExchangeable as problem:
        return str(problem)


def _compared(wanted: Any, actual: Message) -> Message:
    answer: Message = {"name": actual.get("name"), "dtype": actual.get("dtype")}
    if isinstance(wanted, str):
        return answer | {"problem": f"nothing to compare with: {wanted}"}
    try:
        taken = take(actual)
    except NotExchangeable as problem:
        return answer | {"problem": str(problem)}
    if wanted.dtype != taken.dtype or wanted.shape != taken.shape:
        kinds = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (wanted, taken)]
        return answer | {"problem": f"{kinds[1]} where {kinds[0]} is expected"}
    return answer | difference(wanted, taken.to(wanted.device))


def difference(expected: Any, actual: Any) -> Message:
    """How two tensors of one type and shape differ.

    Returns:
        `elements`; `unequal`, those that differ at all; `misplaced`, those where only one is
        finite, or both are infinite or NaN and not alike; `rms_ulps` and `max_ulps` over the
        others. A value next to the largest of its type may be infinite on the other side. Of
        integers an ulp is one.
    """
    if expected.is_complex():
        expected, actual = torch().view_as_real(expected), torch().view_as_real(actual)
    found: Message = {"elements": expected.numel(), "unequal": 0, "misplaced": 0}
    width = expected.shape[-1] if expected.ndim else 1
    rows = [tensor.reshape(-1, width) if width else tensor for tensor in (expected, actual)]
    if not expected.numel():
        return found | {"rms_ulps": 0.0, "max_ulps": 0.0}
    if not expected.is_floating_point():
        found["unequal"] = int((rows[0] != rows[1]).sum())
        apart = (rows[0].to(torch().float64) - rows[1].to(torch().float64)).abs()
        return found | {"rms_ulps": 0.0, "max_ulps": float(apart.max())}
    unit = float(torch().finfo(expected.dtype).eps)
    most = 0.99 * float(torch().finfo(expected.dtype).max)
    total = worst = 0.0
    height = max(1, _CHUNK // width)
    for begin in range(0, rows[0].shape[0], height):
        ours, theirs = (part[begin : begin + height].to(torch().float64) for part in rows)
        finite = torch().isfinite(ours)
        same = (ours == theirs) | (torch().isnan(ours) & torch().isnan(theirs))
        same |= (ours.sign() == theirs.sign()) & (torch().minimum(ours.abs(), theirs.abs()) >= most)
        found["unequal"] += int((~same).sum())
        found["misplaced"] += int((~same & ~(finite & torch().isfinite(theirs))).sum())
        ours = torch().where(finite, ours, 0.0)
        around = ours.square().mean(dim=-1, keepdim=True).sqrt()
        scale = torch().maximum(ours.abs(), around).clamp_min(_least(expected.dtype))
        ulps = torch().where(same | ~finite, 0.0, (theirs - ours).abs() / (unit * scale))
        ulps = torch().nan_to_num(ulps, nan=0.0, posinf=0.0)
        total += float(ulps.square().sum())
        worst = max(worst, float(ulps.max()))
    return found | {"rms_ulps": math.sqrt(total / expected.numel()), "max_ulps": worst}


def _least(dtype: Any) -> float:
    """Below its smallest normal number a type has no last place that means anything."""
    return float(torch().finfo(dtype).tiny)
