"""The loop on clones of public repositories as they are; what each run takes, and what it gains.

    python -m benchmarks.repositories OUT CLONES [NAME ...] [--limit-s 300] [--iterations N]

CLONES is a folder that holds a git clone of each repository, by the last part of its name. A run
works on a clone of that clone, so that it stays as it is. Each is `tile-agent run` with nothing but
what `RUNS` says of it; where it keeps something, the project's own correctness tests are run on the
branch afterwards. Writes OUT/repositories.json and OUT/repositories.md after each run. Needs an
NVIDIA GPU to mean anything; a run past its limit is ended as Ctrl-C would, and told so. Where OUT
holds a run that was ended so it goes on, by `tile-agent resume`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.events import Baselined, Calibrated, Settled
from agent.journal import JournalLine, read
from benchmarks.loop_run import git, story, until

BRANCH = "faster"
VERIFY_S = 300.0
TILEGYM = "src/tilegym/ops/cutile"
LIGER = "src/liger_kernel/ops"
HEAD = (
    "| kernel | commit | exit | to the baseline, s | calibration, s (configs) | an iteration, s "
    "| kept | gain | tests on the branch |"
)
RULE = "|:--|:--|:--|--:|--:|--:|--:|:--|:--|"


@dataclass(frozen=True)
class RepositoryRun:
    """One kernel of a repository, and what a run on it is told."""

    name: str
    repository: str
    """The folder of its clone."""
    kernel: str
    arguments: tuple[str, ...] = ()


def _of_tilegym(kernel: str, *arguments: str) -> RepositoryRun:
    return RepositoryRun(f"TileGym/{kernel}", "TileGym", f"{TILEGYM}/{kernel}.py", arguments)


def _of_liger(kernel: str, test: str = "") -> RepositoryRun:
    """By Liger's own benchmark: its tests know small shapes only. They are run all the same."""
    tests = f"test/transformers/test_{kernel}.py{test}"
    arguments = ("--tests", tests, "--capture", f"python benchmark/scripts/benchmark_{kernel}.py")
    return RepositoryRun(f"Liger/{kernel}", "Liger-Kernel", f"{LIGER}/{kernel}.py", arguments)


def _of_unsloth(kernel: str, code: str) -> RepositoryRun:
    """By a few calls at the sizes of Llama 3 8B: it has no tests of them and no benchmarks."""
    code = f"import torch, unsloth.kernels.{kernel} as kernels\n{code}"
    arguments = ("--capture", shlex.join(["python", "-c", code]))
    file = f"unsloth/kernels/{kernel}.py"
    return RepositoryRun(f"unsloth/{kernel}", "unsloth", file, arguments)


def _of_fla(
    name: str, kernel: str, tests: str, *command: str, test: str = "", only: str = ""
) -> RepositoryRun:
    """By those of its tests that hold an expression; those that torch compiles take minutes."""
    capture = shlex.join(["python", *command])
    arguments = ("--tests", f"tests/{tests}.py{test}", "--capture", capture)
    arguments += ("--correctness-k", only) if only else ()
    return RepositoryRun(f"fla/{name}", "flash-linear-attention", f"fla/{kernel}.py", arguments)


def _of_vllm(name: str, kernel: str, tests: str, code: str) -> RepositoryRun:
    """By a few calls at the sizes of models that are served: its tests know small shapes only."""
    tests = f"tests/kernels/{tests}"
    arguments = ("--tests", tests, "--capture", shlex.join(["python", "-c", code]))
    return RepositoryRun(f"vLLM/{name}", "vllm", f"vllm/model_executor/layers/{kernel}", arguments)


def _of_flag_gems(operator: str, tests: str) -> RepositoryRun:
    """By its tests. Its benchmarks fill a cache through `libentry`, which fails on Triton 3.6; so
    do the operators that are launched by it, and those that tune themselves, which clear one."""
    command = f"python -m pytest -q tests/{tests}"
    arguments = ("--tests", f"tests/{tests}", "--capture", command)
    file = f"src/flag_gems/ops/{operator}.py"
    return RepositoryRun(f"FlagGems/{operator}", "FlagGems", file, arguments)


