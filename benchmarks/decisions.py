"""How often the loop's decisions are right, on kernels of known difference. Needs an NVIDIA GPU.

    python benchmarks/decisions.py OUT [--nulls 10] [--fives 2] [--others 1] [--plain 5]

For each kernel of benchmarks/kernels: the noise floor; null edits, which must not be kept; the
kernel with its PAD raised by about 3, 5 and 10 % as candidate (must not be kept) and as incumbent
(must be kept, at 5 % and 10 %; at 3 % it is counted). The true difference of each PAD is measured
first, in one process, on many alternating blocks. The same null edits are also judged the plain
way: one perf run before, one after, keep at 2 %. Writes OUT/decisions.md and OUT/decisions.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.environment import describe, probe
from agent.frozen_tests import TestPlan
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.timed_pass import TimedPass
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Rules, Status, decide
from agent.measuring.measurement import Calibration, Failure

KERNELS = (
    "triton_softmax",
    "triton_matmul",
    "triton_tiny",
    "cutile_softmax",
    "cutile_matmul",
    "cutile_tiny",
)
TEST = "from kernel import make\n\n\ndef test_perf(tile_bench):\n    tile_bench(make())\n"
PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
TIMEOUT_S = 120.0
NULL_EDITS = (
    ("comment", lambda text, n: text.replace("PAD = 0", f"# edit {n}\nPAD = 0")),
    ("rename", lambda text, n: text.replace("numerator", f"value_{n}").replace("acc", f"sum_{n}")),
    ("blank line", lambda text, n: text.replace("PAD = 0", "\n" * n + "PAD = 0")),
)


@dataclass
class Study:
    """What was found on one kernel."""

    kernel: str
    noise_floor: float = 0.0
    latency_ms: float = 0.0
    resolvable: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    nulls_kept: int = 0
    nulls: int = 0
    plain_kept: int = 0
    plain: int = 0
    injected: list[dict[str, Any]] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)


class Bench:
    """One kernel's checkouts and judge."""

    def __init__(self, server: ForkServer, watch: GpuWatch, kernel: str, work: Path) -> None:
        self.kernel = kernel
        self.work = work / kernel
        self.text = (Path(__file__).parent / "kernels" / f"{kernel}.py").read_text()
        logs = work / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        framework = kernel.partition("_")[0]
        self.judge = PytestJudge(
            server, PLAN, framework=framework, rules=Rules(), logs=logs, watch=watch
        )

    def checkout(self, name: str, text: str) -> Checkout:
        """A version of the kernel on disk."""
        root = self.work / name
        root.mkdir(parents=True, exist_ok=True)
        (root / "kernel.py").write_text(text)
        (root / "test_kernel.py").write_text(TEST)
        return Checkout(root, (root,), "kernel.py")

    def padded(self, pad: int) -> Checkout:
        """The kernel with so much more to do."""
        return self.checkout(f"pad{pad}", self.text.replace("PAD = 0", f"PAD = {pad}"))


def main() -> int:
    """Study every kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nulls", type=int, default=10)
    parser.add_argument("--fives", type=int, default=2)
    parser.add_argument("--others", type=int, default=1)
    parser.add_argument("--plain", type=int, default=5)
    parser.add_argument("--kernels", nargs="*", default=KERNELS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended early"))  # still writes what it has
    options.out.mkdir(parents=True, exist_ok=True)
    environment = probe()
    if environment.gpu is None:
        print("this study needs an NVIDIA GPU", file=sys.stderr)
        return 2
    watch = GpuWatch(environment.gpu)
    studies: list[Study] = []
    with ForkServer(sys.executable, {}, options.out / "server.log") as server:
        for kernel in options.kernels:
            bench = Bench(server, watch, kernel, options.out / "work")
            studies.append(Study(kernel))
            try:
                study(bench, options, studies[-1])
            except (RuntimeError, subprocess.CalledProcessError) as problem:
                studies[-1].unmeasured.append(str(problem))
            finally:
                write(options.out, studies, describe(environment.to_json()))
                print(json.dumps(asdict(studies[-1])), flush=True)
    return 0


def study(bench: Bench, options: argparse.Namespace, found: Study) -> None:
    """All decisions on one kernel."""
    origin = bench.padded(0)
    calibration = bench.judge.calibrate(origin, deadline_in(TIMEOUT_S))
    if isinstance(calibration, Failure):
        found.unmeasured.append(calibration.reason)
        return
    found.noise_floor = calibration.noise_floor
    found.latency_ms = next(iter(calibration.levels_ms.values()))
    for number in range(options.nulls):
        name, edit = NULL_EDITS[number % len(NULL_EDITS)]
        edited = bench.checkout(f"null{number}", edit(bench.text, number + 1))
        verdict = judged(bench, found, origin, edited, calibration)
        if verdict is not None:
            found.nulls += 1
            found.nulls_kept += verdict is Status.KEEP
            print(f"{bench.kernel} null {name}: {verdict.value}", flush=True)
        if number < options.plain:
            before, after = plain(bench, origin), plain(bench, edited)
            found.plain += 1
            found.plain_kept += 1 - after / before >= Rules().minor
    truths = true_slowdowns(bench, [5, 3, 10])
    for percent, repeats in ((5, options.fives), (3, options.others), (10, options.others)):
        pad, truth = truths[percent]
        slower = bench.padded(pad)
        for _ in range(repeats):
            for faster in (False, True):
                pair = (slower, origin) if faster else (origin, slower)
                verdict = judged(bench, found, *pair, None if faster else calibration, calibration)
                if verdict is None:
                    continue
                right = (verdict is Status.KEEP) is faster
                found.injected.append(
                    {"percent": percent, "pad": pad, "true": truth, "faster": faster,
                     "verdict": verdict.value, "right": right}
                )  # fmt: skip
                print(f"{bench.kernel} {found.injected[-1]}", flush=True)


def judged(
    bench: Bench,
    found: Study,
    incumbent: Checkout,
    candidate: Checkout,
    calibration: Calibration | None,
    floor_of: Calibration | None = None,
) -> Status | None:
    """One decision as the loop makes it; None when nothing could be measured."""
    begin = time.monotonic()
    outcome = bench.judge.compare(incumbent, candidate, calibration, deadline_in(TIMEOUT_S))
    found.decision_s.append(time.monotonic() - begin)
    if isinstance(outcome, Failure):
        found.unmeasured.append(outcome.reason)
        return None
    found.resolvable.append(outcome.resolvable)
    known = calibration or floor_of
    verdict = decide(outcome, Rules(), noise_floor=known.noise_floor if known else 0.0)
    print(f"  {outcome.pairs} pairs, {found.decision_s[-1]:.1f} s: {verdict.reason}", flush=True)
    return verdict.status


def plain(bench: Bench, checkout: Checkout) -> float:
    """The latency of one perf run in a fresh process, as a person would take it."""
    timing = bench.judge.time(checkout, deadline_in(TIMEOUT_S))
    if not isinstance(timing, TimedPass):
        raise RuntimeError(timing.reason)
    return timing.records[0].latency_ms


TRUTH = """
import json, statistics, sys
import kernel
from tile_agent_pytest.bench import open_sampler

