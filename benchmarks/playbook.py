"""Runs the loop with the playbook alone on kernels as people first write them. Needs an NVIDIA GPU.

    python -m benchmarks.playbook OUT [KERNEL ...] [--seconds-per-kernel 100] [--limit-s 540]
    python -m benchmarks.playbook OUT [KERNEL ...] --defaults [--seconds-per-kernel 300] [--untimed]

For each kernel (`softmax`, `cutile/softmax`; `cutile` for all of these): a run of the loop in a git
repository of its own, then origin, best, PyTorch, torch.compile and experts' versions timed side by
side. The run tries all of the playbook that its seconds leave time for, or with `--defaults` is
`tile-agent run` with nothing else, ended from outside past them. OUT/results.json and
OUT/results.md are written after every kernel. What they hold is not done again, so that several
commands may share the work, also at the same time, each with a GPU and kernels of its own;
`--again` does it again. Nothing is begun that `--limit-s` leaves no time for.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from filelock import FileLock

from benchmarks.loop_run import Limits, environment, run_loop
from benchmarks.spec import Spec, find, replace_whole
from benchmarks.tables import report

FINISH_S = 60.0
"""What a run may take past its budget: the last iteration, and the last word on what was kept."""
TIMING_S = 45.0
"""What the side-by-side timing of a kernel is given in the plan; it may take what is left."""
START_S = 15.0
"""What that process takes to import PyTorch and make the inputs."""
LEAST_RUN_S = 20.0
"""A shorter run would say nothing."""


def main() -> int:
    """Do what is not done yet. Returns 1 when a kernel is missing at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--seconds-per-kernel", type=float, help="100; 300 with --defaults")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--untimed", action="store_true", help="only the runs, nothing beside them")
    options = parser.parse_args()
    try:
        specs = find(options.kernels)
    except ValueError as problem:
        parser.error(str(problem))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))
    ends = time.monotonic() + options.limit_s
    results = Results(options.out, shlex.join(sys.argv[1:]))
    with tempfile.TemporaryDirectory(prefix="tile-agent-benchmark-") as work:
        for spec in specs:
            if options.again:
                results.forget(spec)
            seconds = options.seconds_per_kernel or (300.0 if options.defaults else 100.0)
            do(spec, results, Path(work), seconds, ends, options.defaults, not options.untimed)
    return 0 if all(results.is_done(spec, not options.untimed) for spec in specs) else 1


class Results:
    """OUT/results.json and OUT/results.md."""

    def __init__(self, out: Path, arguments: str) -> None:
        """Read what is there already."""
        out.mkdir(parents=True, exist_ok=True)
        self._json = out / "results.json"
        self._markdown = out / "results.md"
        self._lock = FileLock(out / "results.lock")
        self._command = f"python -m benchmarks.playbook {arguments}"
        self._all = self._read()

    def of(self, spec: Spec) -> dict[str, Any]:
        """What is known of a kernel."""
        record: dict[str, Any] = self._all["kernels"].get(spec.key, {})
        return record

    def is_done(self, spec: Spec, is_timed: bool = True) -> bool:
        """Whether it has been run, and timed where that is asked for."""
        return bool(self.of(spec).get("timings" if is_timed else "best_source"))

    def forget(self, spec: Spec) -> None:
        """Drop what is known of a kernel."""
        self._all["kernels"].pop(spec.key, None)

    def put(self, spec: Spec, record: dict[str, Any]) -> None:
        """Write a kernel's record, and with it all, of other commands too."""
        with self._lock:
            self._all = self._read()
            self._all["kernels"][spec.key] = record
            replace_whole(self._json, json.dumps(self._all, indent=1))
            replace_whole(self._markdown, report(self._all))

    def _read(self) -> dict[str, Any]:
        known = json.loads(self._json.read_text()) if self._json.exists() else {}
        found: dict[str, Any] = {"commands": [], "kernels": {}} | known
        found["commands"] = list(dict.fromkeys([*found["commands"], self._command]))
        return found


def do(
    spec: Spec,
    results: Results,
    work: Path,
    seconds: float,
    ends: float,
    defaults: bool,
    is_timed: bool,
) -> None:
    """Run and time one kernel, as far as that is not done and the time allows.

    Args:
        spec: the kernel.
        results: where the outcome goes.
        work: a folder for whatever is needed on the way.
        seconds: the time budget of the run, or when one with the defaults is ended.
        ends: when all has to be over, by the monotonic clock.
        defaults: the run is to end by itself.
        is_timed: time its versions after that.
    """
    record = results.of(spec)
    if "best_source" not in record:
        timing_s = TIMING_S if is_timed else 0.0
        budget_s = min(seconds, ends - time.monotonic() - FINISH_S - timing_s)
        if budget_s < LEAST_RUN_S:
            print(f"{spec.key}: no time left", flush=True)
            return
        print(f"{spec.key}: running for {budget_s:.0f} s", flush=True)
        limits = Limits(None if defaults else budget_s, budget_s + FINISH_S)
        record = run_loop(spec, work, limits)
        results.put(spec, record)
    if is_timed and "best_source" in record and "timings" not in record:
        left_s = max(ends - time.monotonic(), 1)
        results.put(spec, record | time_versions(spec, record["best_source"], work, left_s))
    print("\n".join(lines_about(spec, results.of(spec))), flush=True)


def time_versions(spec: Spec, best: str, work: Path, limit_s: float) -> dict[str, Any]:
    """The timings of a kernel, from a process of its own: a launch that faults takes it along."""
    folder = work / "side_by_side" / spec.framework / spec.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / spec.kernel.name).write_text(best)
    answer = folder / "answer.json"
    command = [sys.executable, "-m", "benchmarks.side_by_side", spec.key]
    command += [str(folder / spec.kernel.name), str(answer)]
    command += ["--limit-s", str(limit_s - START_S)]
    try:
        subprocess.run(
            command,
            check=True,
            timeout=None if limit_s == float("inf") else limit_s,
            env=environment(),
            stdout=subprocess.DEVNULL,  # tuners print their progress
        )
    except subprocess.CalledProcessError as problem:
        return {"untimed": f"the process that times ended with {problem.returncode}"}
    except subprocess.TimeoutExpired:
        return {"untimed": f"not done after {limit_s:.0f} s"}
    return {"timings": json.loads(answer.read_text()), "untimed": None}


def lines_about(spec: Spec, record: dict[str, Any]) -> list[str]:
    """A kernel's outcome, for whoever watches."""
    if problem := record.get("problem") or record.get("untimed"):
        return [f"{spec.key}: {problem}"]
    if "timings" not in record:
        return [f"{spec.key}: {record.get('log', ['nothing'])[-1]}"]
    return [
        f"{spec.key} {timing['config']}: "
        + ", ".join(
            f"{label} {found['latency_ms']:.4f}" if found.get("latency_ms") else f"{label} -"
            for label, found in timing["versions"].items()
        )
        for timing in record["timings"]
    ]


if __name__ == "__main__":
    sys.exit(main())
