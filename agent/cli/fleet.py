"""`fleet`: many kernels on many GPUs, each run a task of Ray's."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from agent.cli import output
from agent.cli.run_parameters import asking, parameter, words_of
from agent.cli.shared_options import Json, Yes
from agent.cli.status import interrupt
from agent.errors import ExitCode, Interrupted, UsageError
from agent.settings import settings, signed

if TYPE_CHECKING:
    from agent.fleet.home import Fleet, Home
    from agent.fleet.targets import KernelRequest, ListedKernel
    from agent.options import Request
    from agent.repository import Repository

app = typer.Typer(
    name="fleet",
    help="Make many kernels faster, on many GPUs and machines, by Ray.",
    no_args_is_help=True,
)
NOT_SHARED = ("kernel", "branch", "model_replay")
"""What belongs to one run alone, and a folder that workers do not have."""
NOT_INSTALLED = "a fleet runs on Ray, which is not installed: pip install 'tile-agent[fleet]'"

Kernels = Annotated[
    list[str] | None,
    typer.Option(
        help="A kernel's file, or a pattern such as 'src/**/ops/*.py'; may be given several times."
    ),
]
Targets = Annotated[
    Path | None,
    typer.Option(
        help="A file of kernels with options of their own: TOML with tables [[target]], or a "
        "kernel a line with options of `run` behind it."
    ),
]
Address = Annotated[
    str,
    typer.Option(
        help="Of the cluster, host:port, or auto for the one that this machine belongs to. Ray is "
        "started here, and ended, when left out.",
        envvar="RAY_ADDRESS",
    ),
]
GpusPerRun = Annotated[
    int, typer.Option(help="GPUs that a run gets; with 0 it is interpreted.", min=0)
]
GpuHours = Annotated[
    float | None,
    typer.Option(
        help="When so many are spent, no run begins any more, and those under way end as ever.",
        min=0.0,
    ),
]
FleetId = Annotated[str | None, typer.Argument(metavar="[FLEET]", help="The latest when left out.")]


def register(parent: typer.Typer) -> None:
    """Add the commands, as a group."""
    parent.add_typer(app, name="fleet")


def run(
    *,
    kernels: list[str] | None,
    targets: Path | None,
    address: str,
    gpus_per_run: int,
    gpu_hours: float | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the loop on many kernels; what comes of it comes home into this repository.

    Every run is the ordinary one, in a clone of the commit that is checked out here, on whatever
    machine Ray chooses. Options of `run` hold for all kernels.
    """
    from agent.environment import Environment
    from agent.fleet.bundles import check_whole
    from agent.fleet.home import Fleet, Home, new_fleet_id
    from agent.fleet.targets import by_file, by_patterns, planned
    from agent.harness.processes.interpreter import environment_of
    from agent.repository import Repository

    output.use_json(as_json)
    wanted = [*by_patterns(kernels or ()), *(by_file(targets) if targets else ())]
    if not wanted:
        raise UsageError("which kernels? --kernels 'src/**/ops/*.py', or --targets FILE")
    asked = _asked(wanted, words_of(_SHARED, given))
    output.use_json(as_json)  # parsing has set it
    _check_installed()
    repository = Repository.open(Path.cwd())
    check_whole(repository)
    home = Home(repository, new_fleet_id())
    python = given["python"]
    here = "" if python == sys.executable else python
    jobs, standings = planned(repository, home.fleet_id, asked, gpus_per_run, here)
    if not jobs:
        why = standings[0].reason if standings else "no file that was found holds a kernel"
        raise UsageError(f"no run can begin: {why}")
    begun_on: Environment = environment_of(python)
    sha = repository.head()
    assert sha is not None  # `planned` has seen the commit
    fleet = Fleet(home.fleet_id, sha, begun_on, tuple(jobs), gpus_per_run, address, gpu_hours)
    for standing in standings:
        output.progress(f"kernel     {standing.kernel}{_behind(standing.reason)}")
    output.progress(f"fleet      {home.fleet_id}: {len(jobs)} runs, from {sha[:12]}")
    if not yes and output.interactive() and not typer.confirm("Begin?", default=True, err=True):
        raise Interrupted("not begun; nothing was changed")

    def begin() -> None:
        home.begin(fleet, standings)

    _drive(home, fleet, begin)


_SHARED = [setting for setting in settings(led=False) if setting.name not in NOT_SHARED]


def _with_parameters() -> Any:
    own = {
        "kernels": (Kernels, None),
        "targets": (Targets, None),
        "address": (Address, ""),
        "gpus_per_run": (GpusPerRun, 1),
        "gpu_hours": (GpuHours, None),
    }
    ending = {"yes": (Yes, False), "as_json": (Json, False)}

    def made(parameters: dict[str, Any]) -> list[Parameter]:
        return [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in parameters.items()
        ]

    def command(**given: Any) -> None:
        run(**given)

    command.__name__, command.__doc__ = "run", run.__doc__
    return signed(command, [*made(own), *map(parameter, _SHARED), *made(ending)])


app.command("run")(_with_parameters())


