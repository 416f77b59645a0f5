"""What a run would do: all that it looks at before it measures, and nothing that it does then."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent.analysis.common.kernels import KernelFunction
from agent.analysis.common.subject import Hardware, Subject
from agent.backends import BACKENDS
from agent.collecting import Collecting, hardware_of
from agent.environment import describe
from agent.errors import NoTests, UsageError
from agent.events import Started
from agent.frozen_tests import TestPlan
from agent.harness.discovery import KINDS
from agent.helper_files import called_elsewhere, listed, only_helpers
from agent.launched_elsewhere import launched_elsewhere
from agent.launches import ObservedLaunch, by_cost
from agent.options import PLAYBOOK, Request
from agent.planning.cost import cost_lines
from agent.planning.earlier import EarlierRun, earlier_run
from agent.planning.entries import PlannedEntries, planned, planned_on_gpu
from agent.playbook import ordered
from agent.preflight import Preflight, preflight, target_on
from agent.proposers import build
from agent.proposers.playbook import PlaybookProposer
from agent.runs import branch_of, new_run_id, unfinished
from agent.state import Run
from agent.store.experience import Experience
from agent.store.judgements import Seen
from agent.store.recall import Recall
from agent.syntax import Source
from agent.target import Target, find_target
from agent.throwaway import throwaway
from agent.workspace import SANDBOX, Workspace, state_dir


@dataclass(frozen=True)
class Plan:
    """What is known of a run before it begins."""

    kernel: str
    backend: str
    kernel_class: str
    flop_per_byte: float
    kernels: tuple[KernelFunction, ...]
    apart: tuple[str, ...]
    """Of the kernels that the file does not launch, who calls or launches them, as far as it is
    seen; a line each kind."""
    launches: tuple[ObservedLaunch, ...]
    launches_from: str
    """Who saw the launches."""
    tests: TestPlan | None
    """None where they could not be collected here."""
    machine: str
    latency_meaning: str
    refusal: str
    """Why no run can begin on this machine; empty where one can."""
    entries: PlannedEntries
    order: str
    """What the order of the entries rests on."""
    remembered: tuple[str, ...]
    """What the user's store knows of kernels like this one, where a run would go by it."""
    cost: tuple[str, ...]
    earlier: EarlierRun | None
    limits: str
    branch: str
    origin_sha: str
    changes: tuple[str, ...]
    """What a run would add to the repository."""
    notes: tuple[str, ...]

    @property
    def is_of_use(self) -> bool:
        """Whether a run could begin here, and would try something."""
        return not self.refusal and bool(self.entries.tried)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        found: dict[str, Any] = asdict(self)
        return found


def make_plan(request: Request) -> Plan:
    """Look at all that a run would look at before its first measurement.

    The tests are collected, which imports them; nothing of them is run. A worktree of the commit
    is made outside the repository, and removed.

    Without tests, or where those that were found cannot be collected here, it says what applies to
    the source.

    Raises:
        UsageError: a run would be refused for what the user can mend; the message is the run's.
    """
    build.check(request.options)
    found = preflight(request.kernel)
    target, lacks, missing = _target(found, request)
    build.check_language(request.options.only, target.backend)
    build.check_judgement(request.options, target.backend)
    with ExitStack() as stack:
        workspace = stack.enter_context(throwaway(found.repository))
        branch = branch_of(workspace, request, target.kernel)
        if going_on := unfinished(workspace, target.kernel, branch):
            branch = workspace.free_branch(branch)  # nothing is begun: what it would do is told
        workspace.check_free(branch)
        logs = state_dir() / "logs" / f"plan-{new_run_id(found.repository, Path(found.kernel))}"
        collecting = Collecting(stack, request, target, found.repository.root, logs)
        lacks = BACKENDS[target.backend].refusal(collecting.environment) or lacks
        helpers = only_helpers(found.repository, found.head_sha, target.kernel, target.kernels)
        refusal = "; and ".join(filter(None, [lacks, helpers or missing]))
        try:
            tests, notes = _tests(collecting, request, target, workspace, found.head_sha, refusal)
        except UsageError as problem:
            if _chosen(request) and not isinstance(problem, NoTests):
                raise
            tests, notes, refusal = None, (), str(problem)
        notes = (*([going_on] if going_on else []), *found.notes, *notes)
        hardware = Hardware() if lacks else hardware_of(collecting.environment)
        return _planned(request, found, target, branch, collecting, hardware, tests, refusal, notes)


def _chosen(request: Request) -> bool:
    """Whether the user chose the tests: what is wrong with the choice is for them to mend."""
    chosen = (request.tests, request.correctness_k, request.perf_k, request.bench, request.capture)
    return any(chosen)


def _target(found: Preflight, request: Request) -> tuple[Target, str, str]:
    """What is worked on, why no such kernel can run here, and which tests are missing."""
    try:
        return target_on(found, request)
    except NoTests as problem:
        return find_target(found.tree, found.kernel, needs_tests=False), "", str(problem)


def _tests(
    collecting: Collecting,
    request: Request,
    target: Target,
    workspace: Workspace,
    sha: str,
    refusal: str,
) -> tuple[TestPlan | None, tuple[str, ...]]:
    """The tests as a run would find them, and what is to be said of that."""
    captured: tuple[str, ...] = ()
    if request.capture:
        captured = ("perf tests would be made of what the command of --capture launches",)
    if not target.tests and (request.capture or refusal):
        return None, captured
    try:
        tests = collecting.tests(workspace.checkout(sha), () if request.capture else KINDS)
    except UsageError as problem:
        if not refusal:
            raise
        return None, (*captured, str(problem))
    return tests, (*captured, *tests.notes)