RANDOM = """\
def random(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)
for n in (512, 2048, 4096) * 3:
"""
SWIGLU = f"""{RANDOM}\
    kernels.swiglu_fg_kernel(random(4, n, 14336), random(4, n, 14336))
    kernels.swiglu_DWf_DW_dfg_kernel(*(random(4 * n, 14336) for _ in range(3)))
"""
ROPE = f"""{RANDOM}\
    turned = random(4, 32, n, 128), random(4, 8, n, 128)
    kernels.fast_rope_embedding(*turned, random(n, 128), random(n, 128))
"""
L2NORM = """\
import torch
from fla.modules.l2norm import l2_norm
for shape in ((4, 4096, 16, 128), (1, 8192, 32, 128), (8, 2048, 8, 256)) * 3:
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    l2_norm(x).sum().backward()
"""
ACTIVATIONS = """\
import torch
from fla.modules.activations import swiglu
for rows, n in ((16384, 2816), (8192, 5632), (4096, 11008)) * 3:
    x, y = (torch.randn(rows, n, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(2))
    swiglu(x, y).sum().backward()
"""
LAYERNORM = """\
import torch
from fla.modules.layernorm import rms_norm
for rows, n in ((16384, 1024), (8192, 2048), (4096, 4096)) * 3:
    x, w = (torch.randn(s, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for s in ((rows, n), (n,)))
    rms_norm(x, w, None).sum().backward()
"""
GATED_NORM = """\
import torch
from vllm.model_executor.layers.fla.ops.layernorm_guard import rmsnorm_fn
for rows in (32 * 512, 32 * 4096, 32 * 16384) * 3:
    x, z = (torch.randn(rows, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    w = torch.randn(128, device="cuda", dtype=torch.bfloat16)
    rmsnorm_fn(x, w, None, z=z, eps=1e-6, norm_before_gate=True)
"""
LIGHTNING = """\
import torch
from vllm.model_executor.layers.lightning_attn import lightning_attention
for heads, n in ((64, 2048), (8, 8192), (64, 4096)) * 3:
    q, k, v = (torch.randn(1, heads, n, 128, device="cuda") / 8
               for _ in range(3))
    lightning_attention(q, k, v, torch.linspace(0.01, 0.5, heads, device="cuda"))
"""
AWQ = """\
import torch
from vllm.model_executor.layers.quantization.awq_triton import awq_dequantize_triton
def packed(*shape):
    return torch.randint(0, 2**31 - 1, shape, dtype=torch.int32, device="cuda")
for rows, columns in ((4096, 14336), (14336, 4096), (8192, 8192)) * 3:
    scales = torch.rand(rows // 128, columns, dtype=torch.float16, device="cuda")
    weights, zeros = packed(rows, columns // 8), packed(rows // 128, columns // 8)
    awq_dequantize_triton(weights, scales, zeros)
"""
RUNS = (
    _of_tilegym("rms_norm"),
    _of_tilegym("softmax", "--bench", "python tests/benchmark/bench_softmax.py"),
    _of_tilegym("silu_and_mul"),
    _of_tilegym("swiglu"),
    _of_tilegym("layer_norm_legacy"),
    _of_tilegym("matmul"),
    _of_tilegym("bmm", "--correctness-k", "1024-512-1024"),  # each tunes itself
    _of_tilegym("rope"),
    _of_liger("rms_norm"),
    _of_liger("swiglu", "::test_correctness_llamamlp"),  # the others take minutes
    _of_liger("geglu"),
    _of_liger("cross_entropy"),
    _of_liger("layer_norm"),
    _of_unsloth("rms_layernorm", "kernels.testing_suite_layernorm()"),
    _of_unsloth("swiglu", SWIGLU),
    _of_unsloth("rope_embedding", ROPE),
    _of_fla("l2norm", "modules/l2norm", "modules/test_l2norm", "-c", L2NORM),
    _of_fla(
        "activations",
        "modules/activations",
        "modules/test_activation",
        "-c",
        ACTIVATIONS,
        test="::test_swiglu",
        only="not True",
    ),
    _of_fla(  # those of rows as long as the timed ones; all 153 take minutes a candidate
        "layernorm",
        "modules/layernorm",
        "modules/test_layernorm",
        "-c",
        LAYERNORM,
        only="captured or test_groupnorm and 2048",
    ),
    _of_fla(
        "token_shift",
        "modules/token_shift",
        "modules/test_token_shift",
        *["-m", "pytest", "-q", "tests/modules/test_token_shift.py", "-k"],
        "test_token_shift and None",
    ),
    _of_vllm(
        "gated_norm",
        "fla/ops/layernorm_guard.py",
        "test_fla_layernorm_guard.py::test_layer_norm_rows_per_block",
        GATED_NORM,
    ),
    _of_vllm(
        "lightning_attention", "lightning_attn.py", "attention/test_lightning_attn.py", LIGHTNING
    ),
    _of_vllm(
        "awq", "quantization/awq_triton.py", "quantization/test_awq_triton.py::test_dequantize", AWQ
    ),
    _of_flag_gems("slice_scatter", "test_reduction_ops.py::test_accuracy_slice_scatter"),
    _of_flag_gems("select_scatter", "test_reduction_ops.py::test_accuracy_select_scatter"),
    _of_flag_gems("cat", "test_special_ops.py::test_accuracy_cat"),
    _of_flag_gems("stack", "test_special_ops.py::test_accuracy_stack"),
)


