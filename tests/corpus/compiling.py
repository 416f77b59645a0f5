"""Compiles changed kernels of the corpus for Hopper, as far as their arguments can be guessed.

No launch of a corpus kernel is run, so the types of its parameters are guessed from its source and
the guess is tried on the original first: only where that compiles does the changed kernel have to.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.analysis.common.dialect import Kernel
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.pointers import root
from agent.harness.processes.variables import worker_environment
from agent.syntax import Source, Untraceable, argument
from benchmarks.corpus import DEPENDENCIES, cache, fetch
from tests.corpus.survey import Survey

PROGRAM = Path(__file__).with_name("compile_guessed.py")
ADDRESSED = (*TRITON.loads, *TRITON.stores, "triton.language.make_block_ptr",
             "triton.language.make_tensor_descriptor")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One kernel, before and after an entry changed its file."""

    entry: str
    root: str
    """The folder that holds the project's package."""
    file: str
    after: str
    """The changed text."""
    kernel: str
    pointers: tuple[str, ...]
    constants: dict[str, int]
    """Those that a launch in the file gives literally."""


def jobs(project: Path, found: Survey) -> Iterator[Job]:
    """The kernels of a file that each entry changed, as its last variant did."""
    if not found.applied:
        return
    before = Source(found.path.read_text(encoding="utf-8"))
    for entry, made in found.applied.items():
        after = made[-1][1]
        changed = _changed(before.text, after)
        for kernel in TRITON.launched(before):
            reached = {f.name for f in TRITON.reached(before, kernel)}
            if reached & changed and "." not in kernel.name:
                yield Job(
                    entry=entry,
                    root=str(project),
                    file=str(found.path),
                    after=after,
                    kernel=kernel.name,
                    pointers=tuple(_pointers(before, kernel)),
                    constants=_constants(before, kernel),
                )


def compile_jobs(
    wanted: Iterable[Job], folder: Path, timeout_s: float, limit: int = -1
) -> list[dict[str, str]]:
    """What became of each, in an empty folder: its `outcome` and the `reason`.

    'compiled', 'broken' (only the original compiles), 'no guess' (not even the original), or
    'not needed', when its entry has compiled `limit` times. Those left when the time is over, or
    when the compiler takes its process down, are missing.
    """
    listed = list(wanted)
    task = folder / "jobs.json"
    task.write_text(json.dumps({"jobs": [asdict(job) for job in listed], "limit": limit}))
    paths = [str(fetch(*dependency, cache())) for dependency in DEPENDENCIES]
    environment = worker_environment(
        os.environ,
        {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder), "CUDA_VISIBLE_DEVICES": ""},
    )
    command = [sys.executable, str(PROGRAM), str(task), *paths]
    with (folder / "results").open("w+") as results:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                stdout=results,
                stderr=subprocess.DEVNULL,
                env=environment,
                timeout=timeout_s,
            )
        results.seek(0)
        lines = [line for line in results if line.startswith("{")]
    return [
        json.loads(line) | {"entry": job.entry, "file": job.file, "kernel": job.kernel}
        for job, line in zip(listed, lines, strict=False)
    ]


def _changed(before: str, after: str) -> set[str]:
    """The functions that are not what they were, decorators included."""

    def dumped(text: str) -> dict[str, str]:
        functions = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef))
        return {node.name: ast.dump(node) for node in functions}

    old, new = dumped(before), dumped(after)
    return {name for name, dump in old.items() if new.get(name) != dump}


def _pointers(source: Source, kernel: Kernel) -> Iterator[str]:
    for call in TRITON.find(source, kernel.function.node.body, ADDRESSED):
        address = argument(call, 0, "pointer") or argument(call, 0, "base")
        parameter = address and root(source, kernel, address)
        if parameter:
            yield parameter
    for parameter in kernel.function.parameters:
        if parameter.name.value.endswith("ptr"):
            yield parameter.name.value


def _constants(source: Source, kernel: Kernel) -> dict[str, int]:
    found = {}
    for launch in kernel.launches:
        for name, value in launch.arguments.items():
            if name in kernel.constants:
                try:
                    found[name] = source.trace(value).value
                except Untraceable:
                    continue
    return found
