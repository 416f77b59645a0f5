"""The commands that make a run again, and that show and take what it kept."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import MISSING
from enum import Enum
from typing import Any

from agent.options import ASSISTANT, PLAYBOOK, ValueForm
from agent.report.result import kept_at
from agent.settings import Setting, settings
from agent.state import Run


def reproduce(run: Run) -> list[dict[str, str]]:
    """What each command is for, and the command; of a run that has at least started."""
    started = run.started
    assert started is not None
    origin = started.origin_sha[:12]
    found = [
        {"what": "the code that it began with", "command": f"git checkout --detach {origin}"},
        {"what": "the run again", "command": shlex.join(_run_again(run))},
    ]
    if run.kept:
        kept = shlex.quote(kept_at(run))
        found += [
            {"what": "what was kept, a commit a step", "command": f"git log -p {origin}..{kept}"},
            {"what": "to take it", "command": f"git merge --ff-only {kept}"},
        ]
    return found


def _run_again(run: Run) -> Iterator[str]:
    """`tile-agent run`, or `begin` where an assistant led it, with what is not the default.

    The files are named that were chosen, for it may be others by now. A model's recordings are left
    out: they answer nothing but the run that they were made for.
    """
    started = run.started
    assert started is not None
    led = ASSISTANT in run.options.proposers
    yield from ("tile-agent", "begin" if led else "run", "--kernel", started.kernel)
    for file in started.tests.files:
        yield from ("--tests", file)
    for bench in started.tests.benches:
        yield from ("--bench", bench)
    for flag, expression in (
        ("--correctness-k", started.tests.correctness_k),
        ("--perf-k", started.tests.perf_k),
    ):
        yield from (flag, expression) if expression else ()
    for setting in settings(led=led):
        value: Any = run.options
        if setting.path[0] != "options":
            continue
        for name in setting.path[1:]:
            value = getattr(value, name)
        if value != setting.default and setting.default is not MISSING:
            yield from _words(setting, value)


def _words(setting: Setting, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield setting.flag if value else f"--no-{setting.flag.removeprefix('--')}"
    elif setting.option.form is ValueForm.PLAYBOOK_FIRST:
        yield from [setting.flag] if PLAYBOOK in value else []
    elif setting.option.form is ValueForm.CHAIN:
        yield from (setting.flag, ",".join(value))
    elif setting.option.form is ValueForm.WORDS:
        yield from (setting.flag, shlex.join(value))
    elif setting.option.form is ValueForm.FOLDER:
        return
    elif setting.repeatable:
        for each in value:
            yield from (setting.flag, each)
    else:
        yield from (setting.flag, str(value.value if isinstance(value, Enum) else value))
