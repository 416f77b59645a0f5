"""All of the corpus, or the projects named: `python -m tests.corpus flag-gems`. It takes hours.

Prints every promise that an entry did not keep, every changed kernel that no longer compiles, and
how often each entry applied.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.corpus import DEPENDENCIES, PROJECTS, cache, fetch, files
from tests.corpus.compiling import compile_jobs, jobs
from tests.corpus.survey import Survey, survey

COMPILE_TIMEOUT_S = 60
"""For the kernels of one file; what takes longer is counted."""


def main(names: list[str]) -> int:
    """Returns 1 when something is wrong."""
    applied, refused, outcomes = Counter[str](), Counter[str](), Counter[str]()
    faults, totals = 0, Counter[str]()
    for dependency in DEPENDENCIES:
        fetch(*dependency, cache())
    for project, version in PROJECTS:
        if names and project not in names:
            continue
        folder = fetch(project, version, cache())
        kernels = Counter[str]()
        for path in files(folder):
            found = survey(path)
            kernels.update(files=found.kernels > 0, kernels=found.kernels)
            applied.update([*found.applied, *found.fits])
            refused.update([*found.refused])
            problems, compiled = list(found.faults), _compiled(folder, found)
            outcomes.update(result["outcome"] for result in compiled)
            problems += [
                f"{result['entry']} breaks {result['kernel']}: {result['reason']}"
                for result in compiled
                if result["outcome"] == "broken"
            ]
            faults += len(problems)
            for problem in problems:
                print(f"{path.relative_to(folder)}: {problem}", flush=True)
        totals += kernels
        print(f"{project}: {kernels['files']} files, {kernels['kernels']} kernels", flush=True)
    for name in sorted({*applied, *refused}):
        print(f"{name:26} applies to {applied[name]:4} files, refuses {refused[name]:4}")
    print(f"{dict(totals)}, compilations {dict(outcomes)}, {faults} faults")
    return faults > 0


def _compiled(folder: Path, found: Survey) -> list[dict[str, str]]:
    wanted = list(jobs(folder, found))
    if not wanted:
        return []
    with tempfile.TemporaryDirectory() as work:
        results = compile_jobs(wanted, Path(work), COMPILE_TIMEOUT_S)
    return results + [{"outcome": "not done in time"}] * (len(wanted) - len(results))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
