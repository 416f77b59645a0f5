"""Searches by short timings how far the playbook's entries reach. Needs an NVIDIA GPU.

    python -m benchmarks.search OUT KERNEL [KERNEL ...] [--seconds-per-kernel 250] [--lock FILE]

For each kernel (`softmax`, `cutile/softmax`; `cutile` for all of these) first its references are
timed: the origin, PyTorch, torch.compile and experts' versions. Then the search, whose seconds are
counted, makes passes. A pass begins with a version, tries every entry once with all of its
variants, in the order for the kernel's class, and goes on from each gain at once. The first begins
with the origin, each other one with the fastest version that an entry gave and no pass has begun
with.

This is no decision of the loop. None of the kernel's tests is run, and there are neither process
pairs nor intervals: a candidate counts when it agrees with PyTorch in fp64 on one input, and the
fastest of some hundred short timings looks faster than it is. A search shows in which order the
playbook should stand and how far it reaches; what it finds is for `benchmarks.playbook` to judge.

OUT/<framework>_<name>.json is written after every timing, OUT/search.json and OUT/search.md after
every kernel; OUT/<framework>_<name>/<key>/ holds the candidate of that key. What is timed already
is not timed again, and a kernel whose seconds are spent is left alone. Several processes may share
OUT, and a GPU too when they name one FILE: one of them times at a time then. Not under the lock are
the first launch of a version and what an expert's tuner does, so that both can disturb others; a
GPU for each process is better.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agent.environment import probe
from benchmarks.search_passes import OutOfTime, Search
from benchmarks.search_report import report
from benchmarks.search_timing import METHOD, PREPARE_S, Clock, locked, spoilt
from benchmarks.side_by_side import EXPERT_PACKAGES, installed, makers
from benchmarks.spec import Launch, Spec, find, replace_whole

LEAST_S = 6.0
"""Nothing is begun with less time left."""
ENDED = f"its process ended: a fault, or not done after {PREPARE_S:.0f} s"


def main() -> int:
    """Search on one kernel after the other. Returns 1 when one of them could not be timed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--seconds-per-kernel", type=float, default=250.0)
    parser.add_argument("--lock", type=Path)
    options = parser.parse_args()
    try:
        specs = find(options.kernels)
    except ValueError as problem:
        parser.error(str(problem))
    if probe().gpu is None:
        parser.error("there is no NVIDIA GPU to time anything on")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))
    options.out.mkdir(parents=True, exist_ok=True)
    records = [Record(options.out, spec) for spec in specs]
    for record in records:
        record.describe(f"python -m benchmarks.search {shlex.join(sys.argv[1:])}")
        print(f"{record.spec.key}: {options.seconds_per_kernel:.0f} s", flush=True)
        do(record, options.seconds_per_kernel, options.lock)
        collect(options.out)
    return 1 if any(record.data["problem"] for record in records) else 0


class Record:
    """OUT/<framework>_<name>.json: what is known of a kernel, and what is being timed."""

    def __init__(self, out: Path, spec: Spec) -> None:
        """Read what is there already."""
        self.spec = spec
        self.candidates = out / f"{spec.framework}_{spec.name}"
        self.file = self.candidates.with_suffix(".json")
        self.data: dict[str, Any] = {"references": {}, "evals": {}, "faults": {}}
        self.data |= {"spent_s": 0.0, "pending": None, "problem": None}
        self.load()

    def load(self) -> None:
        """Read it, again where another process wrote it."""
        if self.file.exists():
            self.data |= json.loads(self.file.read_text())

    def describe(self, command: str) -> None:
        """Note where and how it is timed."""
        experts = {name: version for name in EXPERT_PACKAGES if (version := installed(name))}
        about = {"command": command, "environment": probe().to_json(), "experts": experts}
        self.data |= {**about, "method": METHOD, "problem": None}
        self.store()

    def begin(self, kind: str, key: str, about: dict[str, Any]) -> None:
        """Note what is timed next, in case that ends the process."""
        self.data["pending"] = [kind, key, about]
        self.store()

    def end(self, found: dict[str, Any]) -> None:
        """Note what became of it."""
        kind, key, about = self.data["pending"]
        self.data[kind][key] = found | about
        self.data["pending"] = None
        self.store()

    def size(self) -> int:
        """How much has been timed, or could not be."""
        return len(self.data["references"]) + len(self.data["evals"])

    def store(self) -> None:
        """Write it all."""
        replace_whole(self.file, json.dumps(self.data))


def do(record: Record, seconds: float, lock: Path | None) -> None:
    """Time the references of a kernel and search, as far as that is not done."""
    in_children(partial(time_references, record, lock), record, float("inf"))
    if not record.data["problem"]:
        began = time.monotonic()
        ends = began + seconds - record.data["spent_s"]
        in_children(partial(search, record, lock, ends), record, ends)
        record.data["spent_s"] += time.monotonic() - began
        record.store()


def in_children(task: Callable[[], None], record: Record, ends: float) -> None:
    """Do a task in a process of its own until `ends`, by the monotonic clock.

    When a version ends that process, a new one goes on with the others.
    """
    while (left_s := ends - time.monotonic()) > LEAST_S:
        known = record.size()
        child = multiprocessing.get_context("spawn").Process(target=task)
        child.start()
        try:
            child.join(None if left_s == float("inf") else left_s)
            in_time = not child.is_alive()
        finally:
            child.kill()
            child.join()
        record.load()
        if record.data["pending"] and in_time:
            record.end({"latency_ms": None, "why": ENDED})
        if child.exitcode == 0 or not in_time:
            break
        if record.size() == known:
            record.data["problem"] = f"the process that times ended with {child.exitcode}"
            break
    record.data["pending"] = None
    record.store()


def collect(out: Path) -> None:
    """Write OUT/search.json and OUT/search.md from the kernels' files."""
    with locked(out / "search.lock"):
        records = [record for spec in find([]) if (record := Record(out, spec)).file.exists()]
        results = {record.spec.key: record.data for record in records}
        replace_whole(out / "search.json", json.dumps(results))
        replace_whole(out / "search.md", report(results))


# --- in a child ---------------------------------------------------------------------------------


def time_references(record: Record, lock: Path | None) -> None:
    """Time what the kernel is compared with."""
    spec = record.spec
    clock = Clock(spec, lock)
    record.data["config"] = clock.config
    for label, make in makers(spec, spec.reference(), spec.kernel).items():
        if label != "best" and label not in record.data["references"]:
            time_one(record, clock, ("references", label, {}), make)


def search(record: Record, lock: Path | None, ends: float) -> None:
    """Time candidates, as long as there are any and time is left."""
    spec, gpu = record.spec, probe().gpu
    clock = Clock(spec, lock)

    def measure(key: str, text: str, about: dict[str, Any]) -> None:
        if ends - time.monotonic() < LEAST_S:
            raise OutOfTime
        file = record.candidates / key / spec.kernel.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

        def make(*inputs: Any) -> Launch:
            wrapper = spec.wrapper(file)
            return lambda: wrapper(*inputs)

        time_one(record, clock, ("evals", key, about), make)

    found = Search(spec, gpu.sm if gpu else 0, record.data["evals"], measure)
    found.run()
    record.data["faults"] = found.faults
    record.store()


def time_one(
    record: Record, clock: Clock, what: tuple[str, str, dict[str, Any]], make: Callable[..., Launch]
) -> None:
    """Time one version. Ends this process when that leaves a GPU context nothing works in."""
    record.begin(*what)
    record.end(clock.time(make))
    if spoilt():
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
