"""The draft of a run, the text that it begins with, and what becomes of it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.events import Offered, Proposed
from agent.launched_elsewhere import launched_elsewhere
from agent.proposers.draft import Draft
from agent.repository import Repository
from agent.runs import runs_folder
from agent.state import Phase, Run
from agent.syntax import Source
from agent.workspace import Workspace


def draft_of(repository: Repository, run: Run) -> Draft:
    """The file that is edited in a run."""
    started = run.started
    assert started is not None
    return Draft(runs_folder(repository) / started.run_id / "draft" / Path(started.kernel).name)


def subject_of(workspace: Workspace, run: Run) -> Subject:
    """The incumbent as the playbook reads it, without a process that could run it."""
    started = run.started
    assert started is not None
    text = workspace.repository.read(run.incumbent_sha, started.kernel).decode()
    source = Source(text, started.kernel, run.timed_kernels)
    kernel_class = KernelClass(run.kernel_class)
    gpus = started.environment["gpus"]
    hardware = Hardware(sm=gpus[0]["sm"] if gpus else 0, interpreted=not gpus)
    elsewhere = launched_elsewhere(workspace.repository, started.origin_sha, started.kernel)
    return Subject(source, kernel_class, hardware, run.launches, frozenset(elsewhere))


def judged_texts(workspace: Workspace, run: Run) -> dict[str, str]:
    """What an iteration has judged so far, or the one before -> which attempt that was."""
    assert run.started is not None
    proposals = [attempt.proposal for attempt in run.earlier]
    if run.proposal is not None:
        proposals.append(run.proposal)
    return {
        workspace.repository.read(candidate.sha, run.started.kernel).decode(): (
            f"attempt {number} as it was judged"
        )
        for number, proposal in enumerate(proposals, start=1)
        for candidate in proposal.candidates
    }


def forget_what_was_judged(
    workspace: Workspace,
    run: Run,
    draft: Draft,
    texts: Collection[str] = (),
    *,
    for_next: bool = False,
) -> None:
    """Begin anew from the incumbent, unless the draft holds what nobody has judged yet.

    What was judged is a commit of the run, kept or not.

    Args:
        workspace: of the run.
        run: as it is now.
        draft: the file that is edited in it.
        texts: what was judged, too.
        for_next: where a candidate may be mended, begin with that one.
    """
    started = run.started
    assert started is not None
    judged_shas = {row.sha for row in run.rows[-1:]} | {c.sha for c in run.candidates}
    next_sha = run.incumbent_sha
    if for_next and run.phase is Phase.REPAIR:
        judged_shas, next_sha = {*judged_shas, run.incumbent_sha}, run.shown.sha
    known = {workspace.repository.read(sha, started.kernel) for sha in judged_shas}
    known |= {text.encode() for text in texts}
    if draft.path.is_file() and not draft.path.is_symlink() and draft.path.read_bytes() in known:
        draft.reset(workspace.repository.read(next_sha, started.kernel).decode())


def replace_draft(workspace: Workspace, run: Run, draft: Draft, text: str) -> None:
    """Put a text that was handed over into the draft; edits that nobody judged lie beside it."""
    asked = run.proposal if run.phase is Phase.REPAIR else run.offer
    if asked is None or (draft.path.is_file() and draft.path.read_bytes() == text.encode()):
        return
    forget_what_was_judged(workspace, run, draft)
    draft.set_aside(subject_of(workspace, run).source.text, name_aside(run, asked))
    draft.reset(text)


def name_aside(run: Run, offer: Offered | Proposed) -> str:
    """What names a draft that was not tried."""
    return f"{run.iteration:02d}-{offer.optimization}"
