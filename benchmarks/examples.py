"""Runs tile-agent on the examples and writes what it found as Markdown, for docs/results/.

    python benchmarks/examples.py OUT [EXAMPLE ...]

Every example is copied into a git repository of its own under OUT/work, so this checkout stays as
it is. OUT/<example>.md holds the run's summary and table, OUT/<example>.json its result,
OUT/<example>.log the progress. Needs an environment in which `python -m agent doctor` finds the
examples' backends ready.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = (
    "cutile_softmax",
    "cutile_matmul",
    "triton_softmax",
    "triton_matmul",
    "cutile_rms_norm",
    "triton_layer_norm",
)


def main() -> int:
    """Run them one after the other; a failing one does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("examples", nargs="*", default=EXAMPLES)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    codes = [run(example, arguments.out.resolve()) for example in arguments.examples]
    return max(codes)


def prepared(example: str, out: Path) -> Path:
    """A copy of an example, in a repository of its own."""
    work = out / "work" / example
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "examples" / example, work, ignore=shutil.ignore_patterns("__pycache__"))
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "--all"],
        ["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-qm", "As it is"],
    ):
        subprocess.run(["git", "-C", str(work), *command], check=True)
    return work


def run(example: str, out: Path) -> int:
    """One example. Returns 0 when the run came to its end."""
    work = prepared(example, out)
    kernel = f"{example.partition('_')[2]}.py"
    command = [sys.executable, "-m", "agent", "run", "--yes", "--json", "--kernel", kernel]
    begin = time.monotonic()
    with (out / f"{example}.log").open("w") as log:
        done = subprocess.run(
            command,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
            env=None,
        )
    took_s = time.monotonic() - begin
    (out / f"{example}.json").write_text(done.stdout)
    print((out / f"{example}.log").read_text(), flush=True)
    result = json.loads(done.stdout or "{}")
    if done.returncode not in (0, 3, 5):
        print(f"{example}: exit code {done.returncode}: {result.get('error')}", flush=True)
        return 1
    (out / f"{example}.md").write_text(report(example, result, work, took_s))
    print((out / f"{example}.md").read_text(), flush=True)
    return 0


def report(example: str, result: dict[str, object], work: Path, took_s: float) -> str:
    """The Markdown of one run."""
    final = result["final"]
    lines = [
        f"## {example}",
        "",
        f"`tile-agent run --kernel {result['kernel']}`, {took_s:.0f} s, "
        f"exit code {result['exit_code']}; stopped: {result['stop']['reason']}.",
        "",
        (work / "sandbox" / "perf_results.md").read_text(),
    ]
    if final:
        lines += [
            f"Origin against best, measured afresh in {final['pairs']} interleaved process pairs: "
            f"**{result['speedup']:.2f}x**.",
            "",
            "| config | origin, ms | best, ms | faster by | interval |",
            "|:--|--:|--:|--:|:--|",
        ]
        lines += [
            f"| {c['config']} | {c['incumbent_ms']:.6f} | {c['candidate_ms']:.6f} "
            f"| {c['effect']['improvement']:+.1%} "
            f"| {c['effect']['low']:+.1%} to {c['effect']['high']:+.1%} |"
            for c in final["configs"]
        ]
    lines += ["", "Why each row ended as it did:", ""]
    lines += [f"{r['iteration']}. {r['optimization']}: {r['reason']}" for r in result["rows"][1:]]
    lines += ["", "Not tried:", ""] if result["skipped"] else []
    lines += [f"- {s['optimization']}: {s['reason']}" for s in result["skipped"]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