wanted, unit = json.loads(sys.argv[1]), int(sys.argv[2])
launch = kernel.make()


def sampler(pad):
    kernel.PAD = pad
    return pad, open_sampler(launch, METHOD)[0]


def block(made):
    kernel.PAD = made[0]
    return statistics.median(made[1].sample(40))


def slowdown(pad):
    plain, padded = sampler(0), sampler(pad)
    block(plain), block(padded)
    ratios = []
    for _ in range(25):
        a, b, c, d = block(plain), block(padded), block(padded), block(plain)
        ratios.append((b + c) / (a + d) - 1)
    return statistics.median(ratios)


METHOD = type(open_sampler(launch)[0]).__name__
slope = slowdown(8 * unit) / (8 * unit)
pads = {p: max(1, round(p / 100 / slope)) for p in wanted}
print(json.dumps({p: [pad, slowdown(pad)] for p, pad in pads.items()}))
"""


def true_slowdowns(bench: Bench, wanted: list[int]) -> dict[int, tuple[int, float]]:
    """Percent -> the PAD that comes nearest to it, and what it really costs.

    One process, both versions alternating block by block: independent of the loop's own pairs.
    """
    unit = {"softmax": 164, "matmul": 1, "tiny": 8}[bench.kernel.partition("_")[2]]
    root = bench.padded(0).root
    done = subprocess.run(
        [sys.executable, "-c", TRUTH, json.dumps(wanted), str(unit)],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return {int(p): (pad, true) for p, (pad, true) in json.loads(done.stdout).items()}


def write(out: Path, studies: list[Study], machine: str) -> None:
    """The results so far."""
    (out / "decisions.json").write_text(
        json.dumps({"machine": machine, "studies": [asdict(s) for s in studies]}, indent=1)
    )
    lines = [
        f"Measured on: {machine}",
        "",
        "| kernel | latency, us | noise floor | resolvable (median) | null edits kept | kept the "
        "plain way | 5 % right | 3 % right | 10 % right | decision, s (median) |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for s in studies:
        share = {p: [i["right"] for i in s.injected if i["percent"] == p] for p in (5, 3, 10)}
        cells = [
            s.kernel,
            f"{s.latency_ms * 1e3:.2f}",
            f"{s.noise_floor:.2%}",
            f"{statistics.median(s.resolvable):.2%}" if s.resolvable else "-",
            f"{s.nulls_kept} of {s.nulls}",
            f"{s.plain_kept} of {s.plain}",
            *(f"{sum(share[p])} of {len(share[p])}" for p in (5, 3, 10)),
            f"{statistics.median(s.decision_s):.1f}" if s.decision_s else "-",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    total = [sum(s.nulls_kept for s in studies), sum(s.nulls for s in studies)]
    plain_total = [sum(s.plain_kept for s in studies), sum(s.plain for s in studies)]
    fives = [i["right"] for s in studies for i in s.injected if i["percent"] == 5]
    lines += [
        "",
        f"Null edits kept: {total[0]} of {total[1]}; the plain way {plain_total[0]} of "
        f"{plain_total[1]}. Changes of 5 % judged rightly: {sum(fives)} of {len(fives)}. "
        f"Could not be measured: {sum(len(s.unmeasured) for s in studies)}.",
    ]
    (out / "decisions.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
