"""Writes the results of `benchmarks.playbook` as Markdown. Pure: a dict in, a text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from agent.environment import describe

OWN = ("origin", "best", "torch", "torch.compile")
"""Versions that every kernel has; the others are experts'."""
NO_SLOWER = 0.02
"""What tile-agent takes for no slower, as a fraction of the latency."""
MOST = 0.9
"""The part of a run's gain that is most of it."""
CURVE_S = (30, 60, 90, 120, 150, 200, 300)
"""Seconds from the start of a run at which it is told how much of its gain it had."""
NONE = "-"
RATIOS = {
    "origin / best": ("origin", "best"),
    "torch / origin": ("torch", "origin"),
    "torch / best": ("torch", "best"),
    "torch.compile / best": ("torch.compile", "best"),
    "expert / best": ("expert", "best"),
}

Timing = dict[str, Any]
Record = dict[str, Any]


def report(results: dict[str, Any]) -> str:
    """The whole document."""
    records: dict[str, Record] = results["kernels"]
    timed = {key: record for key, record in records.items() if record.get("timings")}
    lines = ["# The playbook on kernels as first written", ""]
    lines += [f"Measured on: {machine}" for machine in machines(records.values())]
    lines += ["", "```sh", *dict.fromkeys(results["commands"]), "```", ""]
    if timed:
        found = latencies(timed)
        lines += [*overview(found), "", *legend(timed), ""]
        lines += [*summary(found), *pace(timed.values()), ""]
    for key, record in records.items():
        lines += [*section(key, record), ""]
    return "\n".join(lines)


def machines(records: Iterable[Record]) -> list[str]:
    """Each machine that a kernel was measured on, with the versions of what was measured."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        if environment := record.get("environment"):
            experts = [e for timing in record.get("timings", ()) for e in timing["experts"].items()]
            versions = [f"{name} {version}" for name, version in experts]
            found.setdefault(describe(environment), {}).update(dict.fromkeys(versions))
    return ["; ".join([machine, *experts]) for machine, experts in found.items()]


def overview(found: pd.DataFrame) -> list[str]:
    """A row for each config, and the geometric means."""
    names = [*OWN, "expert"]
    cells = found[["kernel", "config"]].copy()
    cells[[f"{name}, ms" for name in names]] = found[names].map(milliseconds)
    cells[list(RATIOS)] = found[list(RATIOS)].map(ratio)
    cells["best reaches"] = found.apply(reached, axis="columns")
    means = geometric_mean(by_kernel(found)).map(ratio)
    last = ["**geometric mean**", *[""] * (len(names) + 1), *means, ""]
    return [*markdown(cells, left=("kernel", "config")), row(last)]


def legend(records: dict[str, Record]) -> list[str]:
    """What the columns mean."""
    timing = next(iter(records.values()))["timings"][0]
    return [
        f"Latencies: {timing['method']}; all versions of a kernel in one process, in turn, "
        f"{timing['rounds']} rounds of one block each; the median of the blocks' medians. A ratio "
        "a / b above 1 says that b is faster. The expert is the fastest of the versions named with "
        "each kernel. A kernel with several configs counts once in the geometric mean.",
    ]


def summary(found: pd.DataFrame) -> list[str]:
    """The figures that the table is there for."""
    kernels = by_kernel(found)
    speedup = geometric_mean(kernels)["origin / best"]
    level, against = no_slower(kernels["expert / best"])
    kept_up, known = no_slower(kernels["torch.compile / best"])
    return [
        f"- Geometric mean over the origin: **{ratio(speedup)}** ({len(kernels)} kernels).",
        f"- No slower than the expert, within {NO_SLOWER:.0%}: **{level} of {against}** "
        "kernels of which there is an expert's version.",
        f"- No slower than torch.compile, within {NO_SLOWER:.0%}: **{kept_up} of {known}**.",
    ]


def pace(records: Iterable[Record]) -> list[str]:
    """How long runs took, and how soon they had most of what they gained."""
    ended = [record for record in records if not record["cut"]]
    if not ended:
        return []
    lines = [
        f"- Median time of the {len(ended)} runs that ended by themselves: "
        f"**{np.median([r['spent_s'] for r in ended]):.0f} s**."
    ]
    soon_s = [at_s for record in ended if (at_s := most_gained_s(record)) is not None]
    if soon_s:
        lines.append(
            f"- {MOST:.0%} of the final gain after **{np.median(soon_s):.0f} s**, the median of "
            f"the {len(soon_s)} runs that gained."
        )
        lines += ["", *curve(ended)]
    return lines


def curve(records: Iterable[Record]) -> list[str]:
    """The part of their final gain that runs had after some seconds: the median over the runs."""
    gaining = [record for record in records if most_gained_s(record) is not None]
    parts = [[gained_by(record, at_s) for record in gaining] for at_s in CURVE_S]
    return [
        row(["seconds from the start", *map(str, CURVE_S)]),
        row([":--", *["--:"] * len(CURVE_S)]),
        row(["of the final gain, median", *(f"{np.median(each):.0%}" for each in parts)]),
    ]


def gained_by(record: Record, at_s: float) -> float:
    """The part of a run's final gain that it had kept by then."""
    kept = [row for row in record["rows"] if row["status"] == "keep" and row["latency_ms"]]
    first, last = kept[0]["latency_ms"], kept[-1]["latency_ms"]
    now = [row["latency_ms"] for row in kept if row["ended_s"] <= at_s]
    return float((first - now[-1]) / (first - last)) if now else 0.0


