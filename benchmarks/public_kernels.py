"""Kernels of TritonBench's set G as they are, timed by their authors' scripts; they have no tests.

    python -m benchmarks.public_kernels OUT TRITONBENCH --from 3 [--limit-s 150] [--within-s 1500]
    python -m benchmarks.public_kernels OUT TRITONBENCH NAME ...

TRITONBENCH is a git clone of https://github.com/thunlp/TritonBench. Each kernel is laid out in a
repository of its own, with its script where that script expects it. Then `tile-agent capture` under
that script makes tests, of several kernels at once, and `tile-agent run` follows with its defaults,
one after the other, each ended past its limit as Ctrl-C would. Which kernels: those named, or by
a rule that knows nothing of them, every 23rd of the C locale's order from one on (several `--from`
are done in turn). Writes OUT/public_kernels.json and OUT/public_kernels.md after each. Needs an
NVIDIA GPU. What OUT holds already is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent.journal import read
from benchmarks.loop_run import commit_all, git, story, until
from benchmarks.repositories import kept_of, times_of

EVERY = 23
KERNELS = "data/TritonBench_G_v1"
SCRIPTS = "performance_metrics/perf_G"
AT_ONCE = 8
"""How many scripts are captured beside each other."""
STOP_AFTER_S = 60.0
"""A script that times for longer is content with the calls it made until then."""
CAPTURE_S = 150.0
"""A capture past it is ended: its tests have been tried by then, or hang."""
LEAST_S = 110.0
"""With less left, no run is begun: it would come to one comparison at most."""
HEAD = (
    "| kernel | capture, s | exit | to the baseline, s | calibration, s (configs) "
    "| the origin's share of its roof | iterations, s | kept | gain | last line |"
)
RULE = "|:--|--:|:--|--:|:--|:--|:--|:--|:--|:--|"


def main() -> int:
    """Capture and run them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.public_kernels", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("out", type=Path)
    parser.add_argument("tritonbench", type=Path, help="a git clone of it")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--from", dest="first", type=int, action="append", default=[])
    parser.add_argument("--limit-s", type=float, default=150.0, help="of each run")
    parser.add_argument("--within-s", type=float, default=float("inf"), help="all of it")
    asked = parser.parse_args()
    ends = time.monotonic() + asked.within_s
    known = kernels_of(asked.tritonbench)
    if unknown := {*asked.names} - {*known}:
        parser.error(f"{', '.join(sorted(unknown))}: not among the {len(known)} kernels there")
    names = asked.names or by_rule(known, asked.first)
    if not names:
        parser.error("name kernels, or say with --from at which one of the order to begin")
    folders = {name: lay_out(asked.tritonbench, name, asked.out.resolve()) for name in names}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        captured = dict(zip(names, pool.map(capture, folders.values()), strict=True))
    records = []
    for name in names:
        left_s = min(asked.limit_s, ends - time.monotonic())
        records.append(work_on(name, folders[name], captured[name], left_s))
        (asked.out / "public_kernels.json").write_text(json.dumps(records, indent=1))
        (asked.out / "public_kernels.md").write_text(
            "\n".join([HEAD, RULE, *map(row, records), ""])
        )
        print(row(records[-1]), flush=True)
    return 0


def kernels_of(tritonbench: Path) -> list[str]:
    """The names of all kernels of the set, in the order of the C locale."""
    listed = git(tritonbench, "ls-tree", "--name-only", "HEAD", f"{KERNELS}/").split()
    return sorted(Path(each).stem for each in listed if each.endswith(".py"))


def by_rule(known: Sequence[str], firsts: Sequence[int]) -> list[str]:
    """Every 23rd from each of some places on, of which the first is 1."""
    return [name for first in firsts for name in known[first - 1 :: EVERY]]


