"""How often code is refused as a candidate for itself, on public code as it is.

    TRITON_INTERPRET=1 python -m benchmarks.public_refusals OUT TRITONBENCH [NAME ...]

TRITONBENCH is a git clone of https://github.com/thunlp/TritonBench. Each file of its set G is both
origin and candidate, which has a line more that does nothing: its own test has to pass, and what
that calls is compared in other sizes, strides and alignments, as in a run. Whatever is refused is a
fault of the judge. Left out, and counted: files whose own test does not pass here. No GPU is
needed. Writes OUT/public_refusals.json after each file; a file that it holds is not run again.
Takes an hour.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from agent.frozen_tests import TestPlan
from agent.harness.measuring.examiner import Examiner
from agent.harness.measuring.verifier import Verifier
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.measurement import Failure
from benchmarks.public_kernels import KERNELS
from benchmarks.public_tests import asked, parts
from benchmarks.spec import replace_whole

LIMIT_S = 120.0
"""Of a file, which is run twice and then in other layouts."""
MADE = "public_refusals"
TEST = """\
import kernel


def test_its_own():
    exec(compile({text!r}, "its test", "exec"), dict(vars(kernel)))
"""
PLAN = TestPlan(("test_kernel.py",), ("test_kernel.py::test_its_own",), ())
NOTHING = "\n_NOTHING = None\n"


def main() -> int:
    """Judge them. Returns 1 where one is refused."""
    wanted = asked(__doc__, LIMIT_S)
    out = wanted.out.resolve()
    made = out / f"{MADE}.json"
    known: dict[str, Any] = json.loads(made.read_text()) if made.exists() else {}
    server = ForkServer(
        sys.executable, dict(os.environ), out / "server.log", confinement=Confinement()
    )
    with server:
        for path in sorted((wanted.tritonbench / KERNELS).glob("*.py")):
            if path.stem in known or (wanted.names and path.stem not in wanted.names):
                continue
            known[path.stem] = found = judged(path, out / path.stem, server, wanted.limit_s)
            replace_whole(made, json.dumps(known, indent=1))
            told = found["refused"] or found["left_out"] or f"{found['layouts']} layouts"
            print(f"{path.stem}: {told} ({found['took_s']:.0f} s)", flush=True)
    print(report(known))
    return 1 if any(each["refused"] for each in known.values()) else 0


def judged(path: Path, folder: Path, server: ForkServer, limit_s: float) -> dict[str, Any]:
    """What a run would say of a file as a candidate for itself."""
    kernel, test = parts(path.read_text(encoding="utf-8"))
    origin, candidate = (_checkout(folder / name, kernel, test) for name in ("origin", "candidate"))
    with (candidate.root / "kernel.py").open("a", encoding="utf-8") as file:
        file.write(NOTHING)
    (folder / "logs").mkdir(exist_ok=True)
    begun = time.monotonic()
    found: dict[str, Any] = {"left_out": "", "refused": "", "layouts": 0, "tuned": False}
    numbers = itertools.count()

    def new_log(purpose: str) -> Path:
        return folder / "logs" / f"{next(numbers)}-{purpose}.log"

    with closing(Examiner(server, lambda: PLAN, new_log)) as examiner:
        verifier = Verifier(server, examiner, new_log)
        alone = verifier.verify(PLAN, origin, deadline_in(limit_s))
        if isinstance(alone, Failure):
            found["left_out"] = alone.reason
        else:
            outcome = verifier.verify(PLAN, candidate, deadline_in(limit_s), origin=origin)
            found["refused"] = outcome.reason if isinstance(outcome, Failure) else ""
            found["layouts"] = len(examiner.compared_layouts)
    return found | {"took_s": time.monotonic() - begun, "tuned": "autotune" in kernel}


def _checkout(folder: Path, kernel: str, test: str) -> Checkout:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.py").write_text(kernel, encoding="utf-8")
    (folder / "test_kernel.py").write_text(TEST.format(text=test), encoding="utf-8")
    return Checkout(folder, (folder,), "kernel.py")


def report(known: dict[str, Any]) -> str:
    """What came of them, in lines."""
    ran = [each for each in known.values() if not each["left_out"]]
    compared = [each for each in ran if each["layouts"]]
    lines = [
        f"{len(ran)} of {len(known)} files pass their own test here; "
        f"{sum(each['layouts'] for each in compared)} layouts of {len(compared)} of them were "
        f"compared, {sum(each['tuned'] for each in compared)} of which tune themselves; "
        f"{sum(bool(each['refused']) for each in ran)} refused"
    ]
    lines += [f"- {name}: {each['refused']}" for name, each in known.items() if each["refused"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
