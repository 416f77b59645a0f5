"""Before a run and around it: what is needed is found, checked and opened, and closed again.

`opened` changes nothing of the user's: it looks, starts the fork server and checks out the commit
in a worktree of its own. `begin` is the one step that writes into the repository.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agent.analysis.common.kernels import Classification
from agent.analysis.common.subject import Hardware
from agent.backends import BACKENDS
from agent.candidates import Candidates
from agent.captured_trial import commit_captured
from agent.collecting import Collecting, hardware_of
from agent.compiling import compiler_for, kept_compiles
from agent.environment import Environment
from agent.errors import UsageError
from agent.events import Started
from agent.frozen_tests import TestPlan
from agent.harness.compiling.artifacts import Wanted
from agent.harness.compiling.candidate_compiler import ForkedCompiler
from agent.harness.diagnostician import Diagnostician
from agent.harness.discovery import KINDS
from agent.harness.measuring.further_gpus import further_gpus
from agent.harness.measuring.gpu import taken
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.variables import insist_set
from agent.harness.processes.worker_session import Checkout
from agent.helper_files import only_helpers
from agent.journal import Journal, read, replay
from agent.loop import Effects
from agent.memory import PastRuns
from agent.options import Options, Request
from agent.preflight import preflight, target_on, tree_of
from agent.proposers import build
from agent.proposers.base import Proposer
from agent.repository import Repository
from agent.runs import (
    branch_of,
    check_unfinished,
    chosen_run,
    keep_foreign_table,
    new_run_id,
    note_activity,
    runs_folder,
)
from agent.state import Phase, Run
from agent.syntax import Source
from agent.target import Target, find_target
from agent.workspace import Setup, Workspace, state_dir


@dataclass(frozen=True)
class Session:
    """A kernel, its tests and this machine, ready to be judged."""

    workspace: Workspace
    target: Target
    classification: Classification
    environment: Environment
    origin_sha: str
    plan: TestPlan
    server: ForkServer
    judge: PytestJudge
    compiler: ForkedCompiler | None
    python: str
    logs: Path
    notes: tuple[str, ...]
    branch: str
    options: Options

    @property
    def folder(self) -> Path:
        """Where this run writes inside the user's repository."""
        return runs_folder(self.workspace.repository) / self.workspace.run_id

    @property
    def hardware(self) -> Hardware:
        """What a precondition may ask of the machine."""
        return hardware_of(self.environment)

    @property
    def latency_meaning(self) -> str:
        """What 'latency' means here."""
        return BACKENDS[self.target.backend].latency_meaning(self.environment)

    def checkout(self, sha: str) -> Checkout:
        """A commit on disk."""
        root = self.workspace.checkout(sha)
        return Checkout(root, self.target.sys_path(root), self.target.kernel)

    def with_log(self, reason: str) -> str:
        """Why tests failed just now, and the log that holds all that they said."""
        logs = sorted(self.logs.glob("[0-9]*.log"))
        return reason if not logs or " (see /" in reason else f"{reason} (see {logs[-1]})"

    def effects(self, **proposers: Proposer) -> Effects:
        """What the phases do; `proposers` are taken beside those of the options."""
        memory = PastRuns(self.workspace.repository)
        made = build.build(self.options, self.target.backend, memory, self.folder)
        return Effects(
            workspace=self.workspace,
            candidates=Candidates(
                self.workspace,
                self.target.sys_path,
                self.compiler,
                memory,
                kept_compiles(self.compiler, self.environment, self.options, self.target),
            ),
            judge=self.judge,
            proposers=made | proposers,
            hardware=self.hardware,
            diagnostician=self._diagnostician(),
            doing=partial(note_activity, self.folder),
            scouts=self.options.scout and self.environment.gpu is not None,
        )

    def _diagnostician(self) -> Diagnostician:
        gpu = self.environment.gpu
        sms = (gpu.sm,) if gpu else ()
        passed = self.options.command.pass_env
        wanted = Wanted(
            self.target.backend, sms, python=self.python, has_gpu=False, pass_env=passed
        )
        return Diagnostician(wanted, gpu, counters=self.options.counters)


# --- opening ------------------------------------------------------------------------------------