def _planned(
    request: Request,
    found: Preflight,
    target: Target,
    branch: str,
    collecting: Collecting,
    hardware: Hardware,
    tests: TestPlan | None,
    refusal: str,
    notes: tuple[str, ...],
) -> Plan:
    options, backend = request.options, BACKENDS[target.backend]
    text = found.repository.read(found.head_sha, target.kernel).decode()
    earlier = earlier_run(found.repository, target.kernel, found.head_sha)
    known = earlier if earlier is not None and earlier.same_text else None
    launches = known.launches if known else ()
    timed = by_cost(launches, known.longest_ms) if known else ()
    source = Source(text, target.kernel, timed)
    classification = backend.classify(source)
    environment, kernel_class = collecting.environment, classification.kernel_class
    meaning = backend.latency_meaning(environment)
    started = Started(
        run_id="",
        kernel=target.kernel,
        backend=target.backend,
        kernel_class=kernel_class.value,
        branch=branch,
        origin_sha=found.head_sha,
        began_at_s=int(time.time()),
        python=request.python,
        tests=tests or TestPlan((), (), ()),
        environment=environment.to_json(),
        latency_meaning=meaning,
        options=options,
    )
    run = replace(Run(), started=started, diagnosis=known.diagnosis if known else None)
    subject = Subject(source, kernel_class, hardware, launches)
    playbook = ordered(target.backend, kernel_class) if PLAYBOOK in options.proposers else ()
    recall = Recall(found.repository, Seen(launches, known.longest_ms if known else {}))
    experience = recall.of(run)
    left = PlaybookProposer(playbook, recall).left(run)
    elsewhere = launched_elsewhere(found.repository, found.head_sha, target.kernel)
    tried, over = planned(left, subject, elsewhere)
    on_gpu = planned_on_gpu(left, subject, tried, elsewhere)
    opt_in = tuple(e.name for e in playbook if e.opt_in and not options.only)
    return Plan(
        kernel=target.kernel,
        backend=target.backend,
        kernel_class=kernel_class.value,
        flop_per_byte=classification.flop_per_byte,
        kernels=target.kernels,
        apart=tuple(_apart(found, target, elsewhere)),
        launches=launches,
        launches_from=f"as run {known.run_id} saw them"
        if known
        else "no run has seen yet what the perf tests give them",
        tests=tests,
        machine=describe(environment.to_json()),
        latency_meaning=meaning,
        refusal=refusal,
        entries=PlannedEntries(tried, over, opt_in, on_gpu),
        order=_order(
            kernel_class.value,
            options.proposers,
            known,
            experience,
            looks=options.scout and environment.gpu is not None,
        ),
        remembered=experience.lines,
        cost=tuple(cost_lines(tests, options, earlier)),
        earlier=earlier,
        limits=f"{options.max_iterations} iterations of at most {options.iteration_timeout_s:.0f} s"
        + (f", {options.time_budget_s:.0f} s in all" if options.time_budget_s else "")
        + f"; it ends after {options.patience} in a row without improvement",
        branch=branch,
        origin_sha=found.head_sha,
        changes=tuple(_changes(found, branch)),
        notes=(*notes, *([recall.problem] if recall.problem else [])),
    )


def _apart(found: Preflight, target: Target, elsewhere: Mapping[str, str]) -> Iterator[str]:
    """Of the kernels that the file does not launch, who calls or launches them."""
    left = [kernel for kernel in target.kernels if not kernel.launched_from]
    away = [kernel for kernel in left if not kernel.called_by and kernel.name not in elsewhere]
    called = called_elsewhere(found.repository, found.head_sha, target.kernel, away)
    told: dict[str, list[str]] = {}
    for kernel in left:
        if kernel.name in elsewhere:
            who = f"launched by {elsewhere[kernel.name]}"
        elif kernel.called_by:
            who = f"called by {listed(kernel.called_by)}"
        elif kernel.name in called:
            callers = called[kernel.name]
            who = f"called by {listed([f'{c.kernel} of {c.file}' for c in callers])}"
            if files := [file for c in callers for file in c.launched_by]:
                who += f", launched by {listed(files)}"
        else:
            who = "neither launched nor called by what is seen"
        told.setdefault(who, []).append(f"{kernel.name} (line {kernel.line})")
    yield from (f"{who}: {', '.join(names)}" for who, names in told.items())


def _order(
    kernel_class: str,
    proposers: Sequence[str],
    known: EarlierRun | None,
    experience: Experience,
    *,
    looks: bool,
) -> str:
    """What the order rests on, and who else writes candidates."""
    told = f"of the playbook for {kernel_class} kernels"
    if looks:
        told += "; short looks at all that applies put what may gain most first"
    elif known and known.diagnosis:
        told += f", with the diagnosis of run {known.run_id} ({known.diagnosis.cause.value})"
    else:
        told += "; the diagnosis after calibration may move some ahead"
    if experience.orders:
        first = "where looks do not tell" if looks else "before all that"
        told += f"; {first} by what is remembered of kernels like this ({experience.about})"
    others = [name for name in proposers if name != PLAYBOOK]
    return f"{told}; {', then '.join(others)} writes its own" if others else told


def _changes(found: Preflight, branch: str) -> list[str]:
    """What a run adds; all of it is undone where its baseline fails."""
    repository = found.repository
    lines = [
        f"branch {branch} at {found.head_sha[:12]}, moved forward by one commit a kept step; "
        f"only {found.kernel} differs in it",
        f"{SANDBOX}/perf_results.md and {SANDBOX}/runs/<run>/; refs/tile-agent/<run>/",
    ]
    if not repository.ignores(f"{SANDBOX}/run"):
        lines.append(f"a line /{SANDBOX}/ in .git/info/exclude")
    return [*lines, "your checkout, index and other branches stay as they are"]
