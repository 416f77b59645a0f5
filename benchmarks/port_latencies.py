"""The benchmark's Triton kernels beside what `tile-agent port` makes of them. Needs an NVIDIA GPU.

    python -m benchmarks.port_latencies OUT [KERNEL ...] [--limit-s 400]

Each kernel's folder is copied and ported as it stands; its correctness tests are run on the port,
and both versions are timed in one process, block by block in turn. Nothing is optimized: a port is
where a run on cuTile begins. OUT/ports.json and OUT/ports.md are written after each kernel.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.agreement import copied, right
from benchmarks.loop_run import environment
from benchmarks.side_by_side import PREPARE_S, Ready, limited, one_line, prepare, rounds
from benchmarks.spec import Spec, describe, find

TURNS = 15
TESTS_S = 120.0
HEAD = "| kernel | config | tests on the port | Triton, ms | cuTile, ms | cuTile over Triton |"
RULE = "|:--|:--|:--|--:|--:|--:|"


def main() -> None:
    """Port, test and time them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    asked = parser.parse_args()
    ends = time.monotonic() + asked.limit_s
    asked.out.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    for spec in find(asked.kernels or ["triton"]):
        if time.monotonic() > ends:
            break
        records.append(work_on(spec, asked.out.resolve() / spec.name))
        (asked.out / "ports.json").write_text(json.dumps(records, indent=1))
        lines = [line for record in records for line in rows(record)]
        (asked.out / "ports.md").write_text("\n".join([HEAD, RULE, *lines, ""]))
        print("\n".join(rows(records[-1])), flush=True)


def work_on(spec: Spec, folder: Path) -> dict[str, Any]:
    """One kernel, as plain JSON."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(spec.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    port = folder / f"{spec.name}_cutile.py"
    command = [sys.executable, "-m", "agent", "port", "--kernel", spec.kernel.name, "--no-check"]
    ported = _run(command, folder)
    if not port.exists():
        return {"kernel": spec.name, "tests": f"not ported: {ported}", "timings": []}
    for tests in folder.glob("test_*.py"):
        text = re.sub(rf"\bfrom {spec.name} import", f"from {port.stem} import", tests.read_text())
        tests.write_text(text)
    tested = _run([sys.executable, "-m", "pytest", "-q", "-k", "not perf"], folder)
    return {"kernel": spec.name, "tests": tested, "timings": list(timed(spec, port))}


def timed(spec: Spec, port: Path) -> list[dict[str, Any]]:
    """Both versions on each config."""
    reference, found = spec.reference(), []
    for config in reference.configs:
        inputs = reference.inputs(config)
        expected = right(reference, inputs)
        ready: dict[str, Ready] = {}
        timing: dict[str, Any] = {"config": describe(config)}
        for label, file in {"triton": spec.kernel, "cutile": port}.items():
            arguments = [copied(each) for each in inputs]
            try:
                with limited(PREPARE_S):
                    ready[label] = prepare(partial(spec.wrapper(file), *arguments), expected)
            except Exception as problem:  # whatever stops one version, the others are timed
                timing[label] = one_line(problem)
        blocks = rounds(ready, TURNS)
        timing |= {label: statistics.median(each) for label, each in blocks.items()}
        found.append(timing)
    return found


def rows(record: dict[str, Any]) -> list[str]:
    """A kernel, as rows of Markdown."""
    tests = record["tests"].replace("|", "/")
    if not record["timings"]:
        return [f"| {record['kernel']} | - | {tests} | - | - | - |"]
    found = []
    for timing in record["timings"]:
        triton, cutile = timing["triton"], timing["cutile"]
        both = isinstance(triton, float) and isinstance(cutile, float)
        cells = [record["kernel"], timing["config"], tests, _time(triton), _time(cutile)]
        found.append(f"| {' | '.join([*cells, f'{cutile / triton:.2f}' if both else '-'])} |")
    return found


def _time(value: float | str) -> str:
    return value.replace("|", "/") if isinstance(value, str) else f"{value:.4f}"


def _run(command: list[str], folder: Path) -> str:
    """The last line of what a command prints; its exit code too where it failed."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=TESTS_S
        )
    except subprocess.TimeoutExpired:
        return f"not done after {TESTS_S:.0f} s"
    lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing was printed"]
    return lines[-1] if done.returncode == 0 else f"exit {done.returncode}: {lines[-1]}"


if __name__ == "__main__":
    main()