@contextmanager
def opened(
    request: Request, say: Callable[[str], None], needs: tuple[str, ...] = KINDS
) -> Iterator[Session]:
    """Find and check everything that a run needs, and hold it while the block lasts.

    Args:
        request: what the user asked for.
        say: told in a line what is waited for.
        needs: the kinds of tests without which nothing can be done.

    Raises:
        UsageError: something is missing or wrong; nothing has been changed.
    """
    build.check(request.options)
    insist_set(request.options.command.pass_env)
    found = preflight(request.kernel)
    run_id = new_run_id(found.repository, Path(found.kernel))
    workspace = Workspace(found.repository, run_id)
    target, lacks, missing = target_on(found, request)
    if lacks:
        raise UsageError(f"{lacks}; and {missing}" if missing else lacks)
    if helpers := only_helpers(found.repository, found.head_sha, target.kernel, target.kernels):
        raise UsageError(helpers)
    build.check_kernel(request.options, target.backend)
    build.reach(request.options, say)
    with ExitStack() as stack:
        stack.enter_context(workspace.lock(found.kernel))
        stack.callback(workspace.close)
        origin_sha, captured = found.head_sha, None
        if request.branch is not None or request.capture:  # told before anything takes its time
            branch = branch_of(workspace, request, target.kernel)
            check_unfinished(workspace, target.kernel, branch)
            workspace.check_free(branch)
        if request.capture:
            captured = commit_captured(
                workspace,
                origin_sha,
                target,
                request.capture,
                request.capture_stop_after_s,
                say,
                request.options.command.pass_env,
                request.python,
            )
            origin_sha, target = captured.sha, captured.target
        session = _open(
            stack,
            request,
            workspace,
            target,
            origin_sha,
            say,
            needs=needs,
            captured=captured.test if captured else "",
        )
        told = (captured.told,) if captured else ()
        at_the_end = (captured.told_at_the_end,) if captured else ()
        notes = (*(captured.notes if captured else ()), *session.plan.notes)
        plan = replace(session.plan, notes=(*at_the_end, *notes))  # for the summary
        yield replace(session, plan=plan, notes=(*found.notes, *told, *notes))


@contextmanager
def held(repository: Repository, run_id: str) -> Iterator[tuple[Workspace, Run, Journal]]:
    """Hold a run that has begun: nobody else can drive it while the block lasts.

    Raises:
        UsageError: there is no such run, it had not begun, or somebody drives it.
    """
    path = runs_folder(repository) / chosen_run(repository, run_id) / "journal.jsonl"
    started = replay([entry.event for entry in read(path)]).started
    if started is None:
        raise UsageError(f"run {run_id} had not begun: start it again with `tile-agent run`")
    workspace = Workspace(repository, run_id)
    with ExitStack() as stack:
        stack.enter_context(workspace.lock(started.kernel))
        workspace.unlock_branch(started.branch)
        journal = Journal(path)  # read again: whoever held it until now has written
        stack.callback(journal.close)
        yield workspace, replay(journal.events), journal


@contextmanager
def reopened(
    repository: Repository, run_id: str, say: Callable[[str], None]
) -> Iterator[tuple[Session, Run, Journal]]:
    """Open an interrupted run again, with the tests and the options that it began with.

    Args:
        repository: the user's.
        run_id: names the run.
        say: told in a line what is waited for.

    Raises:
        UsageError: there is no such run, it is done or alive, or this is another machine.
    """
    with held(repository, run_id) as (workspace, run, journal), ExitStack() as stack:
        if run.phase is Phase.DONE:
            raise UsageError(f"run {run_id} is done: see `tile-agent status {run_id}`")
        started = run.started
        assert started is not None
        build.check_again(run, say)
        tree = tree_of(repository, started.origin_sha)
        files = [str(repository.root / file) for file in started.tests.files]
        target = find_target(tree, started.kernel, files, started.tests.benches)
        request = Request(
            kernel=repository.root / started.kernel,
            python=started.python,
            tests=started.tests.files,
            bench=started.tests.benches,
            branch=started.branch,
            options=started.options,
        )
        session = _open(
            stack, request, workspace, target, started.origin_sha, say, plan=started.tests
        )
        _check_machine(started, session)
        yield session, run, journal