def main() -> int:
    """Run them, one after the other."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.repositories", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("out", type=Path)
    parser.add_argument("clones", type=Path)
    parser.add_argument("names", nargs="*", help="which of them; all when left out")
    parser.add_argument("--limit-s", type=float, default=300.0, help="of each run")
    parser.add_argument("--iterations", type=int, help="of each run, at most")
    asked = parser.parse_args()
    if unknown := {*asked.names} - {run.name for run in RUNS}:
        parser.error(f"{', '.join(sorted(unknown))}: name one of {', '.join(r.name for r in RUNS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    records = []
    for wanted in RUNS:
        if not asked.names or wanted.name in asked.names:
            records.append(
                work_on(wanted, asked.clones, asked.out, asked.limit_s, asked.iterations)
            )
            (asked.out / "repositories.json").write_text(json.dumps(records, indent=1))
            (asked.out / "repositories.md").write_text(table(records))
            print(row(records[-1]), flush=True)
    return 0


def work_on(
    wanted: RepositoryRun, clones: Path, out: Path, limit_s: float, iterations: int | None
) -> dict[str, Any]:
    """One run to its end, or to its limit; one that was ended there goes on, and one that has come
    to its end is not begun again. Returns plain JSON."""
    work = out.resolve() / wanted.name.replace("/", "-")
    repository = work / wanted.repository
    agent = [sys.executable, "-m", "agent"]
    command = [*agent, "run", "--yes", "--kernel", wanted.kernel, "--branch", BRANCH]
    if iterations is not None:
        command += ["--max-iterations", str(iterations)]
    command += wanted.arguments
    beginning, ending = work / "began.json", work / "record.json"
    if ending.exists() and not (known := json.loads(ending.read_text()))["cut"]:
        return dict(known)
    lengths = (len(list(read(each))) for each in _journals(repository))
    goes_on = beginning.exists() and max(lengths, default=0) > 1
    if beginning.exists() and not goes_on:  # ended, or taken back, before its baseline
        shutil.rmtree(work)
    if not goes_on:
        clone = ["git", "clone", "--quiet", "--no-hardlinks", str(clones / wanted.repository)]
        subprocess.run([*clone, str(repository)], check=True)
        commit = git(repository, "rev-parse", "HEAD").strip()
        beginning.write_text(json.dumps({"commit": commit, "time_s": time.time()}))
    begun = json.loads(beginning.read_text())
    began = float(begun["time_s"])
    with (work / "log").open("a") as output:
        what = [*agent, "resume"] if goes_on else command
        end = until(what, repository, output.fileno(), limit_s)
    lines = (work / "log").read_text().strip().splitlines()
    events = list(read(journals[0])) if (journals := _journals(repository)) else []
    record = {
        "name": wanted.name,
        "commit": begun["commit"],
        "command": ["tile-agent", *command[len(agent) :]],
        "exit_code": end.code,
        "cut": end.cut,
        "last_line": lines[-1] if lines else "",
        "took_s": round(time.time() - began, 1),
        **times_of(events, began),
        **(story([line.event for line in events]) if events else {}),
    }
    if kept_of(record) and not end.cut:
        git(repository, "checkout", "--quiet", BRANCH)
        verify = [*agent, "verify", "--kernel", wanted.kernel, *_tests(wanted)]
        with (work / "verify.log").open("w") as output:
            verified = until(verify, repository, output.fileno(), VERIFY_S)
        record["verified_on_branch"] = verified.code == 0 and not verified.cut
    ending.write_text(json.dumps(record))
    return record


def _journals(repository: Path) -> list[Path]:
    return sorted(repository.glob("sandbox/runs/*/journal.jsonl"))


def _tests(wanted: RepositoryRun) -> tuple[str, ...]:
    """The option that names the project's own tests, where the run is told which they are."""
    if "--tests" not in wanted.arguments:
        return ()
    place = wanted.arguments.index("--tests")
    return wanted.arguments[place : place + 2]