def most_gained_s(record: Record) -> float | None:
    """When most of a run's gain was kept, in seconds from its start; None where there is none."""
    kept = [row for row in record["rows"] if row["status"] == "keep" and row["latency_ms"]]
    if len(kept) < 2 or any("ended_s" not in row for row in kept):
        return None
    first, last = kept[0]["latency_ms"], kept[-1]["latency_ms"]
    enough = (row for row in kept if first - row["latency_ms"] >= MOST * (first - last))
    return float(next(enough)["ended_s"]) if last < first else None


def section(key: str, record: Record) -> list[str]:
    """One kernel: what each optimization did, and what the versions took."""
    lines = [f"## {key}", ""]
    if problem := record.get("problem"):
        return [*lines, f"Not run: {problem}"]
    kept = [r["optimization"] for r in record["rows"][1:] if r["status"] == "keep"]
    ended = "cut off at its deadline" if record["cut"] else record["stopped"]
    lines += [
        f"{record['kernel_class']}, by its source; {record['spent_s']:.0f} s; {ended}. "
        f"Kept: {', '.join(kept) or 'nothing'}.",
        "",
        row(["iteration", "optimization", "latency_ms", "status", "less time", "why"]),
        row(["--:", ":--", "--:", ":--", "--:", ":--"]),
    ]
    lines += [
        row(
            [
                str(r["iteration"]),
                r["optimization"],
                NONE if r["latency_ms"] is None else f"{r['latency_ms']:.6f}",
                r["status"],
                effect(r["effect"]),
                "" if r["effect"] else escaped(r["reason"]),
            ]
        )
        for r in record["rows"]
    ]
    lines += ["", f"Origin against best, in fresh processes: {effect(record['final'])}."]
    if record["faded"]:
        lines.append(f"A gain that did not show again: iterations {record['faded']}.")
    for timing in record.get("timings", ()):
        lines += ["", *versions(timing)]
    if why := record.get("untimed"):
        lines += ["", f"Not timed side by side: {why}"]
    if record["skipped"]:
        lines += ["", "Does not apply:", ""]
        lines += [f"- {s['optimization']}: {s['reason']}" for s in record["skipped"]]
    return lines


