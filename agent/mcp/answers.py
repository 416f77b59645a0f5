"""What the tools answer: the fields that an assistant acts on, as a schema that clients publish.

The commands print more than is listed here, and all of it is handed on.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class TurnAnswer(_Answer):
    """Where a run stands after a command, and what comes next."""

    run: str = Field(description="Id of the run.")
    kernel: str = Field(description="The kernel, from the top of the repository.")
    branch: str = Field(description="The branch that kept commits go to.")
    do: str = Field(
        description="What to do now: call 'begin', 'next', 'try' or 'finish'; 'edit' the draft and "
        "then call 'try'; nothing when 'done'."
    )
    reason: str = Field(description="Why, where that needs a word.")
    incumbent_ms: float | None = Field(None, description="Latency of the best commit so far.")
    left: dict[str, float | None] | None = Field(
        None,
        description="Until a limit ends the run: 'iterations', 'without_improvement' in a row "
        "(only comparisons that find no gain count), and 'time_s', null where there is no limit; "
        "'attempts' at this candidate.",
    )
    as_before: list[str] | None = Field(
        None,
        description="Fields that are left out because they are as they were said; `next` with "
        "'full' says them again.",
    )


class _Editing(TurnAnswer):
    file: str | None = Field(None, description="The draft to edit, and the only file to edit.")
    edited: bool | None = Field(None, description="The draft holds an edit not tried yet.")
    attempt: dict[str, Any] | None = Field(
        None,
        description="What the last candidate came to, where it was judged: 'number' of 'of', "
        "'status', 'reason', 'mismatch' (largest error and where), 'account' (all that the test or "
        "the compiler said), 'configs' with intervals, 'code' (registers and spilled bytes, before "
        "and after), 'variants' (the short look at each, which ranked them). Where 'do' says "
        "'edit', mend the draft and call 'try' again.",
    )


class Offer(_Editing):
    """The one optimization to carry out now, where 'do' says 'edit'."""

    optimization: str | None = Field(None, description="Its name in the playbook.")
    prose: str | None = Field(
        None,
        description="When it pays, what to do, the risk, the source; in 'brief' too, and said "
        "there alone unless the answer is a full one.",
    )
    why: str | None = Field(None, description="Why this one comes next.")
    brief: str | None = Field(
        None,
        description="The optimization, kernel, hardware, diagnosis and what was tried, as "
        "Markdown; it names the sections that it leaves out because you know them.",
    )
    others: list[dict[str, Any]] = Field(
        default_factory=list,
        description="What could be tried instead, by 'choose', as far as that is new or differs "
        "from what was said.",
    )
    others_as_before: list[str] | None = Field(
        None,
        description="Names of those that fit and were said before, best first. Those that do not "
        "fit are said once.",
    )
    again: list[str] = Field(
        default_factory=list,
        description="What was tried, and may be chosen once more with another value.",
    )


class Tried(_Editing):
    """How the draft was judged."""

    row: dict[str, Any] | None = Field(
        None,
        description="Its row in the table; 'status' is keep, revert, crash, held or "
        "tampered, with 'reason'. Null while the candidate may be mended: see 'attempt'.",
    )
    effect: dict[str, Any] | None = Field(
        None,
        description="The improvement with its interval, as fractions of the best latency so far: "
        "0.05 is 5 % less time.",
    )
    skipped: str | None = Field(None, description="Why the draft was not worth an iteration.")
    resumed: bool | None = Field(
        None,
        description="An interrupted iteration was brought to its end; the draft was not looked at.",
    )
    unjudged: str | None = Field(
        None, description="With 'resumed': what differs from that candidate, and was not judged."
    )


class FinalFigures(_Answer):
    """The best commit against the code as the user gave it, measured afresh."""

    run: str | None = Field(None, description="Id of the run.")
    branch: str | None = Field(None, description="The branch with the kept commits.")
    speedup: float | None = Field(None, description="Origin over best; null when nothing is kept.")
    exit_code: int | None = Field(
        None, description="0 faster, 3 no improvement, 4 escalated, 5 stopped at a budget."
    )


class Runs(_Answer):
    """The runs of a repository, the latest last."""

    runs: list[dict[str, Any]] = Field(
        description="For each: 'run', 'standing', 'summary', and 'next': what to do next. The "
        "latest has every row, older ones what they came to."
    )


class Results(_Answer):
    """The table of a run."""

    run: str = Field(description="Id of the run.")
    table: str = Field(description="perf_results.md: one row an iteration, 0 is the baseline.")
    rows: list[dict[str, Any]] = Field(description="The same rows with reason and commit.")


class Difference(_Answer):
    """What a run changed in the kernel."""

    run: str = Field(description="Id of the run.")
    before: str = Field(description="The commit on the left.")
    after: str = Field(description="The commit on the right.")
    diff: str = Field(description="A unified diff; empty when both are the same.")
