"""Puts small faults into kernels and counts which of them the tests, and the judge, refuse.

    python -m benchmarks.mutations --out OUT [--count 200] [--seed 0] [--kernels softmax ...]
                                   [--device cpu|cuda] [--limit-s 600]

Each mutant is a Triton kernel of the benchmark or of the examples with one fault. The judge
verifies it as it does a candidate. A mutant that the tests let pass is run beside its origin, at
the shapes that the tests name and those that are timed: if no result differs by more than rounding
it is no fault. With `--device cpu` kernels run in Triton's interpreter, and at small shapes in
place of the timed ones. Kernels of cuTile (`--kernels cutile`) need a GPU.

OUT/rows/ holds a CSV file for each kernel, written after every mutant, and OUT/mutations.md the
tables. A mutant whose row is there is not judged again, so that a run that was ended goes on; and
several processes may share OUT as long as no two of them name the same kernel.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from agent.environment import probe
from agent.errors import UsageError
from benchmarks.mutants import Mutant, choose, origins
from benchmarks.mutation_judging import Row, bench
from benchmarks.mutation_report import report, table
from benchmarks.spec import replace_whole

COUNT = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the mutants that are missing, and print the tables. Returns 1 where one is left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", nargs="+", default=[])
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    has_gpu = probe().gpu is not None
    if options.device == "cuda" and not has_gpu:
        parser.error("there is no NVIDIA GPU here: name --device cpu")
    try:
        wanted = origins(options.kernels)
    except ValueError as problem:
        parser.error(str(problem))
    if not has_gpu and any(origin.framework == "cutile" for origin in wanted):
        parser.error("kernels of cuTile run on a GPU only: name Triton kernels with --kernels")
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    mutants = choose(wanted, options.count, options.seed)
    ends = time.monotonic() + options.limit_s
    left = sum(judge_all(of_one, out, ends) for of_one in by_kernel(mutants).values())
    rows = read(sorted((out / "rows").glob("*.csv")))
    if len(rows):
        replace_whole(out / "mutations.md", report(rows))
        for column in ("kernel", "mutator"):
            print("\n".join(table(rows, column)), end="\n\n")
    if left:
        print(f"{left} of {len(mutants)} mutants are left: call it again")
    return 1 if left else 0


def by_kernel(mutants: Iterable[Mutant]) -> dict[str, list[Mutant]]:
    """The mutants of each kernel, in their order."""
    found: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        found.setdefault(mutant.origin.key, []).append(mutant)
    return found


def judge_all(
    mutants: Sequence[Mutant], out: Path, ends: float, python: str = sys.executable
) -> int:
    """Judge the mutants of one kernel that have no row yet. Returns how many are left."""
    origin = mutants[0].origin
    path = out / "rows" / f"{origin.key.replace('/', '_')}.csv"
    known = read([path]) if path.exists() else pd.DataFrame(columns=["mutant"])
    missing = [mutant for mutant in mutants if mutant.key not in set(known["mutant"])]
    rows: list[Mapping[Any, Any]] = [*known.to_dict("records")]
    if not missing or time.monotonic() > ends:
        return len(missing)
    os.environ["TILE_AGENT_STATE_DIR"] = str(out / "state" / path.stem)  # its locks are its own
    try:
        with bench(origin, out / "work", python) as ready:
            while missing and time.monotonic() < ends:
                row = ready.judge(missing.pop(0))
                rows.append(row.to_dict())
                path.parent.mkdir(exist_ok=True)
                replace_whole(path, pd.DataFrame(rows).to_csv(index=False))
                print(told(row), file=sys.stderr)
    except UsageError as problem:
        print(f"{origin.key}: {problem}", file=sys.stderr)
    return len(missing)


def read(paths: Iterable[Path]) -> pd.DataFrame:
    """The rows of these files, every cell a text."""
    found = [pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def told(row: Row) -> str:
    """A line of progress."""
    fate = f"caught by {row.caught_by}" if row.caught_by else "passes"
    return f"{row.kernel}:{row.line} {row.mutator}: {row.effect}, {fate}, {row.seconds:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