@app.command()
def resume(
    fleet_id: FleetId = None,
    address: Address = "",
    gpu_hours: GpuHours = None,
    as_json: Json = False,
) -> None:
    """Go on with a fleet that was interrupted: each run from what came home of it.

    GPU hours are those of the fleet in all, with what was spent before.
    """
    output.use_json(as_json)
    _check_installed()
    from dataclasses import replace

    from agent.fleet.home import spent

    home = _home(fleet_id)
    fleet = home.fleet()
    if owner := _owner(home):
        raise UsageError(f"fleet {home.fleet_id} is under way (pid {owner.pid}): wait for it")
    standings = home.standings()
    if all(standing.outcome.final for standing in standings):
        raise UsageError(
            f"fleet {home.fleet_id} is done: see `tile-agent fleet status {home.fleet_id}`"
        )
    hours = fleet.gpu_hours if gpu_hours is None else gpu_hours
    if problem := spent(standings, fleet.gpus_per_run, hours):
        raise UsageError(f"{problem}: give the fleet more in all with --gpu-hours")
    going_on = replace(fleet, address=address or fleet.address, gpu_hours=hours)
    _drive(home, going_on, lambda: home.grant(going_on))


@app.command()
def status(fleet_id: FleetId = None, as_json: Json = False) -> None:
    """Say how the kernels of a fleet stand, and what to do next."""
    output.use_json(as_json)
    from agent.fleet.summary import headline, table, to_result_of

    home = _home(fleet_id)
    owner = _owner(home)
    result = to_result_of(home, alive=owner is not None)
    done = all(standing.outcome.final for standing in home.standings())
    does = "stop" if owner else "resume"
    upcoming = "" if done else f"tile-agent fleet {does} {home.fleet_id}"
    result |= {"alive": owner is not None, "next": upcoming}
    lines = [headline(result), "", table(result), *([f"next: {upcoming}"] if upcoming else [])]
    output.result(result, "\n".join(lines))


@app.command()
def stop(fleet_id: FleetId = None, as_json: Json = False) -> None:
    """End a fleet that is under way as Ctrl-C would: what came home is kept, to be resumed."""
    output.use_json(as_json)
    home = _home(fleet_id)
    if (owner := _owner(home)) is None:
        raise UsageError(f"fleet {home.fleet_id} is not under way: see `tile-agent fleet status`")
    if not interrupt(owner.pid, lambda: _owner(home) is None):
        raise UsageError(f"fleet {home.fleet_id} (pid {owner.pid}) has not ended yet: wait for it")
    how = f"tile-agent fleet resume {home.fleet_id}"
    output.result({"stopped": home.fleet_id}, f"stopped {home.fleet_id}; go on with: {how}")


# --- helpers --------------------------------------------------------------------------------------


def _check_installed() -> None:
    if find_spec("ray") is None:
        raise UsageError(NOT_INSTALLED)


def _asked(wanted: list[ListedKernel], shared: list[str]) -> list[KernelRequest]:
    """The kernels as `tile-agent run` would read their arguments.

    Raises:
        UsageError: it would not take them.
    """
    from agent.fleet.targets import KernelRequest
    from agent.proposers.build import check_recorded

    read: list[Request] = []
    holder = typer.Typer()
    holder.command()(asking(lambda request, _yes: read.append(request), begins=False))
    command = get_command(holder)
    found = []
    for each in wanted:
        words = (*shared, *each.words, f"--kernel={each.kernel}")
        command.main(args=list(words), prog_name="run", standalone_mode=False)
        request = read.pop()
        check_recorded(request.options)
        found.append(KernelRequest(request, words, each.by_pattern, each.share))
    return found


def _drive(home: Home, fleet: Fleet, begin: Any) -> None:
    """Drive a fleet to its end, show it, and leave with its exit code."""
    from agent.fleet.cluster import Driver, connected
    from agent.fleet.summary import headline, table, to_result_of
    from agent.workspace import Workspace

    # Ray writes to stdout that a node was lost, where JSON is to stand alone.
    with redirect_stdout(sys.stderr), connected(fleet.address, fleet.gpus_per_run):
        with Workspace(home.repository, home.fleet_id).lock(_held(home)):
            begin()
            output.remember(fleet=home.fleet_id)
            try:
                Driver(home, output.progress).drive()
            except Interrupted:
                output.progress(f"go on with: tile-agent fleet resume {home.fleet_id}")
                raise
    result = to_result_of(home)
    if result["exit_code"] == ExitCode.STOPPED:
        more = "" if fleet.gpu_hours is None else f" --gpu-hours {2 * (fleet.gpu_hours or 1):g}"
        output.progress(f"what waits goes on with: tile-agent fleet resume {home.fleet_id}{more}")
    text = f"{headline(result)}\n\n{table(result)}"
    (home.folder / "summary.md").write_text(text, encoding="utf-8")
    output.result(result, text)
    raise typer.Exit(result["exit_code"])


def _home(fleet_id: str | None) -> Home:
    """A fleet of this repository; the latest where none is named.

    Raises:
        UsageError: there is none of that name, or none at all.
    """
    from agent.fleet.home import FLEET, Home, fleets_folder
    from agent.repository import Repository

    repository: Repository = Repository.open(Path.cwd())
    known = sorted(path.parent.name for path in fleets_folder(repository).glob(f"*/{FLEET}"))
    if not known:
        raise UsageError("no fleets here yet: tile-agent fleet run --kernels 'src/**/ops/*.py'")
    if fleet_id is not None and fleet_id not in known:
        raise UsageError(f"there is no fleet {fleet_id} here; there are: {', '.join(known)}")
    return Home(repository, fleet_id or known[-1])


def _owner(home: Home) -> Any:
    """The process that drives a fleet; None when none does."""
    from agent.workspace import lock_owner

    return lock_owner(home.repository, _held(home))


def _held(home: Home) -> str:
    """What a fleet that is under way locks, where a run locks its kernel."""
    return f"fleet {home.fleet_id}"


def _behind(reason: str) -> str:
    return f": left out, {reason}" if reason else ""