def versions(timing: Timing) -> list[str]:
    """The latency of each version of one config, or why it has none."""
    lines = [
        row([timing["config"], "ms", "quartiles, ms", "off fp64 by"]),
        row([":--", "--:", ":--", "--:"]),
    ]
    for label, found in timing["versions"].items():
        if found.get("latency_ms") is None:
            lines.append(row([label, NONE, escaped(found["why"]), NONE]))
        else:
            low, high = found["quartiles_ms"]
            between = f"{low:.6f} to {high:.6f}"
            cells = [label, milliseconds(found["latency_ms"]), between, f"{found['error']:.2g}"]
            lines.append(row(cells))
    return lines


# --- figures ------------------------------------------------------------------------------------


def latencies(records: Mapping[str, Record]) -> pd.DataFrame:
    """A row for each config of a kernel: the versions' latencies in ms, and their ratios.

    The expert is the fastest of the experts' versions.
    """
    timings = [(key, timing) for key, record in records.items() for timing in record["timings"]]
    configs = pd.DataFrame(
        {"kernel": key, **{name: timing[name] for name in ("config", "work", "unit")}}
        for key, timing in timings
    )
    versions = pd.DataFrame.from_records(
        [
            {label: found.get("latency_ms") for label, found in timing["versions"].items()}
            for _, timing in timings
        ]
    ).astype(float)
    experts = versions.drop(columns=list(OWN), errors="ignore").min(axis="columns")
    found = configs.join(versions.reindex(columns=OWN)).assign(expert=experts)
    return with_ratios(found, RATIOS)


def with_ratios(found: pd.DataFrame, ratios: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """The latencies with a column for each ratio of two of them."""
    return found.assign(**{name: found[a] / found[b] for name, (a, b) in ratios.items()})


def by_kernel(found: pd.DataFrame) -> pd.DataFrame:
    """The ratios of each kernel: geometric means over its configs, where there are any."""
    logs = found[list(RATIOS)].apply(np.log)
    return logs.groupby(found["kernel"], sort=False).mean().apply(np.exp)


def geometric_mean(ratios: pd.DataFrame) -> pd.Series[float]:
    """Of each column, over what there is in it."""
    return ratios.apply(np.log).mean().apply(np.exp)


def no_slower(ratios: pd.Series[float]) -> tuple[int, int]:
    """In how many kernels a ratio over the best is no loss, and how many have the ratio."""
    known = ratios.dropna()
    return int((1 / known <= 1 + NO_SLOWER).sum()), len(known)


def reached(config: pd.Series[Any]) -> str:
    """The least work there is to do, by the best latency: '3.86 TB/s'."""
    if pd.isna(config["best"]):
        return NONE
    unit = {"B": "TB/s", "FLOP": "TFLOP/s"}[config["unit"]]
    return f"{config['work'] / config['best'] / 1e9:.3g} {unit}"


# --- text ---------------------------------------------------------------------------------------


def markdown(cells: pd.DataFrame, left: Sequence[str]) -> list[str]:
    """A table of texts; all columns but those named are set to the right."""
    rule = [":--" if name in left else "--:" for name in cells]
    lines: list[list[str]] = [list(cells), rule, *cells.to_numpy().tolist()]
    return [row(line) for line in lines]


def row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def milliseconds(value: float) -> str:
    """'0.1139', or a dash."""
    return NONE if pd.isna(value) else f"{value:.4f}"


def ratio(value: float) -> str:
    """'4.55x', or a dash."""
    return NONE if pd.isna(value) else f"{value:.2f}x"


def effect(found: dict[str, float] | None) -> str:
    """'+73.8 % [+73.7, +73.9]', or a dash."""
    if found is None:
        return NONE
    improvement, low, high = (100 * found[key] for key in ("improvement", "low", "high"))
    return f"{improvement:+.1f} % [{low:+.1f}, {high:+.1f}]"


def escaped(text: str) -> str:
    """For a cell of a table."""
    return text.replace("|", "\\|")
