"""A fleet in the user's repository: what was asked for, how each run stands, and what came home.

`sandbox/fleet/<fleet>/fleet.json` says what was asked for. Beside it each kernel has a folder with
its journal, its table, its log, the bundle of its commits, and `standing.json`. Files are replaced
whole, so that whoever reads them finds one state or the next.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import cattrs

from agent.environment import Environment
from agent.errors import ExitCode, JournalError, TransitionError, UsageError
from agent.fleet.bundles import BRANCHES, point_of, refs_of, unbundled
from agent.fleet.jobs import (
    Ended,
    KernelJob,
    Placed,
    Progressed,
    RefusedByMachine,
    ResumePoint,
    Told,
)
from agent.journal import read, replay
from agent.redaction import redact_values
from agent.report.document import document
from agent.report.page import markdown
from agent.report.result import exit_code
from agent.repository import Repository
from agent.state import Phase, Run
from agent.store.recall import record
from agent.workspace import SANDBOX, Workspace

SCHEMA = 1
JOURNAL, BUNDLE, STANDING, FLEET = "journal.jsonl", "run.bundle", "standing.json", "fleet.json"
_COMMIT = "fleet.origin"
"""No kernel is called so: names hold no full stop."""

T = TypeVar("T")


class FleetOutcome(StrEnum):
    """How a kernel stands in its fleet."""

    WAITING = "waiting"
    """For a GPU, or for the fleet to be resumed."""
    RUNNING = "running"
    ENDED = "ended"
    """Its run has ended by itself; what that came to, its exit code says."""
    REFUSED = "refused"
    """It could not begin, or no machine can do it."""
    LOST = "lost"
    """Its machine was lost several times, and the run got no further."""

    @property
    def final(self) -> bool:
        """Whether nothing more is done about it."""
        return self in (FleetOutcome.ENDED, FleetOutcome.REFUSED, FleetOutcome.LOST)


@dataclass(frozen=True)
class KernelStanding:
    """How a kernel stands in its fleet; kept on disk."""

    name: str
    kernel: str
    outcome: FleetOutcome = FleetOutcome.WAITING
    reason: str = ""
    """Why it is not going on, or what its run printed last."""
    code: int | None = None
    """The exit code of its run."""
    run_id: str = ""
    branch: str = ""
    """The branch that holds what was kept; empty where nothing was."""
    host: str = ""
    machine: str = ""
    attempts: int = 0
    """How many tasks began it or went on with it."""
    losses: int = 0
    """Tasks lost in a row since its journal last grew."""
    held_before_s: float = 0.0
    """Seconds for which earlier tasks held their GPUs, as far as they told."""
    held_s: float = 0.0
    """Of the task that was placed last."""
    card: str = ""
    """The UUID of the GPU that it ended on."""
    attained: Mapping[str, float] = field(default_factory=dict)
    """Unit -> what that GPU attains, where it was measured."""
    refused_by: tuple[str, ...] = ()
    """Ray's names of the nodes that cannot do it."""

    @property
    def spent_s(self) -> float:
        """Seconds for which it held its GPUs."""
        return self.held_before_s + self.held_s


@dataclass(frozen=True)
class Fleet:
    """What was asked for."""

    fleet_id: str
    sha: str
    """The commit that all runs begin at."""
    begun_on: Environment
    jobs: tuple[KernelJob, ...]
    gpus_per_run: int = 1
    address: str = ""
    gpu_hours: float | None = None
    """When they are spent no run begins any more, and none goes on elsewhere; None for no limit."""
    schema: int = field(default=SCHEMA, kw_only=True)

    @property
    def ref(self) -> str:
        """What keeps the commit."""
        return f"{refs_of(self.fleet_id)}{_COMMIT}"


def spent(standings: Iterable[KernelStanding], gpus_per_run: int, hours: float | None) -> str:
    """Why nothing more may begin: the GPU hours are spent; empty while they are not."""
    if hours is None:
        return ""
    found = sum(each.spent_s for each in standings) * gpus_per_run / 3600
    return f"{found:.2f} of {hours:g} GPU hours are spent" if found >= hours else ""


