"""Writes the results of `benchmarks.search` as Markdown. Pure: a dict in, a text out.

The results are kernel -> record: `config`, `environment`, `experts` (their packages' versions),
`command`, `method`, `problem`, `faults`, `spent_s`; `references`, label -> `latency_ms` and
`error`, or `why` there is none; `evals`, key -> the same of a candidate with its `steps` from the
origin and the `pass` that it came up in.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.tables import (
    NO_SLOWER,
    NONE,
    OWN,
    escaped,
    geometric_mean,
    machines,
    milliseconds,
    over,
    ratio,
    row,
)

TITLES = {"cutile": "cuTile", "triton": "Triton"}
NEAR = 0.01
"""How near to the end of a path counts as there, as a fraction of the latency."""
CAVEAT = (
    "A search is no decision of tile-agent: each version was timed once and briefly, after it had "
    "agreed with PyTorch in fp64 on one input. The best of so many timings looks faster than it "
    "is, while every reference has one timing. An effect of one percent may be noise, and so may "
    "one of several where a power cap moves the clock, as with matrix products."
)

Record = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """An entry with its parameters, on the way from the origin to a version."""

    name: str
    gain: float
    """The share of the latency that it took away; below zero it added to it."""
    latency_ms: float
    """With it."""


def report(results: dict[str, Record]) -> str:
    """The whole document."""
    commands = dict.fromkeys(record["command"] for record in results.values())
    shaped = [{**record, "timings": [record]} for record in results.values()]
    lines = ["# How far the playbook reaches", "", CAVEAT, ""]
    lines += [f"Measured on: {machine}" for machine in machines(shaped)]
    lines += ["", "```sh", *commands, "```", ""]
    for framework, title in TITLES.items():
        records = {
            key.partition("/")[2]: record
            for key, record in results.items()
            if key.startswith(f"{framework}/")
        }
        if records:
            lines += [f"## {title}", "", *section(title, records)]
    return "\n".join(lines)


def section(title: str, records: dict[str, Record]) -> list[str]:
    """The kernels of one language, which is called `title`."""
    timed = {name: record for name, record in records.items() if best(record)}
    lines = []
    if timed:
        lines += [*overview(timed), "", *legend(timed), "", *summary(timed), ""]
        lines += [f"### {title}: best paths", "", *paths(timed), ""]
        lines += [f"### {title}: each entry on the first pass", "", *entries(timed), ""]
    if missing := troubles(records):
        lines += [f"### {title}: not timed", "", *missing, ""]
    return lines


def overview(records: dict[str, Record]) -> list[str]:
    """A row for each kernel, and the geometric means."""
    head = [
        *("kernel", "config", "origin, ms", "best found, ms", "torch, ms", "torch.compile, ms"),
        *("expert, ms", "fastest expert", *RATIOS, "candidates"),
    ]
    lines = [row(head), row([":--", ":--", *["--:"] * 5, ":--", *["--:"] * (len(RATIOS) + 1)])]
    for name, record in records.items():
        label, expert_ms = expert(record)
        latencies = [origin(record), best(record), *(reference(record, of) for of in OWN[2:])]
        cells = [name, record["config"], *map(milliseconds, (*latencies, expert_ms))]
        cells += [escaped(label) or NONE, *(ratio(of(record)) for of in RATIOS.values())]
        lines.append(row([*cells, str(len(candidates(record)))]))
    means = [ratio(geometric_mean(map(of, records.values()))) for of in RATIOS.values()]
    lines.append(row(["**geometric mean**", *[""] * 7, *means, ""]))
    return lines


def legend(records: dict[str, Record]) -> list[str]:
    """What the columns mean."""
    methods = " or ".join(dict.fromkeys(record["method"] for record in records.values()))
    return [
        f"Latencies: {methods}. A ratio a / b above 1 says that b is faster. Candidates are the "
        "versions that agreed and were timed, without the origin."
    ]


def summary(records: dict[str, Record]) -> list[str]:
    """The figures that the table is there for, and how well a timing repeats."""
    lines = [
        f"- Geometric mean over the origin: **{ratio(mean)}** ({len(records)} kernels)."
        for mean in [geometric_mean(map(RATIOS["origin / best"], records.values()))]
    ]
    for rival in ("expert", "torch.compile"):
        found = [RATIOS[f"{rival} / best"](record) for record in records.values()]
        known = [value for value in found if value is not None]
        level = sum(1 / value <= 1 + NO_SLOWER for value in known)
        faster = sum(1 / value < 1 - NO_SLOWER for value in known)
        lines.append(
            f"- No slower than {'the fastest expert' if rival == 'expert' else rival}, within "
            f"{NO_SLOWER:.0%}: **{level} of {len(known)}**; faster by more than that: {faster}."
        )
    again = {
        name: abs(share)
        for name, record in records.items()
        if (share := gain(origin(record), reference(record, "origin"))) is not None
    }
    if again:
        middle, worst = statistics.median(again.values()), max(again, key=lambda name: again[name])
        lines.append(
            "- The origin was timed twice, in two processes. The two timings differ by "
            f"{middle:.1%} in the median kernel and by {again[worst]:.1%} in {worst}, the most."
        )
    return lines


def paths(records: dict[str, Record]) -> list[str]:
    """How each kernel came to its best version."""
    lines = [
        "The share of the latency that each step took away, on top of those before it. In bold: "
        f"the step with which the path is within {NEAR:.0%} of its end.",
        "",
    ]
    for name, record in records.items():
        steps = path(record)
        there = next(
            (i for i, step in enumerate(steps) if step.latency_ms <= best_ms(record) * (1 + NEAR)),
            None,
        )
        told = [
            f"**{step.name} {percent(step.gain)}**"
            if i == there
            else f"{step.name} {percent(step.gain)}"
            for i, step in enumerate(steps)
        ]
        lines.append(f"- {name}: {'; '.join(told) or 'nothing was faster'}.")
    return lines


def entries(records: dict[str, Record]) -> list[str]:
    """What every entry did where the first pass tried it."""
    tried: dict[str, dict[str, float]] = {}
    for name, record in records.items():
        for entry, share in first_pass(record).items():
            tried.setdefault(entry, {})[name] = share
    lines = [
        "The best variant of each entry, on top of what the pass had gained before it came to it.",
        "",
        row(["entry", "kernels", "share of the latency that it took away"]),
        row([":--", "--:", ":--"]),
    ]
    for entry, shares in sorted(tried.items(), key=lambda item: -gained(item[1].values())):
        falling = sorted(shares.items(), key=lambda item: -item[1])
        told = ", ".join(f"{name} {percent(share)}" for name, share in falling)
        lines.append(row([escaped(entry), str(len(shares)), told]))
    return lines


def troubles(records: dict[str, Record]) -> list[str]:
    """What could not be timed, and why."""
    lines = []
    for name, record in records.items():
        if record["problem"]:
            lines.append(f"- {name}: {record['problem']}")
        for label, found in record["references"].items():
            if found["latency_ms"] is None:
                lines.append(f"- {name}, {label}: {found['why']}")
        failed = sum(found["latency_ms"] is None for found in record["evals"].values())
        if failed:
            whys = [found["why"] for found in record["evals"].values() if "why" in found]
            kinds = ", ".join(sorted({why.partition(":")[0] for why in whys}))
            lines.append(f"- {name}, {failed} of {len(record['evals'])} versions: {kinds}.")
        lines += [f"- {name}, {step} is at fault: {why}" for step, why in record["faults"].items()]
    return lines


# --- figures ------------------------------------------------------------------------------------


def candidates(record: Record) -> list[dict[str, Any]]:
    """Every version that was timed, without the origin."""
    evals = record["evals"].values()
    return [found for found in evals if found["steps"] and found["latency_ms"] is not None]


def by_steps(record: Record) -> dict[tuple[str, ...], float]:
    """The latency of every version that was timed, by its way from the origin."""
    evals = record["evals"].values()
    return {tuple(e["steps"]): e["latency_ms"] for e in evals if e["latency_ms"] is not None}


def origin(record: Record) -> float | None:
    """The origin's latency in ms, as the search timed it."""
    return by_steps(record).get(())


