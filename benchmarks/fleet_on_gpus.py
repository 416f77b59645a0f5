"""A fleet on this machine's GPUs beside the same runs one after the other. Needs Ray.

    python -m benchmarks.fleet_on_gpus OUT [KERNEL ...] [--ways alone,one,all] [--iterations 2]
        [--options=--no-scout]

One repository holds a folder a kernel (`triton/softmax`; six of them when left out). There are
three ways over it, each with a repository and a state directory of its own: `alone` is a
`tile-agent run` after the other on the first GPU, `one` a fleet that sees that GPU alone, `all` a
fleet on all.
Writes OUT/<way>.json, and OUT/fleet.md of the ways that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.journal import read
from benchmarks.loop_run import commit_all, story
from benchmarks.spec import Spec, find

KERNELS = (
    "triton/softmax", "triton/rms_norm", "triton/gelu_and_mul",
    "triton/cross_entropy", "triton/embedding", "triton/transpose",
)  # fmt: skip
WAYS = ("alone", "one", "all")
AGENT = (sys.executable, "-m", "agent")


def main() -> int:
    """Do the ways that are asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet_on_gpus", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("out", type=Path)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--iterations", type=int, default=2, help="of each run, at most")
    parser.add_argument("--gpu", default="0", help="the first one; all are those that are visible")
    parser.add_argument("--options", default="", help="of each run: --options=--no-scout")
    asked = parser.parse_args()
    limits = ["--max-iterations", str(asked.iterations), *shlex.split(asked.options)]
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    specs = [spec for name in asked.kernels for spec in find([name])]
    for way in asked.ways.split(","):
        if way not in WAYS:
            parser.error(f"--ways {way}: name some of {', '.join(WAYS)}")
        found = done(way, specs, out, asked.gpu, limits)
        (out / f"{way}.json").write_text(json.dumps(found, indent=1))
        (out / "fleet.md").write_text(table(out))
        print(f"{way}: {found['wall_s']:.1f} s", flush=True)
    return 0


def done(
    way: str, specs: Sequence[Spec], out: Path, gpu: str, limits: Sequence[str]
) -> dict[str, Any]:
    """One way over all kernels, as plain JSON."""
    work = out / f"work-{way}"
    repository = make_repository(specs, work)
    environment = {**os.environ, "TILE_AGENT_STATE_DIR": str(work / "state")}
    if way != "all":
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    limits = ["--yes", "--no-counters", *limits]
    began = time.monotonic()
    codes = {}
    if way == "alone":
        for spec in specs:
            command = [*AGENT, "run", "--kernel", kernel_of(spec), *limits]
            codes[spec.key] = run(command, repository, environment, work / "log")
    else:
        kernels = [word for spec in specs for word in ("--kernels", kernel_of(spec))]
        command = [*AGENT, "fleet", "run", *kernels, *limits, "--json"]
        codes["fleet"] = run(command, repository, environment, work / "log")
    wall_s = time.monotonic() - began
    return {"way": way, "wall_s": round(wall_s, 1), "codes": codes, "runs": runs(repository, specs)}


def run(command: Sequence[str], cwd: Path, environment: dict[str, str], log: Path) -> int:
    """A command to its end; what it says is added to the log."""
    with log.open("a") as output:
        return subprocess.run(
            command, cwd=cwd, env=environment, stdout=output, stderr=output, check=False
        ).returncode


def kernel_of(spec: Spec) -> str:
    """Its file, as the repository has it."""
    return f"{spec.framework}/{spec.name}/{spec.kernel.name}"


def make_repository(specs: Sequence[Spec], work: Path) -> Path:
    """The kernels' folders side by side, under git."""
    shutil.rmtree(work, ignore_errors=True)
    repository = work / "repository"
    ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    for spec in specs:
        shutil.copytree(spec.folder, repository / spec.framework / spec.name, ignore=ignored)
    commit_all(repository)
    return repository


def runs(repository: Path, specs: Sequence[Spec]) -> dict[str, Any]:
    """Kernel -> what its run amounts to, by the journals that came home."""
    found: dict[str, Any] = {}
    for journal in sorted(repository.glob("sandbox/**/journal.jsonl")):
        events = [line.event for line in read(journal)]
        told = story(events)
        kernel = next((s for s in specs if kernel_of(s) in str(events[0])), None)
        if kernel is not None:
            kept = [row["optimization"] for row in told["rows"][1:] if row["status"] == "keep"]
            keys = ("final", "spent_s", "stopped")
            found[kernel.key] = {"kept": kept} | {key: told[key] for key in keys}
    return found


def table(out: Path) -> str:
    """A row a kernel, with what each way took and gained, as Markdown."""
    ways = [json.loads(file.read_text()) for way in WAYS if (file := out / f"{way}.json").exists()]
    names = [way["way"] for way in ways]
    lines = [
        f"| kernel | {' | '.join(f'{name}: s, gain, kept' for name in names)} |",
        f"|:--|{':--|' * len(names)}",
    ]
    for kernel in dict.fromkeys(kernel for way in ways for kernel in way["runs"]):
        cells = [cell(way["runs"].get(kernel)) for way in ways]
        lines += [f"| {kernel} | {' | '.join(cells)} |"]
    walls_s = [f"{way['wall_s']:.1f}" for way in ways]
    return "\n".join([*lines, f"| all, wall time | {' | '.join(walls_s)} |"]) + "\n"


def cell(run: dict[str, Any] | None) -> str:
    """What a run took, gained and kept."""
    if run is None:
        return "-"
    final = run["final"]
    gain = f"{final['improvement']:+.1%}" if final else "nothing"
    return f"{run['spent_s']:.0f}, {gain}, {'; '.join(run['kept']) or '-'}"


if __name__ == "__main__":
    raise SystemExit(main())
