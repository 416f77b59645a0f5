"""Has every candidate judged, and prints what became of it: `python -m tests.cheats --help`."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from agent.environment import probe
from tests.cheats.arena import Outcome, arena, target_of
from tests.cheats.edits import Edit, honest, refused
from tests.cheats.reasons import KINDS
from tests.support.gpu import watched


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.cheats", description=__doc__)
    parser.add_argument("names", nargs="*", help="paths below tests/cheats, or their beginnings")
    parser.add_argument("--gpu", action="store_true", help="on the GPU of this machine")
    parser.add_argument("--open", action="store_true", help="print the cheats not refused, only")
    parser.add_argument("--pairs", type=int, default=3, help="of a comparison (default: 3)")
    parser.add_argument("--verbose", action="store_true", help="what the static scan says, too")
    asked = parser.parse_args()
    gpu = probe().gpu if asked.gpu else None
    if asked.gpu and gpu is None:
        parser.error("NVML sees no NVIDIA GPU: leave out --gpu")
    edits = [
        edit
        for edit in (*refused(), *honest())
        if (asked.gpu or not edit.needs_gpu)
        and (not asked.names or edit.name.startswith(tuple(asked.names)))
    ]
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        watch = stack.enter_context(closing(watched(gpu))) if gpu else None
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tile-agent-cheats-"))
        ring = stack.enter_context(arena(Path(folder), pairs=asked.pairs, watch=watch))
        for edit in edits:
            begin = time.monotonic()
            outcome = ring.judge(target_of(edit.target), f"{edit.target}.py", edit.text)
            found = group(edit, outcome)
            counts[found] += 1
            if asked.open:
                if edit.kind and not outcome.refused:
                    print(edit.name, flush=True)
                continue
            took_s = time.monotonic() - begin
            print(f"{found:22} {took_s:4.1f} s  {edit.name} [{edit.kind}] {outcome}", flush=True)
            if asked.verbose:
                for warning in outcome.warnings:
                    print(f"{'':30} scan: {warning}")
    if not asked.open:
        print(*(f"{count:4}  {name}" for name, count in sorted(counts.items())), sep="\n")


def group(edit: Edit, outcome: Outcome) -> str:
    """What the outcome means for such a candidate."""
    if not edit.kind:
        return "honest: refused" if outcome.refused or not outcome.decided else "honest: passed"
    if not outcome.refused:
        return "cheat: kept" if outcome.status == "keep" else "cheat: not seen"
    fits = KINDS[edit.kind].explains(outcome.reason)
    return "cheat: refused" if fits else "cheat: other reason"


if __name__ == "__main__":
    main()