def times_of(events: Sequence[JournalLine], began: float) -> dict[str, Any]:
    """What the steps of a run took, in s.

    Args:
        events: its journal.
        began: when its command was started, in s since the epoch.
    """
    found: dict[str, Any] = {"iterations_s": []}
    spent_s = 0.0  # the clock goes on between a run's end and its resumption
    for line in events:
        spent_s += line.event.took_s
        if isinstance(line.event, Baselined):
            found["to_baseline_s"] = round(line.time_s - began, 1)
            found["configs"] = len(line.event.records)
        elif isinstance(line.event, Calibrated) and "calibration_s" not in found:
            subset = line.event.subset
            found["calibration_s"] = round(line.event.took_s, 1)
            found["compared"] = len(subset.configs) if subset else found.get("configs")
            spent_s = 0.0
        elif isinstance(line.event, Settled):
            found["iterations_s"].append(round(spent_s, 1))
            spent_s = 0.0
    return found


def table(records: Sequence[dict[str, Any]]) -> str:
    """All runs, as Markdown."""
    return "\n".join([HEAD, RULE, *map(row, records)]) + "\n"


def row(record: dict[str, Any]) -> str:
    """One run."""
    iterations_s = record.get("iterations_s") or []
    final = record.get("final")
    cells = [
        record["name"],
        record["commit"][:7],
        "cut off" if record["cut"] else str(record["exit_code"]),
        _number(record.get("to_baseline_s")),
        f"{_number(record.get('calibration_s'))} ({record.get('compared', '-')} of "
        f"{record.get('configs', '-')})",
        _number(sum(iterations_s) / len(iterations_s) if iterations_s else None),
        str(kept_of(record)),
        f"{final['improvement']:+.1%} [{final['low']:+.1%}, {final['high']:+.1%}]"
        if final
        else "-",
        {True: "pass", False: "fail", None: "-"}[record.get("verified_on_branch")],
    ]
    return f"| {' | '.join(cells)} |"


def kept_of(record: dict[str, Any]) -> int:
    """How many optimizations a run kept."""
    return sum(row["status"] == "keep" for row in record.get("rows", [])[1:])


def _number(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
