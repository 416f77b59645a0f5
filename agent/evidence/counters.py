"""Hardware counters, as Nsight Compute prints them with `--csv --page raw`.

That page is one row a launch: a header of names, a row of units, then the values. Lines that begin
with '==' are messages of the tool. Numbers may hold commas for thousands; what a GPU does not count
is 'n/a' or empty.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

DURATION = "gpu__time_duration.sum"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_BYTES = "dram__bytes.sum"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
L2_HITS = "lts__t_sector_hit_rate.pct"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = (
    "long_scoreboard", "short_scoreboard", "barrier", "wait", "math_pipe_throttle",
    "mio_throttle", "lg_throttle", "tex_throttle", "not_selected", "membar", "drain",
)  # fmt: skip
"""What a warp can wait for. long_scoreboard: a value from global or local memory."""
METRICS = (DURATION, DRAM, DRAM_BYTES, SM, WARPS, L2_HITS, *map(_STALL.format, STALLS))
"""What to ask for, with `--print-units base`: nanoseconds, bytes, percent."""
_NANOSECOND = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6,
               "s": 1e9, "second": 1e9}  # fmt: skip
_BYTE = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}


@dataclass(frozen=True)
class Counters:
    """Of one launch. Shares are fractions of the peak, None where the GPU did not tell."""

    kernel: str
    duration_ms: float
    dram_share: float | None = None
    dram_bytes: float | None = None
    sm_share: float | None = None
    warps_share: float | None = None
    """Active warps of those that a multiprocessor can hold: the achieved occupancy."""
    l2_hit_rate: float | None = None
    stalls: Mapping[str, float] = field(default_factory=dict)
    """Reason -> warps that wait for it whenever an instruction is issued."""

    @property
    def worst_stall(self) -> tuple[str, float] | None:
        """The commonest reason to wait and its part of all; None where no warp waits."""
        total = sum(self.stalls.values())
        if not total:
            return None
        reason = max(self.stalls, key=lambda name: self.stalls[name])
        return reason, self.stalls[reason] / total

    def __str__(self) -> str:
        shares = (
            ("DRAM {:.1%} of peak", self.dram_share),
            ("multiprocessors {:.1%} of peak", self.sm_share),
            ("active warps {:.1%}", self.warps_share),
            ("L2 hits {:.1%}", self.l2_hit_rate),
        )
        said = [text.format(share) for text, share in shares if share is not None]
        if self.worst_stall is not None:
            reason, part = self.worst_stall
            said.append(f"{part:.0%} of the waiting is for {reason}")
        return f"{self.kernel} {self.duration_ms:.6f} ms: {', '.join(said)}"


def read(text: str) -> tuple[Counters, ...]:
    """The longest launch of each kernel, the longest kernel first; empty where there is none.

    Raises:
        ValueError: the text has no such page, or one whose rows do not fit its header.
    """
    found: dict[str, Counters] = {}
    for counters in _rows(text):
        known = found.get(counters.kernel)
        if known is None or counters.duration_ms > known.duration_ms:
            found[counters.kernel] = counters
    return tuple(sorted(found.values(), key=lambda c: -c.duration_ms))


def _rows(text: str) -> Iterator[Counters]:
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    if len(rows) < 2 or "Kernel Name" not in rows[0] or DURATION not in rows[0]:
        raise ValueError("no page of raw metrics")
    header, units, *launches = rows
    if any(len(row) != len(header) for row in (units, *launches)):
        raise ValueError("a row of the page has another length than its header")
    unit = dict(zip(header, units, strict=True))
    for row in launches:
        values = dict(zip(header, row, strict=True))
        numbers = {name: _number(value) for name, value in values.items()}
        duration = numbers[DURATION]
        if duration is None:
            continue
        moved = numbers.get(DRAM_BYTES)
        yield Counters(
            kernel=values["Kernel Name"].partition("(")[0],
            duration_ms=duration * _factor(_NANOSECOND, unit[DURATION]) / 1e6,
            dram_share=_share(numbers.get(DRAM)),
            dram_bytes=None if moved is None else moved * _factor(_BYTE, unit[DRAM_BYTES]),
            sm_share=_share(numbers.get(SM)),
            warps_share=_share(numbers.get(WARPS)),
            l2_hit_rate=_share(numbers.get(L2_HITS)),
            stalls={
                reason: value
                for reason in STALLS
                if (value := numbers.get(_STALL.format(reason))) is not None
            },
        )


def _factor(units: Mapping[str, float], unit: str) -> float:
    if unit not in units:
        raise ValueError(f"a metric in {unit!r} instead of {', '.join(units)}")
    return units[unit]


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
