"""What a comparison resolves on kernels of 2 to 50 us. Needs an NVIDIA GPU.

    python -m benchmarks.short_kernels OUT [NAME ...]

Calibrates each kernel of benchmarks/kernels/triton_short.py as the loop does before a run: the
same code against itself, in process pairs. Writes OUT/short_kernels.md and .json: latency, how it
was timed, noise floor, and the smallest improvement that as many pairs find nine times in ten.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.environment import describe, probe
from agent.frozen_tests import TestPlan
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules
from agent.measuring.measurement import Failure

KERNELS = Path(__file__).parent / "kernels" / "triton_short.py"
NAMES = ("add", "swiglu", "rms_norm", "wide_rms_norm", "l2_norm", "row_mean", "column_sum",
         "embedding", "rope", "matmul")  # fmt: skip
TEST = """\
from kernel import MAKERS


def test_perf(tile_bench):
    tile_bench(MAKERS["{name}"]())
"""
PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Row:
    """One kernel's calibration."""

    kernel: str
    latency_ms: float
    method: str
    pairs: int
    noise_floor: float
    resolvable: float
    problem: str = ""


def main() -> int:
    """Calibrate each."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.short_kernels", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    environment = probe()
    if environment.gpu is None:
        print("this needs an NVIDIA GPU", file=sys.stderr)
        return 2
    rows = []
    with ForkServer(sys.executable, {}, asked.out / "server.log") as server:
        watch = GpuWatch(environment.gpu)
        for name in asked.names:
            rows.append(calibrated(server, watch, name, asked.out))
            print(rows[-1], flush=True)
            write(asked.out, rows, describe(environment.to_json()))
    return 0


def calibrated(server: ForkServer, watch: GpuWatch, name: str, out: Path) -> Row:
    """One kernel against itself."""
    root = out / "work" / name
    root.mkdir(parents=True, exist_ok=True)
    (root / "kernel.py").write_text(KERNELS.read_text())
    (root / "test_kernel.py").write_text(TEST.format(name=name))
    checkout, logs = Checkout(root, (root,), "kernel.py"), out / "logs"
    logs.mkdir(exist_ok=True)
    judge = PytestJudge(server, PLAN, framework="triton", rules=Rules(), logs=logs, watch=watch)
    timed = judge.time(checkout, deadline_in(TIMEOUT_S))
    found = judge.calibrate(checkout, deadline_in(TIMEOUT_S))
    if isinstance(found, Failure) or not isinstance(timed, TimedPass):
        failed = found if isinstance(found, Failure) else timed
        return Row(name, 0.0, "", 0, 0.0, 0.0, getattr(failed, "reason", ""))
    (resolvable,), (latency_ms,) = found.resolvable.values(), found.levels_ms.values()
    method = timed.records[0].method
    return Row(name, latency_ms, method, found.pairs, found.noise_floor, resolvable)


def write(out: Path, rows: list[Row], machine: str) -> None:
    """Table and JSON."""
    (out / "short_kernels.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    lines = [
        f"Measured on: {machine}",
        "",
        "| kernel | latency, us | timed as | pairs | noise floor | resolves |",
        "|:--|--:|:--|--:|--:|--:|",
        *(
            f"| {row.kernel} | {1e3 * row.latency_ms:.2f} | {row.method or row.problem} "
            f"| {row.pairs} | {row.noise_floor:.2%} | {row.resolvable:.2%} |"
            for row in rows
        ),
    ]
    (out / "short_kernels.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
