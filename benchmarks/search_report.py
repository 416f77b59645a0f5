"""Writes the results of `benchmarks.search` as Markdown. Pure: a dict in, a text out.

The results are kernel -> record: `config`, `environment`, `experts` (their packages' versions),
`command`, `method`, `problem`, `faults`, `spent_s`; `references`, label -> `latency_ms` and
`error`, or `why` there is none; `evals`, key -> the same of a candidate with its `steps` from the
origin and the `pass` that it came up in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from benchmarks.tables import (
    NO_SLOWER,
    NONE,
    OWN,
    escaped,
    geometric_mean,
    machines,
    markdown,
    milliseconds,
    no_slower,
    ratio,
    row,
    with_ratios,
)

TITLES = {"cutile": "cuTile", "triton": "Triton"}
NEAR = 0.01
"""How near to the end of a path counts as there, as a fraction of the latency."""
LATENCIES = ["origin", "best", "torch", "torch.compile", "expert"]
RATIOS = {
    "origin / best": ("origin", "best"),
    "torch.compile / best": ("torch.compile", "best"),
    "expert / best": ("expert", "best"),
}
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
        found = latencies(timed)
        lines += [*overview(found), "", *legend(timed), "", *summary(found), ""]
        lines += [f"### {title}: best paths", "", *paths(timed), ""]
        lines += [f"### {title}: each entry on the first pass", "", *entries(timed), ""]
    if missing := troubles(records):
        lines += [f"### {title}: not timed", "", *missing, ""]
    return lines


def latencies(records: dict[str, Record]) -> pd.DataFrame:
    """A row for each kernel: latencies in ms, their ratios, and how many versions were timed."""
    found = pd.DataFrame(
        {
            "kernel": name,
            "config": record["config"],
            "origin": origin(record),
            "best": best(record),
            "again": reference(record, "origin"),
            **{of: reference(record, of) for of in OWN[2:]},
            **dict(zip(("fastest expert", "expert"), expert(record), strict=True)),
            "candidates": str(len(candidates(record))),
        }
        for name, record in records.items()
    )
    return with_ratios(found.astype(dict.fromkeys(["again", *LATENCIES], float)), RATIOS)


def overview(found: pd.DataFrame) -> list[str]:
    """A row for each kernel, and the geometric means."""
    cells = found[["kernel", "config"]].copy()
    cells[[f"{'best found' if of == 'best' else of}, ms" for of in LATENCIES]] = found[
        LATENCIES
    ].map(milliseconds)
    cells["fastest expert"] = found["fastest expert"].map(lambda label: escaped(label) or NONE)
    cells[list(RATIOS)] = found[list(RATIOS)].map(ratio)
    cells["candidates"] = found["candidates"]
    means = geometric_mean(found[list(RATIOS)]).map(ratio)
    last = ["**geometric mean**", *[""] * (len(LATENCIES) + 2), *means, ""]
    return [*markdown(cells, left=("kernel", "config", "fastest expert")), row(last)]


def legend(records: dict[str, Record]) -> list[str]:
    """What the columns mean."""
    methods = " or ".join(dict.fromkeys(record["method"] for record in records.values()))
    return [
        f"Latencies: {methods}. A ratio a / b above 1 says that b is faster. Candidates are the "
        "versions that agreed and were timed, without the origin."
    ]


def summary(found: pd.DataFrame) -> list[str]:
    """The figures that the table is there for, and how well a timing repeats."""
    mean = geometric_mean(found[list(RATIOS)])["origin / best"]
    lines = [f"- Geometric mean over the origin: **{ratio(mean)}** ({len(found)} kernels)."]
    for rival in ("expert", "torch.compile"):
        level, known = no_slower(found[f"{rival} / best"])
        faster = (1 / found[f"{rival} / best"] < 1 - NO_SLOWER).sum()
        lines.append(
            f"- No slower than {'the fastest expert' if rival == 'expert' else rival}, within "
            f"{NO_SLOWER:.0%}: **{level} of {known}**; faster by more than that: {faster}."
        )
    again = (1 - found["again"] / found["origin"]).abs().set_axis(found["kernel"]).dropna()
    if len(again):
        lines.append(
            "- The origin was timed twice, in two processes. The two timings differ by "
            f"{again.median():.1%} in the median kernel and by {again.max():.1%} in "
            f"{again.idxmax()}, the most."
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
    tried = pd.DataFrame(
        [
            (entry, name, share)
            for name, record in records.items()
            for entry, share in first_pass(record).items()
        ],
        columns=["entry", "kernel", "share"],
    )
    shares = tried.sort_values("share", ascending=False, kind="stable").groupby("entry")
    gained = tried["share"].clip(lower=0).groupby(tried["entry"], sort=False).sum()
    order = gained.sort_values(ascending=False, kind="stable").index
    lines = [
        "The best variant of each entry, on top of what the pass had gained before it came to it.",
        "",
        row(["entry", "kernels", "share of the latency that it took away"]),
        row([":--", "--:", ":--"]),
    ]
    for entry in order:
        group = shares.get_group(entry)
        told = ", ".join(group["kernel"] + " " + group["share"].map(percent))
        lines.append(row([escaped(entry), str(len(group)), told]))
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


def gain(before: float | None, after: float | None) -> float | None:
    """The share of a latency that was taken away."""
    return None if before is None or after is None else 1 - after / before


def percent(share: float) -> str:
    """'+73.9 %', or '41.1x as long' where more was added than there was."""
    if share < -1:
        return f"{1 - share:.1f}x as long"
    return f"{round(100 * share, 1) + 0.0:+.1f} %"