@contextmanager
def opened_at(
    repository: Repository, run: Run, sha: str, say: Callable[[str], None]
) -> Iterator[Session]:
    """Open a commit to be judged as a run that is done was: by its tests, on this machine.

    The tests are those that the run began with, where the commit has their files as they were
    then; else its own, collected anew. Nothing is written but worktrees, which go again.

    Args:
        repository: the user's.
        run: which one.
        sha: a commit with the run's kernel in it.
        say: told in a line what is waited for.

    Raises:
        UsageError: somebody drives a run on the kernel, or the tests cannot run here.
    """
    started = run.started
    assert started is not None
    tests = started.tests
    workspace = Workspace(repository, f"finalize-{started.run_id}")
    tree = tree_of(repository, sha)
    files = [str(repository.root / file) for file in tests.files]
    target = find_target(tree, started.kernel, files, tests.benches)
    paths = {file.partition("::")[0] for file in tests.files}
    same = all(
        repository.entry(sha, path) == repository.entry(started.origin_sha, path) for path in paths
    )
    request = Request(
        kernel=repository.root / started.kernel,
        python=started.python,
        tests=tests.files,
        bench=tests.benches,
        branch=started.branch,
        options=replace(started.options, gpus=1),  # no sweep is looked at
    )
    with ExitStack() as stack:
        stack.enter_context(workspace.lock(started.kernel))
        stack.callback(workspace.close)
        plan = tests if same else None
        yield _open(stack, request, workspace, target, sha, say, plan=plan)


def _open(
    stack: ExitStack,
    request: Request,
    workspace: Workspace,
    target: Target,
    origin_sha: str,
    say: Callable[[str], None],
    *,
    plan: TestPlan | None = None,
    needs: tuple[str, ...] = KINDS,
    captured: str = "",
) -> Session:
    backend, options = BACKENDS[target.backend], request.options
    logs = state_dir() / "logs" / workspace.run_id
    collecting = Collecting(stack, request, target, workspace.repository.root, logs)
    server, environment = collecting.server, collecting.environment
    if refusal := backend.refusal(environment):
        raise UsageError(refusal)
    root = workspace.checkout(origin_sha)
    if plan is None:
        plan = collecting.tests(root, needs, captured)
    else:
        collecting.preload_again()
    judge = PytestJudge(
        server,
        plan,
        framework=target.backend,
        rules=options.rules,
        logs=logs,
        watch=taken(stack, environment.gpu, say) if environment.gpu else None,
        other_layouts=not options.tested_shapes_only,
        correctness_workers=options.correctness_workers,
        further=further_gpus(stack, environment.gpus, options.gpus, collecting.another_server, say),
    )
    source = workspace.repository.read(origin_sha, target.kernel).decode()
    return Session(
        workspace=workspace,
        target=target,
        classification=backend.classify(Source(source, target.kernel)),
        environment=environment,
        origin_sha=origin_sha,
        plan=plan,
        server=server,
        judge=stack.enter_context(closing(judge)),
        compiler=compiler_for(server, target.backend, request.python, environment, logs),
        python=request.python,
        logs=logs,
        notes=plan.notes,
        branch=branch_of(workspace, request, target.kernel),
        options=options,
    )


# --- beginning ----------------------------------------------------------------------------------


def begin(session: Session) -> tuple[Run, Journal, Setup]:
    """Write into the user's repository: the branch, the run's folder, its journal.

    Raises:
        UsageError: the branch exists; nothing has been changed.
    """
    check_unfinished(session.workspace, session.target.kernel, session.branch)
    setup = session.workspace.set_up(session.branch, session.origin_sha, session.folder)
    try:
        keep_foreign_table(session.workspace.repository, session.workspace.run_id)
        journal = Journal(session.folder / "journal.jsonl")
        started = Started(
            run_id=session.workspace.run_id,
            kernel=session.target.kernel,
            backend=session.target.backend,
            kernel_class=session.classification.kernel_class.value,
            branch=session.branch,
            origin_sha=session.origin_sha,
            began_at_s=int(time.time()),
            python=session.python,
            tests=session.plan,
            environment=session.environment.to_json(),
            latency_meaning=session.latency_meaning,
            options=session.options,
        )
        journal.append(started)
    except BaseException:
        session.workspace.undo_setup(setup)
        raise
    return replay([started]), journal, setup


def _check_machine(started: Started, session: Session) -> None:
    """Figures of another GPU, or of the interpreter, do not belong into the same table."""
    if started.latency_meaning != session.latency_meaning:
        raise UsageError(
            f"run {started.run_id} measured {started.latency_meaning.lower()}; here it would be "
            f"{session.latency_meaning.lower()}: resume it on its own machine, or begin a new run"
        )
