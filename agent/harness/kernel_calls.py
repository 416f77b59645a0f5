"""Calls a kernel's function on made inputs in workers: is it right, and is it faster on Tile IR?

Which backend compiles is decided when Triton is imported, by ENABLE_TILE: PTX and Tile IR each have
a fork server of their own. The tests that the workers collect are `tile_agent_pytest.tile_ir`'s.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tile_agent_pytest
from agent.errors import UsageError, WorkerError, WorkerTimedOut
from agent.frozen_tests import TestPlan
from agent.harness.compiling.cutile import import_roots, module_name
from agent.harness.measuring.gpu import taken
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.processes.collection_errors import fault
from agent.harness.processes.confinement import Limits, for_run, remedy
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import TestResult
from agent.harness.processes.variables import insist_set
from agent.harness.processes.worker_session import Checkout, WorkerSession, deadline_in
from agent.measuring.decision import Rules
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison, geometric_mean
from agent.tileir.job import Job, Reference
from agent.tileir.steps import SizeTiming, Step, StepStatus, TileIrPhase, Timed
from agent.workspace import state_dir
from tile_agent_pytest.tile_ir import RESULTS

CALLS, RIGHT_RESULTS = "call_tests.py", "result_tests.py"
FRAMEWORK = "triton"
RESULT_BYTES = 2**36
"""The most that one call's tensors may take on disk."""


@dataclass(frozen=True)
class _Call:
    """One call of the function."""

    label: str
    """What tells it from others."""
    error: str | None


