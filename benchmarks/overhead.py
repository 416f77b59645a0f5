"""What the loop itself costs: an iteration against the same pytest commands run by hand.

    python benchmarks/overhead.py OUT [EXAMPLE]

Runs tile-agent on an example (cutile_softmax) to its end, takes the wall time of every complete
iteration from the journal, and counts the pytest sessions in it: one a variant that is looked at,
one for correctness, two a process pair. Looks before a choice have a line of their own. By hand
each session would be a fresh `python -m pytest`; one correctness and one perf command are timed
that way, three times each, and the medians multiplied.
Writes OUT/overhead.md.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from agent.environment import describe, probe
from agent.events import Gathered, Measured, Proposed, Scouted, Screened, Settled, Verified
from agent.journal import read
from benchmarks.examples import run

LOOKS = "looks before a choice"


def main() -> int:
    """Run, count, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("example", nargs="?", default="cutile_softmax")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if run(arguments.example, out) != 0:
        return 1
    work = out / "work" / arguments.example
    (journal,) = (work / "sandbox" / "runs").glob("*/journal.jsonl")
    backend = arguments.example.partition("_")[0]
    correctness_s = by_hand(work, f"test_ and {backend} and not test_perf")
    perf_s = by_hand(work, f"test_perf and {backend}")

    lines = [
        f"Measured on: {describe(probe().to_json())}",
        "",
        f"`{arguments.example}`: one correctness command by hand takes {correctness_s:.1f} s, one "
        f"perf command {perf_s:.1f} s (medians of 3, fresh processes, warm JIT caches).",
        "",
        "| iteration | pytest sessions | by hand, s | loop, s | share |",
        "|:--|--:|--:|--:|--:|",
    ]
    spent_s: list[float] = []
    for name, perf, correctness, took_s in iterations(journal):
        hand_s = perf * perf_s + correctness * correctness_s
        spent_s.append(took_s)
        lines.append(
            f"| {name} | {correctness} + {perf} | {hand_s:.0f} | {took_s:.1f} "
            f"| {took_s / hand_s:.0%} |"
        )
    tried = sum(name != LOOKS for name, *_ in iterations(journal))
    rate = 3600 * tried / sum(spent_s)
    lines += ["", f"{rate:.0f} complete iterations an hour."]
    (out / "overhead.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def iterations(journal: Path) -> list[tuple[str, int, int, float]]:
    """Complete iterations: optimization, perf sessions, correctness sessions, wall time in s."""
    found = []
    name, perf, correctness, took_s = "", 0, 0, 0.0
    seen: set[str] = set()
    for event in (entry.event for entry in read(journal)):
        if isinstance(event, Proposed | Gathered):
            name = event.optimization if isinstance(event, Proposed) else LOOKS
            perf, correctness, took_s = 0, 0, 0.0
        took_s += event.took_s
        match event:
            case Scouted():
                seen |= {result.sha for result in event.results}
                found.append((LOOKS, len(event.results), 0, took_s))
            case Screened():
                perf += len({result.sha for result in event.results} - seen)
            case Verified():
                correctness += 1 + len(event.rejected)
            case Measured():
                perf += 2 * event.comparison.pairs
            case Settled() if perf:
                found.append((name, perf, correctness, took_s))
    return found


def by_hand(work: Path, expression: str) -> float:
    """The wall time of a pytest command in a fresh process, in s."""
    plugin = ["-p", "no:tile_agent", "-p", "tile_agent_pytest.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin]
    times = []
    for _ in range(3):
        begin = time.monotonic()
        subprocess.run(
            [*command, "-k", expression], cwd=work, check=True, stdout=subprocess.DEVNULL
        )
        times.append(time.monotonic() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
