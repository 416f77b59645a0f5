"""The interpreter of the tests is started, and they are collected: for a run, or a plan of one.

Whoever collects imports the tests and the kernel's file, in a worker. Nothing is launched.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent import environment as machine
from agent.analysis.common.subject import Hardware
from agent.backends import BACKENDS
from agent.environment import VISIBLE_GPUS, Environment, Gpu
from agent.errors import UsageError
from agent.frozen_tests import TestPlan
from agent.harness.discovery import Selection, discover, imports_file
from agent.harness.processes.confinement import for_run, insist, remedy
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.variables import insist_set
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.options import Request
from agent.target import Target

COLLECT_TIMEOUT_S = 300.0


def hardware_of(environment: Environment) -> Hardware:
    """What a precondition may ask of a machine."""
    gpu = environment.gpu
    return Hardware(sm=gpu.sm if gpu else 0, interpreted=gpu is None)


class Collecting:
    """The interpreter of the tests, started, and what it says of the machine."""

    def __init__(
        self, stack: ExitStack, request: Request, target: Target, checkout: Path, logs: Path
    ) -> None:
        """Start it.

        Args:
            stack: ends it.
            request: what the user asked for.
            target: the kernel and the files of its tests.
            checkout: the root of the user's, in which secrets are kept too.
            logs: a folder for what is printed; it is made.

        Raises:
            UsageError: that interpreter cannot run it, has too old a Triton for it, or cannot be
                confined as was asked; or a variable that is to be handed on is not set.
        """
        insist_set(request.options.command.pass_env)
        logs.mkdir(parents=True, exist_ok=True)
        self._request, self._target, self._log = request, target, logs / "collect.log"
        self._start = partial(
            ForkServer,
            request.python,
            confinement=for_run(request.options, checkout),
            pass_env=request.options.command.pass_env,
        )
        self._variables = BACKENDS[target.backend].worker_environment(machine.probe())
        self.server = self._start(self._variables, logs / "server.log")
        stack.enter_context(self.server)
        self.environment = machine.assemble(self.server.facts)
        if target.backend == "triton" and (old := self.environment.old_triton):
            raise UsageError(old)  # before it imports what such a Triton cannot
        insist(request.options, self.environment.sandbox)

    def tests(self, root: Path, needs: tuple[str, ...], captured: str = "") -> TestPlan:
        """Which tests judge the kernel.

        Args:
            root: the commit on disk.
            needs: the kinds of tests without which nothing can be done.
            captured: the file of the tests that were captured for this run, where some were.

        Raises:
            UsageError: they cannot be collected, or a kind that is needed has none.
        """
        request, target = self._request, self._target
        try:
            plan = discover(
                self.server,
                Checkout(root, target.sys_path(root), target.kernel),
                Selection(
                    target.tests,
                    request.correctness_k,
                    request.perf_k,
                    needs,
                    target.benches,
                    scripts=target.scripts,
                    captured=captured,
                    pass_env=request.options.command.pass_env,
                    python=request.python,
                ),
                framework=target.backend,
                log=self._log,
                deadline=deadline_in(COLLECT_TIMEOUT_S),
            )
        except UsageError as problem:
            told = f"{problem}{remedy(request.options, str(problem))}"
            raise type(problem)(told) from problem
        return replace(plan, notes=(*target.notes, *plan.notes))

    def preload_again(self) -> None:
        """Import once what was imported for the tests when they were collected."""
        self.server.preload_again(imports_file(self._log))

    def another_server(self, gpu: Gpu) -> ForkServer:
        """One that has imported the same, and whose workers see this GPU alone.

        Raises:
            UsageError: it cannot be started.
            WorkerDied: it ended while it imported what the tests need.
        """
        log = self._log.with_name(f"server-{gpu.uuid}.log")
        server = self._start({**self._variables, VISIBLE_GPUS: gpu.uuid}, log)
        with ExitStack() as stack:
            stack.enter_context(server)
            with suppress(FileNotFoundError):  # a file of its own: it is written again
                shutil.copyfile(imports_file(self._log), imports_file(log))
            server.preload_again(imports_file(log), tried=True)
            stack.pop_all()
        return server