def best(record: Record) -> float | None:
    """The latency of the fastest version, in ms; it may be the origin."""
    return min(by_steps(record).values(), default=None)


def best_ms(record: Record) -> float:
    """The same, where something was timed."""
    return min(by_steps(record).values())


def reference(record: Record, label: str) -> float | None:
    """The latency of what the kernel is compared with, in ms."""
    found: float | None = record["references"].get(label, {}).get("latency_ms")
    return found


def expert(record: Record) -> tuple[str, float | None]:
    """The fastest of the experts' versions."""
    timed = [
        (found, label)
        for label in record["references"]
        if label not in OWN and (found := reference(record, label)) is not None
    ]
    fastest, name = min(timed, default=(None, ""))
    return name, fastest


RATIOS: dict[str, Callable[[Record], float | None]] = {
    "origin / best": lambda r: over(origin(r), best(r)),
    "torch.compile / best": lambda r: over(reference(r, "torch.compile"), best(r)),
    "expert / best": lambda r: over(expert(r)[1], best(r)),
}


def path(record: Record) -> list[Step]:
    """The steps from the origin to the fastest version, each with what it gained on the last.

    A version whose way cannot be followed, because one on it was not timed, is told in one step.
    """
    known = by_steps(record)
    end = min(known, key=lambda steps: (known[steps], len(steps)))
    walked: list[Step] = []
    done = 0
    before = known[()]
    for length in range(1, len(end) + 1):
        latency_ms = known.get(end[:length])
        if latency_ms is not None:
            name = ", ".join(end[done:length])
            walked.append(Step(name, 1 - latency_ms / before, latency_ms))
            done, before = length, latency_ms
    return walked


def first_pass(record: Record) -> dict[str, float]:
    """Entry -> the share that its best variant took away when the first pass tried it."""
    known = by_steps(record)
    shares: dict[str, float] = {}
    for found in record["evals"].values():
        share = gain(known.get(tuple(found["steps"][:-1])), found["latency_ms"])
        if found["pass"] == 1 and share is not None:
            entry = found["steps"][-1].partition(" (")[0]
            shares[entry] = max(share, shares.get(entry, share))
    return shares


def gained(shares: Iterable[float]) -> float:
    """The sum of the gains, whatever the losses."""
    return sum(max(share, 0.0) for share in shares)


def gain(before: float | None, after: float | None) -> float | None:
    """The share of a latency that was taken away."""
    return None if before is None or after is None else 1 - after / before


def percent(share: float) -> str:
    """'+73.9 %', or '41.1x as long' where more was added than there was."""
    if share < -1:
        return f"{1 - share:.1f}x as long"
    return f"{round(100 * share, 1) + 0.0:+.1f} %"
