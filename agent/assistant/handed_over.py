"""What a `try` hands over: the draft, and variants of it with other values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from agent.assistant.drafts import judged_texts, subject_of
from agent.errors import UsageError
from agent.proposers.agenda import OWN_IDEA
from agent.proposers.draft import Draft, DraftProposer, check_text
from agent.state import Phase, Run
from agent.workspace import Workspace


def handed_over(
    workspace: Workspace, run: Run, draft: Draft, message: str, variants: Mapping[str, str]
) -> DraftProposer:
    """As what was asked for, or as what a candidate was mended to.

    A draft that has not been edited since is left out where there are variants.

    Args:
        workspace: of the run.
        run: one that waits for its assistant.
        draft: the file that is edited in it.
        message: the hypothesis.
        variants: name -> text.

    Raises:
        UsageError: one of them cannot be a candidate, none is asked for, or it was judged before.
    """
    mends = run.phase is Phase.REPAIR
    if not mends and run.offer is None:
        raise UsageError("no optimization has been asked for: `tile-agent next`")
    before = subject_of(workspace, run).source
    known = {before.text: "the code as it stands"}
    if mends:
        known |= judged_texts(workspace, run)
    text = draft.text()
    texts = {} if variants and text in known else {"the draft": text}
    give_up = ", or give it up with `tile-agent next --decline WHY`" if mends else ""
    for name, text in {**texts, **variants}.items():
        if text in known:
            file = draft.path if name == "the draft" else "it"
            raise UsageError(f"{name} is {known[text]}: edit {file}{give_up}")
        check_text(before, text, name)
        known[text] = f"the same as {name}"
    texts |= variants
    handed = tuple(texts.values())
    called = tuple(PurePath(name.removeprefix("the ")).name for name in texts)
    if mends:
        assert run.proposal is not None
        if run.proposal.optimization == OWN_IDEA and not message.strip():
            raise UsageError(
                "what was tried before has another text: say what this one does, and why, with "
                "-m 'WHAT, AND WHY'"
            )
        return DraftProposer.mending(run.proposal, handed, message, called)
    assert run.offer is not None
    return DraftProposer(run.offer, handed, message, called)
