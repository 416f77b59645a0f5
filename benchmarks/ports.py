"""How much of public Triton code `port` translates: `python -m benchmarks.ports [NAME ...]`.

Asks it about every file with Triton kernels of the projects of `benchmarks.corpus`, runs nothing,
and prints how many files of each are ported, and what is refused most often. NAME: a beginning.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from libcst import ParserSyntaxError

from agent.analysis.triton.dialect import TRITON
from agent.porting import NotPortable, port
from agent.syntax import Source
from benchmarks.corpus import MORE_PROJECTS, PROJECTS, VENDORS, cache, fetch

MOST_TOLD = 20
OTHER_MAKERS = (VENDORS, "_ascend", "_vendor")


def kernel_files(root: Path) -> Iterator[tuple[Path, str]]:
    """The files of a project that hold Triton kernels, and their texts."""
    for file in sorted(root.rglob("*.py")):
        if any(part in file.as_posix() for part in OTHER_MAKERS):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if "jit" not in text:
            continue
        try:
            found = TRITON.kernels(Source(text, str(file)))
        except ParserSyntaxError:
            continue
        if found:
            yield file, text


def main(names: list[str]) -> None:
    """Count, project by project."""
    refusals: Counter[str] = Counter()
    for project, version in (*PROJECTS, *MORE_PROJECTS):
        if names and not project.startswith(tuple(names)):
            continue
        ported = refused = 0
        for file, text in kernel_files(fetch(project, version, cache())):
            try:
                port(text, str(file))
            except NotPortable as reason:
                refusals[reason.construct] += 1
                refused += 1
            else:
                ported += 1
        print(f"{project} {version}: {ported} of {ported + refused} files are ported", flush=True)
    for construct, count in refusals.most_common(MOST_TOLD):
        print(f"{count:5d}  {construct}")


if __name__ == "__main__":
    main(sys.argv[1:])
