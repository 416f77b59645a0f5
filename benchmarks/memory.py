"""Runs the loop twice on each kernel, and says what the second run makes of the first one's memory.

    python -m benchmarks.memory OUT KERNEL [KERNEL ...] [-- OPTION ...]

KERNEL is a file with its tests in the same folder or below it, such as
`examples/triton_softmax/softmax.py`. The folder is copied into a git repository of its own under
OUT/work; both runs begin with the same code, the second knows the journal of the first. OPTIONs are
those of `tile-agent run`. OUT/memory.md holds the table, OUT/memory.json the figures with the time
of each phase, OUT/<kernel>-<run>.log what the runs said. Runs on a GPU, or in the interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.attempts import PastAttempt, attempts
from agent.events import Event
from agent.journal import read, replay
from agent.measuring.decision import Status
from agent.report.document import KernelTexts
from agent.repository import Repository
from benchmarks.loop_run import environment

RUNS = ("first", "second")
HEAD = ("kernel", "tried", "failed", "tried again", "failed again", "first", "second", "ratio")


def main() -> int:
    """All kernels, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="+", type=Path)
    given, _, options = _split(sys.argv[1:])
    arguments = parser.parse_args(given)
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    records = [twice(kernel.resolve(), out, options) for kernel in arguments.kernels]
    (out / "memory.json").write_text(json.dumps(records, indent=2))
    text = table(records)
    (out / "memory.md").write_text(text)
    print(text, end="")
    return 0


def _split(words: Sequence[str]) -> tuple[Sequence[str], str, Sequence[str]]:
    """What stands before `--`, that, and what stands behind it."""
    at = list(words).index("--") if "--" in words else len(words)
    return words[:at], "--", words[at + 1 :]


def twice(kernel: Path, out: Path, options: Sequence[str]) -> dict[str, Any]:
    """Two runs on one kernel, and what they amount to, as plain JSON."""
    repository = _repository(kernel.parent, out / "work" / kernel.parent.name / kernel.stem)
    seconds, known = [], set[Path]()
    events: list[list[Event]] = []
    for name in RUNS:
        command = [sys.executable, "-m", "agent", "run", "--yes", "--kernel", kernel.name]
        begun = time.monotonic()
        with (out / f"{kernel.stem}-{name}.log").open("w") as log:
            subprocess.run(
                [*command, "--branch", name, *options],
                cwd=repository,
                stdout=log,
                stderr=log,
                env=environment() | {"TILE_AGENT_STATE_DIR": str(repository.parent / "state")},
                check=False,  # 3: no improvement; a run that says less has no journal
            )
        seconds.append(round(time.monotonic() - begun, 1))
        journals = set(repository.glob("sandbox/runs/*/journal.jsonl"))
        (journal,) = journals - known
        known |= journals
        events.append([entry.event for entry in read(journal)])
    texts = KernelTexts(Repository.open(repository), kernel.name)
    return {"kernel": kernel.stem, "seconds": seconds} | compared(events, texts)


def compared(events: Sequence[Sequence[Event]], texts: KernelTexts) -> dict[str, Any]:
    """What two runs tried, and what of it the second one tried although it had failed.

    Args:
        events: of the first run and of the second.
        texts: of the kernel's file in a commit.
    """
    first, second = (list(attempts(each)) for each in events)
    failed = {texts.text(a.after): a for a in first if a.status is not Status.KEEP}
    for attempt in first:
        if attempt.status is Status.KEEP:
            failed.pop(texts.text(attempt.after), None)
    again = [a for a in second if texts.text(a.after) in failed]
    return {
        "tried": [len(first), len(second)],
        "failed": len(failed),
        "tried_again": [_told(failed[texts.text(a.after)]) for a in again],
        "failed_again": [
            _told(a)
            for a in again
            if failed[texts.text(a.after)].failed  # beyond doubt
        ],
        "kept": [[row.optimization for row in replay(each).kept] for each in events],
        "phases_s": [_rounded(replay(each).spent_by_phase_s) for each in events],
    }


def _told(attempt: PastAttempt) -> str:
    return f"{attempt.title}: {attempt.reason}"


def _rounded(spent_s: Mapping[str, float]) -> dict[str, float]:
    return {phase: round(seconds, 1) for phase, seconds in spent_s.items()}


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """The figures as Markdown, with what they mean."""
    lines = [_row(HEAD), _row(["---"] * len(HEAD)), *map(_row, map(_figures, records))]
    lines += [
        "",
        "Tried: candidates of the first run and of the second, with each variant of a sweep.",
        "Failed: those of the first run that were not kept. Tried again: these in the second run;",
        "their comparison had left a gain possible, unless they stand under failed again.",
        "Seconds are those of the commands, from start to end.",
    ]
    return "\n".join(lines) + "\n"


def _figures(record: Mapping[str, Any]) -> Iterator[str]:
    first_s, second_s = record["seconds"]
    tried = record["tried"]
    yield record["kernel"]
    yield f"{tried[0]}, {tried[1]}"
    yield str(record["failed"])
    yield str(len(record["tried_again"]))
    yield str(len(record["failed_again"]))
    yield f"{first_s:.1f} s"
    yield f"{second_s:.1f} s"
    yield f"{second_s / first_s:.2f}"


def _row(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _repository(folder: Path, work: Path) -> Path:
    """A copy of a kernel's folder under git."""
    shutil.rmtree(work.parent, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    shutil.copytree(folder, work, ignore=ignored)
    identity = ["-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "--all"],
        [*identity, "commit", "--quiet", "--no-gpg-sign", "--message", "As first written"],
    ):
        subprocess.run(["git", "-C", os.fspath(work), *command], check=True)
    return work


if __name__ == "__main__":
    sys.exit(main())