class KernelCalls:
    """A kernel's function, called and compared in workers, until it is closed."""

    def __init__(self, job: Job, reference: Reference) -> None:
        self.job = job
        self._reference = reference
        self._roots = import_roots(job.file.resolve())
        self._stack = ExitStack()

    def close(self) -> None:
        """End the workers and what they were forked from."""
        self._stack.close()

    def verify(self, *, tile: bool) -> Step:
        """Run the kernel under PTX, or under Tile IR, and compare with the reference.

        Raises:
            UsageError: the reference fails.
        """
        phase = TileIrPhase.VALIDATE if tile else TileIrPhase.COMPATIBILITY
        if (why := self.job.cannot(tile=tile)) is not None:
            return Step(phase, StepStatus.NOT_RUN, why)
        calls = self._called(tile=tile)
        if isinstance(calls, str):
            return Step(phase, StepStatus.FAILED, calls)
        if failed := tuple(f"{call.label}: {call.error}" for call in calls if call.error):
            return Step(phase, StepStatus.FAILED, "the kernel fails", details=failed)
        return self._step(phase, calls, self._judged(len(calls)))

    def benchmark(self, say: Callable[[str], None]) -> Timed:
        """Time PTX against Tile IR in process pairs, as a run compares two commits.

        Args:
            say: told in a line what is waited for.
        """
        job, gpu = self.job, self.job.machine.gpu
        if gpu is None:
            return _untimed("there is no GPU: the interpreter's time says nothing about one")
        if (why := job.cannot(tile=False)) is not None:
            return _untimed(why)
        no_tile_ir = job.cannot(tile=True)
        with ExitStack() as stack:
            judge = PytestJudge(
                self._ptx,
                TestPlan(self._arguments(CALLS), (), self._nodeids(CALLS, "test_perf")),
                framework=FRAMEWORK,
                rules=Rules(),
                logs=self._logs,
                watch=taken(stack, gpu, say),
                other_layouts=False,
                candidate_server=None if no_tile_ir else self._tile_ir,
            )
            stack.callback(judge.close)
            checkout = self._checkout(CALLS)
            ptx = judge.time(checkout, deadline_in(job.timeout_s))
            if isinstance(ptx, Failure):
                return _untimed(f"ENABLE_TILE=0: {ptx.reason}", StepStatus.FAILED)
            rows = [
                SizeTiming(case.label, case.size, record.latency_ms, method=record.method)
                for case, record in zip(job.call.cases, ptx.records, strict=True)
            ]
            if no_tile_ir:
                step = _untimed(f"PTX alone was timed: {no_tile_ir}").step
                return Timed(step, tuple(rows), geometric_mean([row.ptx_ms for row in rows]))
            found = judge.compare(checkout, checkout, None, deadline_in(job.timeout_s))
        if isinstance(found, Failure):
            whose = "" if found.unmeasured else f"ENABLE_TILE={not found.incumbent:d}: "
            return _untimed(f"{whose}{found.reason}", StepStatus.FAILED)
        return _compared(rows, found)

    # --- right? ---------------------------------------------------------------------------------

    def _called(self, *, tile: bool) -> list[_Call] | str:
        """What became of each call; a string says why there are none."""
        cases = self.job.call.cases
        for kept in (self._folder / RESULTS).iterdir():
            kept.unlink()
        deadline = deadline_in(self.job.timeout_s)
        try:
            with self._session(CALLS, "test_call", tile=tile) as arm:
                if errors := arm.collection(deadline).errors:
                    return self._import_error(errors[0][1])
                tests = arm.run(self._nodeids(CALLS, "test_call"), deadline).tests
        except WorkerError as problem:
            return self._fate(problem)
        calls: list[_Call] = []
        for case, test in zip(cases, tests, strict=True):
            for did in _recorded(test, "run"):
                label = f"{case.label} with {did['config']}" if did["config"] else case.label
                calls.append(_Call(label, did["error"]))
            if test.outcome != "passed":
                calls.append(_Call(case.label, test.headline))
        if any(call.error for call in calls):
            return calls
        if idle := [case for case, test in zip(cases, tests, strict=True) if not test.launched]:
            names = ", ".join(self.job.call.kernels)
            return f"{self.job.call.function} launches none of {names} for {idle[0].label}"
        return calls

    def _import_error(self, account: str) -> str:
        """Why nothing was called, by pytest's account."""
        said = fault(account, self._roots[-1])
        if said:
            return f"{self.job.file.name} cannot be imported: {said}{self._remedy(said)}"
        return f"ENABLE_TILE=1 did not make Tile IR compile: {account.strip()}"

    def _judged(self, count: int) -> list[Mapping[str, Any]]:
        """What is wrong with each call, by the reference."""
        deadline = deadline_in(self.job.timeout_s)
        try:
            with self._session(RIGHT_RESULTS, "test_result", tile=False) as judge:
                if errors := judge.collection(deadline).errors:
                    raise self._bad_reference(fault(errors[0][1], self._roots[-1]))
                done = judge.run(self._nodeids(RIGHT_RESULTS, "test_result"), deadline)
        except WorkerError as problem:
            raise UsageError(
                f"--reference did not come to its end: {self._fate(problem)}"
            ) from None
        if bad := done.not_passed():
            raise self._bad_reference(bad[0].headline)
        judged = [found for test in done.tests for found in _recorded(test, "judged")]
        if len(judged) != count:
            name = self.job.file.name
            raise UsageError(f"{name} meddles with the results of its calls: mend that")
        return judged

    def _bad_reference(self, said: str) -> UsageError:
        return UsageError(f"--reference fails ({said}): mend it{self._remedy(said)}")

    def _step(
        self, phase: TileIrPhase, calls: Sequence[_Call], judged: Sequence[Mapping[str, Any]]
    ) -> Step:
        details = tuple(
            f"{call.label}: {problem}"
            for call, found in zip(calls, judged, strict=True)
            for problem in found["problems"]
        )
        how = "in Triton's interpreter, on the CPU" if self.job.interpreted else "on the GPU"
        cases = len(self.job.call.cases)
        count = f"{cases} case{'s' if cases != 1 else ''}"
        if len(calls) > cases:
            count = f"{len(calls)} runs, of {count} with each config,"
        return Step(
            phase,
            StepStatus.FAILED if details else StepStatus.PASSED,
            f"{count} {how}",
            max_abs_diff=_largest(judged, "max_abs_diff"),
            max_rel_diff=_largest(judged, "max_rel_diff"),
            details=details,
        )

    # --- workers --------------------------------------------------------------------------------

    @cached_property
    def _ptx(self) -> ForkServer:
        return self._server(tile=False)

    @cached_property
    def _tile_ir(self) -> ForkServer:
        return self._server(tile=True)

    def _server(self, *, tile: bool) -> ForkServer:
        insist_set(self.job.options.command.pass_env)
        confinement = replace(
            for_run(self.job.options, self._roots[-1]),
            write=(self._folder / RESULTS,),
            limits=Limits(file_bytes=RESULT_BYTES),
        )
        server = ForkServer(
            self.job.python,
            self.job.environment(tile=tile),
            self._logs / "server.log",
            confinement=confinement,
            pass_env=self.job.options.command.pass_env,
        )
        return self._stack.enter_context(server)

    @cached_property
    def _logs(self) -> Path:
        """They stay when all is over, for a person to read."""
        folder = state_dir() / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{self.job.file.stem}-", dir=folder))

    @cached_property
    def _folder(self) -> Path:
        """The tests with their job, and a place for results."""
        folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tile-agent-calls-"))
        ).resolve()
        (folder / RESULTS).mkdir()
        (folder / "pytest.ini").touch()  # or pytest would look for one in the folders above
        for name in (CALLS, RIGHT_RESULTS):
            shutil.copy(Path(tile_agent_pytest.__file__).parent / "tile_ir" / name, folder)
        call = self.job.call
        job = {
            "kernel": _place(self.job.file, self._roots),
            "function": call.function,
            "arguments": [dict(argument) for argument in call.arguments],
            "cases": [
                {"shapes": {name: list(shape) for name, shape in case.shapes.items()}, "seed": n}
                for n, case in enumerate(call.cases)
            ],
            "reference": _named(self._reference),
            "rtol": self._reference.rtol,
            "atol": self._reference.atol,
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        return folder

    def _session(self, tests: str, function: str, *, tile: bool) -> WorkerSession:
        return WorkerSession(
            self._tile_ir if tile else self._ptx,
            self._checkout(tests),
            self._logs / f"{function}-{'tile-ir' if tile else 'ptx'}.log",
            arguments=self._arguments(tests),
            tests=self._nodeids(tests, function),
            detect_launches=tests == CALLS,
        )

    def _checkout(self, tests: str) -> Checkout:
        """The user's files as they are; what has to be imported is the kernel's, or the judge."""
        if tests == CALLS:
            root, file = self._roots[-1], self.job.file.resolve()
            return Checkout(root, self._roots, str(file.relative_to(root)))
        return Checkout(self._roots[-1], _roots(self._reference), str(self._folder / tests))

    def _arguments(self, tests: str) -> tuple[str, ...]:
        folder = self._folder
        return (f"--rootdir={folder}", "--import-mode=importlib", str(folder / tests))

    def _nodeids(self, tests: str, function: str) -> tuple[str, ...]:
        return tuple(f"{tests}::{function}[{n}]" for n in range(len(self.job.call.cases)))

    def _fate(self, problem: WorkerError) -> str:
        if isinstance(problem, WorkerTimedOut):
            return f"not done after {self.job.timeout_s:g} s: killed"
        return f"{problem}{self._remedy(str(problem))}"

    def _remedy(self, said: str) -> str:
        return remedy(self.job.options, said)


def _untimed(reason: str, status: StepStatus = StepStatus.NOT_RUN) -> Timed:
    return Timed(Step(TileIrPhase.BENCHMARK, status, reason))


def _compared(ptx: Sequence[SizeTiming], found: Comparison) -> Timed:
    rows = tuple(
        replace(
            row,
            ptx_ms=config.incumbent_ms,
            tileir_ms=config.candidate_ms,
            speedup=1 / (1 - config.effect.improvement),
            low=1 / (1 - config.effect.low),
            high=1 / (1 - config.effect.high),
        )
        for row, config in zip(ptx, found.configs, strict=True)
    )
    reason = (
        f"Tile IR takes {found.candidate_ms:.6f} ms against {found.incumbent_ms:.6f} of PTX, "
        f"{found.incumbent_ms / found.candidate_ms:.2f}x, over {found.pairs} process pairs"
    )
    status = StepStatus.PASSED if found.overall.low > 0 else StepStatus.FAILED
    step = Step(TileIrPhase.BENCHMARK, status, reason)
    return Timed(step, rows, found.incumbent_ms, found.candidate_ms)


def _recorded(test: TestResult, name: str) -> list[Mapping[str, Any]]:
    return [value for key, value in test.properties if key == name]


def _largest(judged: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return max((found[name] for found in judged if found[name] is not None), default=None)


def _roots(reference: Reference) -> tuple[Path, ...]:
    """Folders from which Python imports its file."""
    return import_roots(reference.file.resolve()) if reference.file else ()


def _named(reference: Reference) -> dict[str, Any]:
    """As `tile_agent_pytest.tile_ir.judge.reference_of` reads it."""
    if reference.file is None:
        return {"expression": reference.expression}
    return {**_place(reference.file, _roots(reference)), "function": reference.function}


def _place(file: Path, roots: Sequence[Path]) -> dict[str, str]:
    """What `tile_agent_pytest.tile_ir.calls.load` takes."""
    return {"file": str(file.resolve()), "name": module_name(file.resolve(), roots)}
