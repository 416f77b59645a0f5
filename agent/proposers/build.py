"""Which proposers a run has, made from its options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

from agent.errors import UsageError
from agent.memory import PastRuns
from agent.options import ASSISTANT, COMMAND, MODEL, PLAYBOOK, Options
from agent.playbook import ADVICE, find, for_backend
from agent.playbook.base import Advice, Entry
from agent.proposers.base import Proposer
from agent.proposers.judgement import JudgementProposer
from agent.proposers.playbook import PlaybookProposer
from agent.proposers.writer import Writer
from agent.redaction import redact_values
from agent.repository import Repository
from agent.settings import settings
from agent.state import Phase, Run
from agent.store.recall import Recall

_LANGUAGES = {"cutile": "cuTile", "triton": "Triton"}
"""What a person calls the backends."""


def check(options: Options) -> None:
    """Look whether the proposers can do their work, before anything is changed.

    Raises:
        UsageError: a library, a key, a program or a setting is missing; how to mend it.
    """
    check_recorded(options)
    if MODEL in options.proposers:
        from agent.proposers.model.client import check as check_model

        check_model(options.model)
    if COMMAND in options.proposers:
        from agent.proposers.command import check as check_command

        check_command(options.command)


def check_recorded(options: Options) -> None:
    """What the journal keeps is no place for a password of a URL, or for a key in an argument.

    Raises:
        UsageError: an option holds a secret.
    """
    for setting in settings(led=False):
        if setting.path[0] == "options":
            given = reduce(getattr, setting.path[1:], options)
            words = given if isinstance(given, tuple) else (given,)
            if any(redact_values(word, os.environ) != word for word in words):
                raise UsageError(
                    f"{setting.flag} holds a secret, and a run's options are recorded: leave it in "
                    "its variable, which an agent program gets with --pass-env NAME"
                )


def reach(options: Options, say: Callable[[str], None]) -> None:
    """Ask the model of a run for one word, so that one that cannot be had is told at once.

    Raises:
        UsageError: it does not answer, and why.
    """
    if MODEL not in options.proposers or options.model.replay:
        return
    from agent.proposers.model.reach import unreachable

    say(f"asking whether {options.model.model} answers")
    if reason := unreachable(options.model):
        raise UsageError(
            f"{options.model.model} cannot be asked: {reason}; mend --model, --base-url or the "
            f"key, or leave {MODEL} out of --proposer"
        )


def check_again(run: Run, say: Callable[[str], None]) -> None:
    """Look whether those can go on who have still something to do in a resumed run.

    Raises:
        UsageError: one cannot; the run can be resumed once that is mended.
    """
    check(run.options)
    if run.phase is not Phase.FINISH and MODEL in run.options.proposers[run.stage :]:
        reach(run.options, say)


def check_kernel(options: Options, backend: str) -> None:
    """Look whether what was asked for can be carried out on a kernel of this language.

    Raises:
        UsageError: it cannot; the run would take the baseline and end.
    """
    check_language(options.only, backend)
    check_judgement(options, backend)


def check_language(only: Sequence[str], backend: str) -> None:
    """Look whether one of the entries that were asked for is for the kernel's language.

    Raises:
        UsageError: none is; the run would take the baseline and end.
    """
    foreign = [entry for entry in map(find, only) if entry.backend != backend]
    if foreign and len(foreign) == len(only):
        raise UsageError(
            f"{foreign[0].name} is for {_LANGUAGES[foreign[0].backend]}; this is a "
            f"{_LANGUAGES[backend]} kernel: see `tile-agent playbook list --backend {backend}`"
        )


def check_judgement(options: Options, backend: str) -> None:
    """Look whether somebody in the run can carry out the advice that was asked for.

    Raises:
        UsageError: nobody can; the run would end as if it had been tried.
    """
    if set(options.proposers) - {PLAYBOOK}:
        return
    for entry in map(find, options.only):
        if isinstance(entry, Advice) and entry.backend == backend:
            raise UsageError(
                f"{entry.name} has no transform, only prose: give --proposer {MODEL} or {COMMAND}, "
                "or carry it out as an assistant does, by `tile-agent begin` and `next`"
            )


def judged(backend: str) -> tuple[Entry, ...]:
    """What judgement can carry out: advice, and what a program can, too."""
    return (*(e for e in ADVICE if e.backend == backend), *for_backend(backend))


def build(
    options: Options,
    backend: str,
    memory: PastRuns,
    folder: Path,
) -> dict[str, Proposer]:
    """The proposers that `options` name; an assistant is none, since it comes and goes.

    Args:
        options: of the run.
        backend: the kernel's language.
        memory: what was tried in the user's repository, of which a program gets copies.
        folder: of the run, where exchanges and logs are kept.
    """
    found: dict[str, Proposer] = {}
    recall = Recall(memory.repository)
    entries = judged(backend)
    for name in options.proposers:
        if name == PLAYBOOK:
            found[name] = PlaybookProposer(for_backend(backend), recall)
        elif name != ASSISTANT:
            writer = _writer(name, options, memory.repository, folder)
            found[name] = JudgementProposer(writer, entries, memory, recall)
    return found


def _writer(name: str, options: Options, repository: Repository, folder: Path) -> Writer:
    """Imported only where it is asked for: a model's library is optional."""
    if name == MODEL:
        from agent.proposers.model.writer import ModelWriter

        return ModelWriter(options.model, folder / MODEL)
    from agent.proposers.command import CommandWriter

    return CommandWriter(options.command, repository, folder / COMMAND)
