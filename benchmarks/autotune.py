"""Compares the autotuned examples with their fixed configs, and writes it as Markdown and JSON.

    python benchmarks/autotune.py OUT [--processes N] [EXAMPLE ...]

Needs a GPU. For each example and shape, in N processes of their own: the tuned kernel is right with
the search and with DISABLE_AUTOTUNE=1, the first call searches and no later one, and fixed and
tuned are timed in turn, in blocks ABBA BAAB. `speedup_over_fixed` is the geometric mean
over the processes of the fixed latency over the tuned one; its interval takes the process as the
replicate. OUT/autotune.json holds every block. The exit code is 1 where something is not right, or
where the interval lies below 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SAMPLES = 60
"""Launches of a block."""
ORDER = "ABBABAAB"
ALPHA = 0.025
"""Error rate of each end of the interval."""


@dataclass(frozen=True)
class Example:
    """How one of the examples is called and checked."""

    function: str
    shapes: Sequence[tuple[int, ...]]
    inputs: Callable[..., Any]
    """Shape -> the arguments of the function, on the GPU."""
    expected: Callable[..., Any]
    """Arguments -> what it gives, in fp64."""
    rtol: float
    atol: float


def main() -> int:
    """Measure, or be one of the measuring processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("examples", nargs="*", default=list(EXAMPLES))
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--worker", action="store_true", help="print one process's blocks")
    arguments = parser.parse_args()
    if arguments.worker:
        (name,) = arguments.examples
        print(json.dumps(measure(name)))
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {name: processes(name, arguments.processes) for name in arguments.examples}
    rows = [row for name, runs in found.items() for row in summary(name, runs)]
    report = {"machine": machine(), "rows": rows, "processes": found}
    (arguments.out / "autotune.json").write_text(json.dumps(report, indent=1))
    (arguments.out / "autotune.md").write_text(markdown(report))
    print(markdown(report))
    return 0 if all(row["ok"] for row in rows) else 1


def processes(name: str, count: int) -> list[list[dict[str, Any]]]:
    """What each of several processes measures for an example."""
    command = [sys.executable, str(Path(__file__).resolve()), os.devnull, name, "--worker"]
    environment = {k: v for k, v in os.environ.items() if k != "DISABLE_AUTOTUNE"}
    runs = []
    for number in range(count):
        begin = time.monotonic()
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        took_s = time.monotonic() - begin
        print(f"{name}: process {number + 1} of {count}, {took_s:.0f} s", file=sys.stderr)
    return runs


# --- one process --------------------------------------------------------------------------------


def measure(name: str) -> list[dict[str, Any]]:
    """Check and time one example on all its shapes."""
    example = EXAMPLES[name]
    fixed, tuned = (getattr(load(name, kind), example.function) for kind in ("fixed", "tuned"))
    searches = counted(load(name, "tuned"))
    return [one_shape(example, shape, fixed, tuned, searches) for shape in example.shapes]


def one_shape(
    example: Example,
    shape: tuple[int, ...],
    fixed: Callable[..., Any],
    tuned: Callable[..., Any],
    searches: list[dict[str, Any]],
) -> dict[str, Any]:
    """Check and time one shape; `searches` grows with every search."""
    from tile_agent_pytest.bench import open_sampler

    before = len(searches)
    begin = time.perf_counter()
    right = {"first call": is_right(example, shape, tuned)}
    first_s = time.perf_counter() - begin
    after_first = len(searches) - before
    right["second call"] = is_right(example, shape, tuned)
    after_second = len(searches) - before
    os.environ["DISABLE_AUTOTUNE"] = "1"
    right["DISABLE_AUTOTUNE=1"] = is_right(example, shape, tuned)
    del os.environ["DISABLE_AUTOTUNE"]
    right["fixed"] = is_right(example, shape, fixed)
    inputs = example.inputs(*shape)
    samplers: dict[str, Any] = {}
    samplers["A"], _ = open_sampler(lambda: fixed(*inputs))
    method = type(samplers["A"]).__name__
    samplers["B"], _ = open_sampler(lambda: tuned(*inputs), method)
    for sampler in samplers.values():
        sampler.sample(SAMPLES)
    blocks: dict[str, list[float]] = {"A": [], "B": []}
    for arm in ORDER:
        samples = sorted(samplers[arm].sample(SAMPLES))
        blocks[arm].append(samples[len(samples) // 2])
    return {
        "shape": shape,
        "right": right,
        "searches": {
            "first call": after_first,
            "second call": after_second - after_first,
            "in all": len(searches) - before,
        },
        "first_call_s": first_s,
        "found": searches[before:],
        "method": samplers["A"].label,
        "fixed_ms": blocks["A"],
        "tuned_ms": blocks["B"],
    }


def is_right(example: Example, shape: tuple[int, ...], function: Callable[..., Any]) -> bool:
    """Whether a function gives what it should, on inputs made afresh."""
    import torch

    inputs = example.inputs(*shape)
    expected = example.expected(*inputs)
    actual = function(*inputs).double()
    return torch.allclose(actual, expected, rtol=example.rtol, atol=example.atol)


def load(name: str, kind: str) -> ModuleType:
    """The module of an example, 'fixed' or 'tuned', imported once."""
    module_name = f"{name}_{kind}"
    if module_name not in sys.modules:
        path = ROOT / "examples" / f"cutile_autotune_{name}" / f"{module_name}.py"
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module_name])
    return sys.modules[module_name]


