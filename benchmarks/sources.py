"""Measures what the source documents claim and nobody measured here yet, side by side.

    python -m benchmarks.sources OUT [--processes N] [--check] [CASE ...]

Needs an NVIDIA GPU of sm_90. Of each case the kernel and what an entry of the playbook makes of it
are written to OUT, held against PyTorch in fp64, and timed in turn, in blocks ABBA BAAB, in
processes of their own. A speedup above 1 is a gain over the first arm: the median over the
processes, and the interval that takes the process as the replicate. A case ends after 25 s; what
is not done by then is left out. The exit code is 1 where something is wrong or was not measured.

`--check` measures nothing and needs no GPU: it applies the transforms, runs every arm on the CPU
with small sizes, and compiles it for sm_90.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent.measuring.statistics import Blocks, paired_effect
from agent.syntax import Source
from benchmarks.agreement import copied, error, tensors, widened
from benchmarks.side_by_side import one_line
from benchmarks.source_cases import CASES, SM, Arm, Case
from benchmarks.spec import load
from tile_agent_pytest.bench import OnGpu, count_for, open_sampler

ORDER = "ABBABAAB"
BLOCK_MS = 20.0
WARMUP_MS = 50.0
AT_LEAST = 5
"""Samples of a block."""
LIMIT_S = 25.0
"""Of a case, all its processes."""
ALPHA = 0.025
"""Error rate of each end of an interval."""
COMPILE_S = 120.0


def main() -> int:
    """Measure or check the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="no GPU: apply, run and compile")
    options = parser.parse_intermixed_args()
    known = [case.name for case in CASES]
    if wrong := [name for name in options.cases if name not in known]:
        parser.error(f"no case {wrong[0]}; there are: {', '.join(known)}")
    if options.processes < 2:
        parser.error("an interval needs at least 2 processes")
    cases = [case for case in CASES if not options.cases or case.name in options.cases]
    options.out.mkdir(parents=True, exist_ok=True)
    if options.check:
        checked = [check(case, options.out) for case in cases]
        return 0 if all(checked) else 1
    for package in ("torch", "cuda.tile"):  # once for all forks; neither opens a context
        importlib.import_module(package)
    command = " ".join(["python -m benchmarks.sources", *sys.argv[1:]])
    report: dict[str, Any] = {"command": command, "machine": machine(), "cases": []}
    for case in cases:
        report["cases"].append(measured(case, options.out, options.processes))
        (options.out / "sources.json").write_text(json.dumps(report, indent=1))
        (options.out / "sources.md").write_text(markdown(report))
        print(*rows(report["cases"][-1]), sep="\n", flush=True)
    return 0 if all("why" not in case for case in report["cases"]) else 1


# --- without a GPU ------------------------------------------------------------------------------


def check(case: Case, folder: Path) -> bool:
    """Whether every arm of a case is right on the CPU and compiles; what is not is printed."""
    from agent.harness.compiling.cutile import compile_file
    from tile_agent_pytest.tile_cpu import TileCpu

    good = True
    try:
        with TileCpu(compute_capability=divmod(SM, 10)):
            inputs = case.inputs("cpu", *case.small)
            expected = tensors(case.expected(*map(widened, inputs)))
            files = written(case, folder)
            for arm, file in files:
                off = error(prepared(arm, file)(*map(copied, inputs)), expected)
                print(f"{case.name}: {arm.label}: right on the CPU, off by {off:.1e}")
        for file in dict.fromkeys(file for _, file in files):
            done = compile_file(
                Source(file.read_text(encoding="utf-8")),
                file,
                python=sys.executable,
                targets=(f"sm_{SM}",),
                timeout_s=COMPILE_S,
            )
            good &= done.ok
            print(f"{case.name}: {file.name}: {'compiles' if done.ok else list(done.lines())}")
    except Exception as problem:  # whatever stops one case, the others are checked
        print(f"{case.name}: {one_line(problem)}")
        return False
    return good


# --- the arms -----------------------------------------------------------------------------------


def written(case: Case, folder: Path) -> list[tuple[Arm, Path]]:
    """The arms with the files that hold their texts; arms of one text share a file."""
    names: dict[str, Path] = {}
    for number, arm in enumerate(arms := case.versions()):
        if arm.text not in names:
            names[arm.text] = folder / f"{case.name.replace('-', '_')}_{number}.py"
            names[arm.text].write_text(arm.text, encoding="utf-8")
    if len({(arm.text, str(arm.config)) for arm in arms}) < len(arms):
        raise ValueError(f"two arms of {case.name} are the same")
    return [(arm, names[arm.text]) for arm in arms]


def prepared(arm: Arm, file: Path) -> Any:
    """The function of an arm that launches, with its config where it would search for one."""
    module = load(file)
    if arm.config is not None:
        (search,) = (name for name in vars(module) if name.startswith("_best_"))
        (fields,) = (value for name, value in vars(module).items() if name.endswith("_FIXED"))
        config = SimpleNamespace(**{**vars(fields), **arm.config})
        setattr(module, search, lambda *_: config)
    return module.run


# --- on the GPU ---------------------------------------------------------------------------------


def measured(case: Case, folder: Path, count: int) -> dict[str, Any]:
    """What the processes of a case found, and the speedup of each arm over the first."""
    began = time.monotonic()
    found: dict[str, Any] = {
        "case": case.name,
        "question": case.question,
        "sizes": " x ".join(map(str, case.sizes)),
        "arms": [],
    }
    try:
        files = written(case, folder)
        found["texts"] = {arm.label: file.name for arm, file in files}
        runs: list[dict[str, Any]] = []
        longest_s = 0.0
        for _ in range(count):
            left_s = LIMIT_S - (time.monotonic() - began)
            if left_s < longest_s:
                break
            at = time.monotonic()
            runs.append(process(case, files, left_s))
            longest_s = max(longest_s, time.monotonic() - at)
    except Exception as problem:  # whatever stops one case, the others are measured
        found["why"] = one_line(problem)
    else:
        found |= {"processes": runs, "arms": summary(runs)}
        if len(runs) < 2:
            found["why"] = f"one process took {longest_s:.0f} s: an interval needs two"
    return found | {"took_s": round(time.monotonic() - began, 1)}