def fleets_folder(repository: Repository) -> Path:
    """Where the fleets of a repository are kept."""
    return repository.root / SANDBOX / "fleet"


def new_fleet_id() -> str:
    """Of a fleet that begins now."""
    return f"fleet-{time.strftime('%Y%m%d-%H%M%S')}"


def branch_of(fleet_id: str, name: str) -> str:
    """The branch of a kernel's run."""
    return f"tile-agent/{fleet_id}/{name}"


@dataclass(frozen=True)
class Home:
    """A fleet in the user's repository."""

    repository: Repository
    fleet_id: str

    @property
    def folder(self) -> Path:
        """Where what comes home lies."""
        return fleets_folder(self.repository) / self.fleet_id

    # --- beginning, and reading again -------------------------------------------------------------

    def begin(self, fleet: Fleet, standings: Sequence[KernelStanding]) -> None:
        """Write a fleet down, before anything of it runs.

        Raises:
            UsageError: there is one of its name.
        """
        try:
            self.folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(f"fleet {self.fleet_id} began in this second: try again") from None
        workspace = Workspace(self.repository, self.fleet_id)
        workspace.exclude_sandbox()
        workspace.keep_ref(_COMMIT, fleet.sha)
        for standing in standings:
            self.write(standing)
        self.grant(fleet)

    def fleet(self) -> Fleet:
        """What was asked for.

        Raises:
            UsageError: there is no such fleet, or another version of tile-agent wrote it.
        """
        return _structured(self.folder / FLEET, Fleet)

    def standings(self) -> list[KernelStanding]:
        """How all kernels stand, by their names."""
        files = sorted(self.folder.glob(f"*/{STANDING}"))
        return [_structured(path, KernelStanding) for path in files]

    def standing(self, name: str) -> KernelStanding:
        """How a kernel stands."""
        return _structured(self.folder / name / STANDING, KernelStanding)

    def grant(self, fleet: Fleet) -> None:
        """Write down what was asked for; again where it has other hours or another address."""
        _replace_file(self.folder / FLEET, _json(asdict(fleet)))

    def point(self, name: str) -> ResumePoint | None:
        """From what a run can go on; None where nothing of it came home.

        Raises:
            UsageError: what came home is damaged.
        """
        journal, bundle = (self.folder / name / file for file in (JOURNAL, BUNDLE))
        if not journal.exists():
            return None
        try:
            commits = bundle.read_bytes() if bundle.exists() else b""
            return point_of(self.standing(name).run_id, journal, commits)
        except JournalError as problem:
            mend = f"rm -r {self.folder.relative_to(self.repository.root) / name}"
            raise UsageError(f"{problem}; to leave this kernel out: {mend}") from problem

    # --- what is told -----------------------------------------------------------------------------

    def heard(self, name: str, told: Told) -> KernelStanding:
        """Keep what a worker told of a kernel.

        Returns:
            how the kernel stands now.
        """
        now = self.standing(name)
        match told:
            case Placed():
                now = replace(
                    now,
                    outcome=FleetOutcome.RUNNING,
                    reason="",
                    host=told.host,
                    machine=told.machine,
                    attempts=now.attempts + 1,
                    held_before_s=now.spent_s,
                    held_s=0.0,
                )
            case RefusedByMachine():
                now = replace(
                    now,
                    outcome=FleetOutcome.REFUSED,
                    reason=f"{told.host}: {told.reason}",
                    refused_by=(*now.refused_by, told.node_id),
                )
            case Progressed():
                # The bundle first: a journal never speaks of commits that did not come home.
                files = {BUNDLE: told.point.bundle, JOURNAL: told.point.journal, **told.files}
                for file, content in files.items():
                    _replace_file(self.folder / name / file, content)
                now = replace(now, run_id=told.point.run_id, held_s=told.held_s, losses=0)
            case Ended():
                _replace_file(self.folder / name / "log.txt", told.log)
                outcome = self._outcome(name, told.code)
                judged = outcome is FleetOutcome.ENDED and told.code != ExitCode.FAULT
                now = replace(
                    now,
                    outcome=outcome,
                    code=told.code,
                    reason="" if judged else told.said,
                    held_s=told.held_s,
                    card=told.card,
                    attained=told.attained,
                )
        return self.write(now)

    def _outcome(self, name: str, code: int) -> FleetOutcome:
        """What the end of a run's process makes of its kernel.

        One that a signal ended, or that was told to end as a machine goes down, can go on.
        """
        if code == ExitCode.USAGE:
            return FleetOutcome.REFUSED
        run = self.run(name)
        begun = run is not None and run.phase not in (Phase.SETUP, Phase.BASELINE)
        interrupted = code < 0 or (code == ExitCode.STOPPED and begun)
        if interrupted and (run is None or run.phase is not Phase.DONE):
            return FleetOutcome.WAITING
        return FleetOutcome.ENDED

    def ended(self, name: str) -> KernelStanding | None:
        """How a kernel stands whose journal came home to its end; None where it did not."""
        run = self.run(name)
        if run is None or run.phase is not Phase.DONE:
            return None
        now = replace(self.standing(name), outcome=FleetOutcome.ENDED, reason="")
        return self.write(replace(now, code=int(exit_code(run))))

    def run(self, name: str) -> Run | None:
        """The run of a kernel as its journal tells it; None where none can be read."""
        try:
            return replay([line.event for line in read(self.folder / name / JOURNAL)])
        except (JournalError, TransitionError):
            return None

    def write(self, standing: KernelStanding) -> KernelStanding:
        """Keep how a kernel stands."""
        _replace_file(self.folder / standing.name / STANDING, _json(asdict(standing)))
        return standing

    # --- into the repository ----------------------------------------------------------------------

    def take_in(self, job: KernelJob) -> KernelStanding:
        """Add the commits of a run to the repository, and its branch where it kept something.

        What `tile-agent report` would say of it goes into its folder.

        They are kept below refs/tile-agent/<fleet>/<kernel>/. The branch is created, or moved
        forward from the commit that was read: one that the user has made meanwhile, has checked
        out, or has committed to, stays as it is.

        Returns:
            how the kernel stands now.
        """
        now = self.standing(job.name)
        point = self.point(job.name)
        if point is None:
            return now
        refs = unbundled(self.repository, point.bundle)
        self._report(job.name)
        workspace = Workspace(self.repository, f"{self.fleet_id}/{job.name}")
        prefix = refs_of(point.run_id)
        for ref, sha in refs.items():
            if ref.startswith(prefix):
                workspace.keep_ref(ref.removeprefix(prefix), sha)
        best = refs.get(f"{BRANCHES}{job.branch}")
        if best is None:
            return now
        if now.branch:
            problem = workspace.advance_branch(job.branch, best)
            return self.write(replace(now, reason=problem or now.reason))
        try:
            workspace.create_branch(job.branch, best)
        except UsageError as problem:
            kept = f"refs/tile-agent/{self.fleet_id}/{job.name}/best"
            return self.write(replace(now, reason=f"{problem}; what was kept is at {kept}"))
        return self.write(replace(now, branch=job.branch))

    def remember(self, job: KernelJob) -> str:
        """Add what a run judged to the store of whoever began the fleet, where it asks for that.

        Returns:
            Why that was not possible, in one line; empty where it was, or nothing has come home.
        """
        journal = self.folder / job.name / JOURNAL
        return record(journal, self.repository) if journal.exists() else ""

    def _report(self, name: str) -> None:
        """Write what `tile-agent report` says of a run that is at home."""
        events = [line.event for line in read(self.folder / name / JOURNAL)]
        told = redact_values(document(events, self.repository), os.environ)
        _replace_file(self.folder / name / "report.md", markdown(told).encode(errors="replace"))


# --- files ----------------------------------------------------------------------------------------


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _structured(path: Path, kind: type[T]) -> T:
    try:
        return cattrs.structure(json.loads(path.read_bytes()), kind)
    except FileNotFoundError:
        raise UsageError(
            f"there is no fleet {path.parent.name} here: see `tile-agent fleet status`"
        ) from None
    except (ValueError, KeyError, TypeError, cattrs.BaseValidationError) as problem:
        raise UsageError(
            f"{path} cannot be read ({type(problem).__name__}): go on with the version of "
            "tile-agent that began the fleet"
        ) from problem


def _replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