def counted(module: ModuleType) -> list[dict[str, Any]]:
    """Let a module note what each of its searches finds."""
    search, found = module.exhaustive_search, []

    def exhaustive_search(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = search(*args, **kwargs)
        found.append(
            {
                "seconds": time.perf_counter() - begin,
                "best": vars(result.best.config),
                "mean_us": [[str(m.config), m.mean_us] for m in result.successes],
                "failures": [[str(config), str(why)[:200]] for config, _, why in result.failures],
            }
        )
        return result

    module.exhaustive_search = exhaustive_search
    return found


# --- all of them --------------------------------------------------------------------------------


def summary(name: str, runs: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row a shape."""
    from agent.measuring.statistics import Blocks, compare

    rows = []
    for shapes in zip(*runs, strict=True):
        pairs = [{"": Blocks(tuple(s["fixed_ms"]), tuple(s["tuned_ms"]))} for s in shapes]
        found = compare(pairs, alpha=ALPHA)
        low, high = (1 / (1 - end) for end in (found.overall.low, found.overall.high))
        correct = all(all(s["right"].values()) for s in shapes)
        once = all(s["searches"]["first call"] == s["searches"]["in all"] > 0 for s in shapes)
        rows.append(
            {
                "example": name,
                "shape": "x".join(map(str, shapes[0]["shape"])),
                "fixed_ms": found.incumbent_ms,
                "tuned_ms": found.candidate_ms,
                "speedup_over_fixed": found.incumbent_ms / found.candidate_ms,
                "low": low,
                "high": high,
                "best": sorted({json.dumps(s["found"][-1]["best"]) for s in shapes}),
                "first_call_s": max(s["first_call_s"] for s in shapes),
                "correct": correct,
                "first_call_only": once,
                "ok": correct and once and high >= 1,
            }
        )
    return rows


def machine() -> str:
    """GPU, driver and versions, in one line."""
    from importlib.metadata import version

    import torch

    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[0]
    return (
        f"{torch.cuda.get_device_name()}, driver {driver}, torch {torch.__version__}, "
        f"cuda-tile {version('cuda-tile')}"
    )


def markdown(report: dict[str, Any]) -> str:
    """The table."""
    rows = report["rows"]
    method = next(iter(report["processes"].values()))[0][0]["method"]
    count = len(next(iter(report["processes"].values())))
    lines = [
        f"{report['machine']}; {count} processes, {method}.",
        "",
        "| example | shape | fixed, ms | tuned, ms | speedup_over_fixed | 95 % interval "
        "| correct, on and off | searched on the first call only | first call, s | found |",
        "|:--|:--|--:|--:|--:|:--|:--|:--|--:|:--|",
    ]
    lines += [
        f"| {r['example']} | {r['shape']} | {r['fixed_ms']:.4f} | {r['tuned_ms']:.4f} "
        f"| {r['speedup_over_fixed']:.3f} | {r['low']:.3f} to {r['high']:.3f} "
        f"| {'yes' if r['correct'] else 'NO'} | {'yes' if r['first_call_only'] else 'NO'} "
        f"| {r['first_call_s']:.1f} | {' or '.join(r['best'])} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


# --- the examples -------------------------------------------------------------------------------


def _random(*shape: int) -> Any:
    import torch

    torch.manual_seed(len(shape))
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _rms_norm(x: Any, weight: Any) -> Any:
    x = x.double()
    mean_square = x.square().mean(dim=-1, keepdim=True)
    return x * (mean_square + 1e-6).rsqrt() * weight.double()


def _rope_inputs(batches: int, heads: int, positions: int, dim: int) -> Any:
    import torch

    frequency = 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    angle = torch.arange(positions, device="cuda")[:, None] * frequency
    return _random(batches, heads, positions, dim), angle.cos(), angle.sin()


def _rope(x: Any, cos: Any, sin: Any) -> Any:
    import torch

    low, high = x.double().chunk(2, dim=-1)
    cos, sin = cos.double(), sin.double()
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


EXAMPLES = {
    "rms_norm": Example(
        function="rms_norm",
        shapes=((16384, 4096), (4096, 8192)),
        inputs=lambda m, n: (_random(m, n), _random(n)),
        expected=_rms_norm,
        rtol=2**-7,
        atol=1e-6,
    ),
    "matmul": Example(
        function="matmul",
        shapes=((4096, 4096, 4096), (512, 4096, 4096), (64, 4096, 4096)),
        inputs=lambda m, n, k: (_random(m, k), _random(k, n)),
        expected=lambda a, b: a.double() @ b.double(),
        rtol=2**-7,
        atol=2**-10,
    ),
    "rope": Example(
        function="rope_",
        shapes=((4, 32, 4096, 128), (1, 32, 2048, 128)),
        inputs=_rope_inputs,
        expected=_rope,
        rtol=2**-7,
        atol=2**-12,
    ),
}

if __name__ == "__main__":
    sys.exit(main())