def process(case: Case, files: Sequence[tuple[Arm, Path]], limit_s: float) -> dict[str, Any]:
    """What one process measures: a fork of this one, which has imported all and has no context.

    Raises:
        RuntimeError: it failed, or was not done in time and was ended.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(case, files, there))
    child.start()
    there.close()
    try:
        if not here.poll(limit_s):
            raise RuntimeError(f"not done after {limit_s:.0f} s")
        answer: dict[str, Any] = here.recv()
    except EOFError:
        raise RuntimeError("a process ended without an answer") from None
    finally:
        child.kill()
        child.join()
    if "why" in answer:
        raise RuntimeError(answer["why"])
    return answer


def _answer(case: Case, files: Sequence[tuple[Arm, Path]], there: Any) -> None:
    try:
        answer = blocks_of(case, files)
    except Exception as problem:  # said by the process that started this one
        answer = {"why": one_line(problem)}
    there.send(answer)


def blocks_of(case: Case, files: Sequence[tuple[Arm, Path]]) -> dict[str, Any]:
    """The medians of each arm's blocks in ms, beside those of the first arm."""
    import torch

    inputs = case.inputs("cuda", *case.sizes)
    expected = tensors(case.expected(*map(widened, inputs)))
    samplers: dict[str, Any] = {}
    off: dict[str, float] = {}
    counts: list[int] = []
    for arm, file in files:
        run = prepared(arm, file)
        given = tuple(map(copied, inputs))
        try:
            off[arm.label] = error(run(*given), expected)
            sampler, each_ms = open_sampler(partial(run, *given), OnGpu.__name__)
        except Exception as problem:
            raise RuntimeError(f"{arm.label}: {one_line(problem)}") from problem
        sampler.sample(count_for(WARMUP_MS, each_ms, at_least=AT_LEAST))
        samplers[arm.label] = sampler
        counts.append(count_for(BLOCK_MS, each_ms, at_least=AT_LEAST))
    del expected
    torch.cuda.empty_cache()
    first, *others = samplers
    blocks: dict[str, dict[str, list[float]]] = {}
    for label in others:
        arms = {"A": first, "B": label}
        both: dict[str, list[float]] = {"A": [], "B": []}
        for letter in ORDER:
            samples = samplers[arms[letter]].sample(min(counts))
            both[letter].append(statistics.median(samples))
        blocks[label] = both
    return {"first": first, "error": off, "blocks": blocks}


def summary(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each arm but the first: both latencies in ms, the speedup, and its interval."""
    arms = []
    for label in runs[0]["blocks"] if len(runs) > 1 else ():
        pairs = [run["blocks"][label] for run in runs]
        ratios = [Blocks(tuple(p["A"]), tuple(p["B"])).log_ratio() for p in pairs]
        effect = paired_effect(ratios, ALPHA)
        arms.append(
            {
                "arm": label,
                "against": runs[0]["first"],
                "first_ms": statistics.median(t for p in pairs for t in p["A"]),
                "arm_ms": statistics.median(t for p in pairs for t in p["B"]),
                "speedup": math.exp(statistics.median(ratios)),
                "low": 1 / (1 - effect.low),
                "high": 1 / (1 - effect.high),
                "error": max(run["error"][label] for run in runs),
                "processes": len(runs),
            }
        )
    return arms


def machine() -> str:
    """GPU, driver and versions, in one line, without a context of CUDA in this process.

    Raises:
        SystemExit: there is no NVIDIA GPU.
    """
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        raise SystemExit("no NVIDIA GPU: --check does what can be done without one") from None
    name, driver = told.split(", ")
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "cuda-tile"))
    return f"{name}, driver {driver}, {packages}"


# --- the table ----------------------------------------------------------------------------------


def markdown(report: Mapping[str, Any]) -> str:
    """The table of all cases, with what they were measured on."""
    head = (
        f"{report['machine']}. `{report['command']}`: {OnGpu.label}, each case in processes of "
        f"its own, blocks {ORDER}; speedup over the first arm, the median over the processes, with "
        f"a {1 - 2 * ALPHA:.0%} interval."
    )
    columns = ("case", "sizes", "arm", "over", "ms", "ms before", "speedup", "interval", "error")
    titles = f"| {' | '.join((*columns, 'processes'))} |"
    lines = [head, "", titles, f"|:--|:--|:--|:--|{'--:|' * 6}"]
    return "\n".join([*lines, *(row for case in report["cases"] for row in rows(case))]) + "\n"


def rows(case: Mapping[str, Any]) -> list[str]:
    """The rows of one case; why there are none, where something stopped it."""
    if "why" in case:
        return [f"| {case['case']} | {case['sizes']} | {case['why']} |" + " - |" * 7]
    return [
        f"| {case['case']} | {case['sizes']} | {arm['arm']} | {arm['against']} "
        f"| {arm['arm_ms']:.4f} | {arm['first_ms']:.4f} | {arm['speedup']:.3f} "
        f"| {arm['low']:.3f} to {arm['high']:.3f} | {arm['error']:.1e} | {arm['processes']} |"
        for arm in case["arms"]
    ]


if __name__ == "__main__":
    sys.exit(main())
