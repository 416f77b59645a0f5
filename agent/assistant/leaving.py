"""What an assistant leaves behind: an offer, an iteration under way, a candidate it could mend."""

from __future__ import annotations

from agent.assistant.drafts import forget_what_was_judged, name_aside
from agent.assistant.turn import append
from agent.errors import UsageError
from agent.events import Dropped, GivenUp
from agent.journal import Journal
from agent.measuring.decision import Status
from agent.proposers.draft import Draft
from agent.report import table
from agent.runs import runs_folder, table_path
from agent.state import Phase, Run
from agent.workspace import Setup, Workspace

JUDGING = (Phase.SCREEN, Phase.VERIFY, Phase.MEASURE, Phase.SETTLE)
"""The phases of an iteration that has a candidate."""
WITHOUT_BASELINE = (Phase.SETUP, Phase.BASELINE, Phase.CALIBRATE)
"""The phases of a run that has nothing to lose yet."""


def drop(workspace: Workspace, run: Run, journal: Journal, draft: Draft, reason: str) -> Run:
    """Leave behind what is offered, or the iteration that came of it, and free what it held.

    Its commits stay, and so does what stood in the draft: nothing is lost but the judgement.

    Raises:
        UsageError: there is nothing to leave behind, or its commit is on the branch already.
    """
    started = run.started
    assert started is not None
    if run.phase is Phase.PROPOSE and run.offer is not None:
        text = workspace.repository.read(run.incumbent_sha, started.kernel).decode()
        draft.set_aside(text, name_aside(run, run.offer))
    elif run.phase in WITHOUT_BASELINE:
        raise UsageError(
            "the run has no baseline yet, and nothing to drop: `tile-agent finish --run "
            f"{started.run_id}` takes the whole run back"
        )
    elif run.phase not in JUDGING:
        raise UsageError("nothing is offered or tried that could be dropped: `tile-agent status`")
    elif _is_kept(workspace, run, started.branch):
        raise UsageError(f"iteration {run.iteration} is kept: `tile-agent try` records it")
    workspace.close()
    run = append(run, journal, Dropped(" ".join(reason.split())))
    _write_table(workspace, run, draft)
    return run


def give_up(workspace: Workspace, run: Run, journal: Journal, draft: Draft, reason: str) -> Run:
    """End an iteration as its last attempt ended; what is edited since lies beside the draft."""
    assert run.started is not None and run.proposal is not None
    forget_what_was_judged(workspace, run, draft)
    text = workspace.repository.read(run.incumbent_sha, run.started.kernel).decode()
    draft.set_aside(text, name_aside(run, run.proposal))
    run = append(run, journal, GivenUp(" ".join(reason.split())))
    _write_table(workspace, run, draft)
    return run


def take_back(workspace: Workspace, run: Run) -> str:
    """Leave the repository as it was before a run that has no baseline; says what is gone.

    A branch that is checked out or has moved holds work, and stays. So does the line by which git
    ignores the sandbox: nobody knows any more whose it is.
    """
    started = run.started
    assert started is not None
    runs = runs_folder(workspace.repository)
    folder, latest = runs / started.run_id, table_path(workspace.repository)
    own = folder / "perf_results.md"
    if own.is_file() and latest.is_file() and own.read_bytes() == latest.read_bytes():
        latest.unlink()
    folders = (folder, runs, runs.parent)
    workspace.undo_setup(Setup(started.branch, started.origin_sha, folders, excluded=False))
    branch = f"its branch {started.branch}"
    if workspace.has_branch(started.branch):
        return f"had no baseline yet, and is taken back; {branch} holds work, and stays"
    return f"had no baseline yet, and is taken back: its folder and {branch} are gone"


def _write_table(workspace: Workspace, run: Run, draft: Draft) -> None:
    for path in (table_path(workspace.repository), draft.path.parents[1] / "perf_results.md"):
        table.write(path, run.rows)


def _is_kept(workspace: Workspace, run: Run, branch: str) -> bool:
    """Whether git has followed a verdict that the journal does not know of yet."""
    if run.verdict is None or run.verdict.status is not Status.KEEP or run.candidate is None:
        return False
    return workspace.branch_holds(branch, run.candidate.sha)
