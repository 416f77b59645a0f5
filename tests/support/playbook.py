"""Asking an entry of the playbook about a small file."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.playbook.base import Advice
from agent.rewriting.common.dead_names import without_dead_names
from agent.syntax import Source

CUTILE = "import cuda.tile as ct\n\n"


def subject(text: str, sm: int = 0) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(sm))


def apply(name: str, text: str, params: Params | None = None) -> str:
    """What an entry makes of a text, without what only the old text needed."""
    return without_dead_names(text, playbook.get(name).apply(subject(text), params or {}))


def variants(name: str, text: str, sm: int = 0) -> list[Params]:
    return list(playbook.get(name).variants(subject(text, sm)))


def refusal(name: str, text: str, sm: int = 0) -> str:
    with pytest.raises(NotApplicable) as refused:
        variants(name, text, sm)
    return str(refused.value)


def advice(name: str, text: str, sm: int = 0) -> str:
    entry = playbook.find(name)
    assert isinstance(entry, Advice)
    return entry.fits(subject(text, sm))


def kernel(body: str, parameters: str = "x, y", arguments: str = "x, y", grid: str = "(1,)") -> str:
    """A file with one kernel and one launch of it."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return (
        f"{CUTILE}@ct.kernel\ndef k({parameters}):\n{lines}\n"
        f"def run(x, y, n, stream):\n    ct.launch(stream, {grid}, k, ({arguments}))\n"
    )
