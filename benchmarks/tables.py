"""Writes the results of `benchmarks.playbook` as Markdown. Pure: a dict in, a text out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agent.environment import describe

OWN = ("origin", "best", "torch", "torch.compile")
"""Versions that every kernel has; the others are experts'."""
NO_SLOWER = 0.02
"""What tile-agent takes for no slower, as a fraction of the latency."""
NONE = "-"

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
        lines += [*overview(timed), "", *legend(timed), ""]
        lines += [*summary(timed), ""]
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


def overview(records: dict[str, Record]) -> list[str]:
    """A row for each config, and the geometric means."""
    head = [
        *("kernel", "config", "origin, ms", "best, ms", "torch, ms", "torch.compile, ms"),
        *("expert, ms", "origin / best", "torch / origin", "torch / best"),
        *("torch.compile / best", "expert / best", "best reaches"),
    ]
    lines = [row(head), row([":--", ":--", *["--:"] * (len(head) - 2)])]
    for key, record in records.items():
        for timing in record["timings"]:
            cells = [key, timing["config"]]
            cells += [milliseconds(latency(timing, label)) for label in OWN]
            cells.append(milliseconds(expert(timing)[1]))
            cells += [ratio(measure(timing)) for measure in RATIOS.values()]
            cells.append(reached(timing))
            lines.append(row(cells))
    means = [ratio(mean(records, measure)) for measure in RATIOS.values()]
    lines.append(row(["**geometric mean**", *[""] * 6, *means, ""]))
    return lines


def legend(records: dict[str, Record]) -> list[str]:
    """What the columns mean."""
    timing = next(iter(records.values()))["timings"][0]
    return [
        f"Latencies: {timing['method']}; all versions of a kernel in one process, in turn, "
        f"{timing['rounds']} rounds of one block each; the median of the blocks' medians. A ratio "
        "a / b above 1 says that b is faster. The expert is the fastest of the versions named with "
        "each kernel. A kernel with several configs counts once in the geometric mean.",
    ]


def summary(records: dict[str, Record]) -> list[str]:
    """The figures that the table is there for."""
    speedup = mean(records, RATIOS["origin / best"])
    found = [mean({key: r}, RATIOS["expert / best"]) for key, r in records.items()]
    against = [value for value in found if value is not None]
    level = sum(1 / value <= 1 + NO_SLOWER for value in against)
    compiled = [mean({key: r}, RATIOS["torch.compile / best"]) for key, r in records.items()]
    known = [value for value in compiled if value is not None]
    kept_up = sum(1 / value <= 1 + NO_SLOWER for value in known)
    return [
        f"- Geometric mean over the origin: **{ratio(speedup)}** ({len(records)} kernels).",
        f"- No slower than the expert, within {NO_SLOWER:.0%}: **{level} of {len(against)}** "
        "kernels of which there is an expert's version.",
        f"- No slower than torch.compile, within {NO_SLOWER:.0%}: **{kept_up} of {len(known)}**.",
    ]


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


def latency(timing: Timing, label: str) -> float | None:
    """Of a version, in ms; None where it was not timed."""
    found: float | None = timing["versions"].get(label, {}).get("latency_ms")
    return found


def expert(timing: Timing) -> tuple[str, float | None]:
    """The fastest of the experts' versions."""
    timed = [
        (found, label)
        for label in timing["versions"]
        if label not in OWN and (found := latency(timing, label)) is not None
    ]
    if not timed:
        return "", None
    fastest, label = min(timed)
    return label, fastest


def over(a: float | None, b: float | None) -> float | None:
    """a / b, where there are both."""
    return None if a is None or b is None else a / b


RATIOS: dict[str, Callable[[Timing], float | None]] = {
    "origin / best": lambda t: over(latency(t, "origin"), latency(t, "best")),
    "torch / origin": lambda t: over(latency(t, "torch"), latency(t, "origin")),
    "torch / best": lambda t: over(latency(t, "torch"), latency(t, "best")),
    "torch.compile / best": lambda t: over(latency(t, "torch.compile"), latency(t, "best")),
    "expert / best": lambda t: over(expert(t)[1], latency(t, "best")),
}


def mean(records: dict[str, Record], measure: Callable[[Timing], float | None]) -> float | None:
    """Geometric mean over the kernels, each the geometric mean over its configs."""
    kernels = (geometric_mean(map(measure, r["timings"])) for r in records.values())
    return geometric_mean(kernels)


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Of the values there are; None when there is none."""
    logs = [math.log(value) for value in values if value is not None]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def reached(timing: Timing) -> str:
    """The least work there is to do, by the best latency: '3.86 TB/s'."""
    best = latency(timing, "best")
    if best is None:
        return NONE
    unit = {"B": "TB/s", "FLOP": "TFLOP/s"}[timing["unit"]]
    return f"{timing['work'] / best / 1e9:.3g} {unit}"


# --- text ---------------------------------------------------------------------------------------


def row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def milliseconds(value: float | None) -> str:
    """'0.1139', or a dash."""
    return NONE if value is None else f"{value:.4f}"


def ratio(value: float | None) -> str:
    """'4.55x', or a dash."""
    return NONE if value is None else f"{value:.2f}x"


def effect(found: dict[str, float] | None) -> str:
    """'+73.8 % [+73.7, +73.9]', or a dash."""
    if found is None:
        return NONE
    improvement, low, high = (100 * found[key] for key in ("improvement", "low", "high"))
    return f"{improvement:+.1f} % [{low:+.1f}, {high:+.1f}]"


def escaped(text: str) -> str:
    """For a cell of a table."""
    return text.replace("|", "\\|")