def lay_out(tritonbench: Path, name: str, out: Path) -> Path:
    """A git repository with a kernel and its script, as that script imports them."""
    folder = out / name / "repository"
    if folder.exists():
        return folder
    files = {
        f"TritonBench_v1/{name}.py": f"{KERNELS}/{name}.py",
        f"golden_metrics/{name}_perf.py": f"{SCRIPTS}/golden_metrics/{name}_perf.py",
        "performance_utils.py": f"{SCRIPTS}/performance_utils.py",
    }
    for place, source in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(git(tritonbench, "show", f"HEAD:{source}"))
    (folder / "results").mkdir()
    commit_all(folder)
    return folder


def capture(folder: Path) -> dict[str, Any]:
    """Have tests written of what the script of a kernel calls; they are committed.

    Returns:
        What it took and how it ended, as plain JSON.
    """
    ending = folder.parent / "capture.json"
    if ending.exists():
        return dict(json.loads(ending.read_text()))
    name, began = folder.parent.name, time.monotonic()
    command = [sys.executable, "-m", "agent", "capture", "--kernel", f"TritonBench_v1/{name}.py"]
    command += ["--stop-after-s", f"{STOP_AFTER_S:.0f}"]
    command += ["--", sys.executable, f"golden_metrics/{name}_perf.py"]
    with (folder.parent / "capture.log").open("w") as output:
        end = until(command, folder, output.fileno(), CAPTURE_S)
    took = {"code": end.code, "cut": end.cut, "took_s": round(time.monotonic() - began, 1)}
    if list(folder.rglob("test_*_captured.py")):
        commit_all(folder)
    ending.write_text(json.dumps(took))
    return took


def work_on(name: str, folder: Path, captured: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """A run with its defaults, where there are tests and time for it. Returns plain JSON."""
    ending = folder.parent / "record.json"
    if ending.exists():
        return dict(json.loads(ending.read_text()))
    record: dict[str, Any] = {"name": name, "capture": captured}
    if not list(folder.rglob("test_*_captured.py")):
        return record | {"last_line": _last_line(folder.parent / "capture.log")}
    if limit_s < LEAST_S:
        return record | {"last_line": "no time for a run"}
    began, log = time.time(), folder.parent / "log"
    command = [sys.executable, "-m", "agent", "run", "--yes"]
    command += ["--kernel", f"TritonBench_v1/{name}.py", "--branch", "faster"]
    with log.open("w") as output:
        end = until(command, folder, output.fileno(), limit_s)
    journals = sorted(folder.glob("sandbox/runs/*/journal.jsonl"))
    events = list(read(journals[0])) if journals else []
    record |= {
        "exit_code": end.code,
        "cut": end.cut,
        "last_line": _last_line(log),
        **times_of(events, began),
        **(story([line.event for line in events]) if events else {}),
    }
    ending.write_text(json.dumps(record))
    return record


def row(record: dict[str, Any]) -> str:
    """One kernel, as a row of Markdown."""
    final = record.get("final")
    captured, iterations_s = record["capture"], record.get("iterations_s") or []
    cells = [
        record["name"],
        f"{captured['took_s']:.0f}" + (", cut off" if captured["cut"] else ""),
        "cut off" if record.get("cut") else str(record.get("exit_code", "-")),
        f"{record['to_baseline_s']:.0f}" if "to_baseline_s" in record else "-",
        f"{record['calibration_s']:.0f} ({record['compared']} of {record['configs']})"
        if "calibration_s" in record
        else "-",
        ", ".join(f"{each:.0%}" for each in record.get("origin_shares", {}).values()) or "-",
        ", ".join(f"{each:.0f}" for each in iterations_s) or "-",
        ", ".join(
            f"{each['optimization']} {each['effect']['improvement']:+.1%}"
            for each in record.get("rows", [])[1:]
            if each["status"] == "keep" and each["effect"]
        )
        or str(kept_of(record)),
        f"{final['improvement']:+.1%} [{final['low']:+.1%}, {final['high']:+.1%}]"
        if final
        else "-",
        record["last_line"].replace("|", "/")[:120],
    ]
    return f"| {' | '.join(cells)} |"


def _last_line(log: Path) -> str:
    lines = log.read_text().strip().splitlines() if log.exists() else []
    return lines[-1] if lines else ""


if __name__ == "__main__":
    raise SystemExit(main())
