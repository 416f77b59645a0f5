"""Asks every Triton entry of the playbook about a file, and holds it to what entries promise."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.backends import BACKENDS
from agent.playbook import ADVICE, for_backend
from agent.playbook.base import Advice, Optimization
from agent.syntax import Source

TRITON = BACKENDS["triton"]
HOPPER = Hardware(sm=90)


@dataclass
class Survey:
    """What the entries made of one file."""

    path: Path
    kernels: int = 0
    applied: dict[str, list[tuple[Params, str]]] = field(default_factory=dict)
    """Entry -> its variants, each with the text it gives."""
    fits: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Entry -> why it does not apply."""
    faults: list[str] = field(default_factory=list)
    """Promises that were not kept."""


def survey(path: Path, settled: Container[str] = ()) -> Survey:
    """Ask all entries about a file; of one without a kernel only whether it is reproduced.

    Args:
        path: the file.
        settled: entries of which the first and the last variant will do, and that are not asked
            about their own result: these take most of the time.
    """
    found = Survey(path)
    data = path.read_bytes()
    text = data.decode("utf-8")
    source = Source(text, path.name)
    if source.module.bytes != data or source.rewrite({}) != text:
        found.faults.append("does not round-trip")
    found.kernels = len(TRITON.kernels(source))
    if not found.kernels:
        return found
    subject = Subject(source, TRITON.classify(source).kernel_class, HOPPER)
    for advice in (entry for entry in ADVICE if entry.backend == "triton"):
        _advise(advice, subject, found)
    for entry in for_backend("triton"):
        try:
            _ask(entry, subject, found, again=entry.name not in settled)
        except Exception as problem:
            found.faults.append(f"{entry.name} crashes: {type(problem).__name__}: {problem}")
    return found


def _advise(entry: Advice, subject: Subject, found: Survey) -> None:
    try:
        found.fits[entry.name] = entry.fits(subject)
    except NotApplicable as refusal:
        found.refused[entry.name] = str(refusal)
    except Exception as problem:
        found.faults.append(f"{entry.name} crashes: {type(problem).__name__}: {problem}")
        return
    said = found.fits.get(entry.name) or found.refused.get(entry.name, "")
    found.faults += [f"{entry.name} says: {fault}" for fault in _no_line(said)]


def _ask(entry: Optimization, subject: Subject, found: Survey, *, again: bool) -> None:
    try:
        variants = entry.variants(subject)
    except NotApplicable as refusal:
        found.refused[entry.name] = str(refusal)
        found.faults += [f"{entry.name} refuses with {fault}" for fault in _no_line(str(refusal))]
        return
    if not variants:
        found.faults.append(f"{entry.name} has no variant and no reason")
    made = found.applied.setdefault(entry.name, [])
    for params in variants if again else [*variants[:1], *variants[1:][-1:]]:
        text = entry.apply(subject, params)
        made.append((params, text))
        faults = list(_broken(entry, subject.source.text, text))
        if again and params == variants[-1] and not faults:
            result = replace(subject, source=Source(text))
            faults += _twice(entry, params, result)
        found.faults += [f"{entry.name} {dict(params)}: {fault}" for fault in faults]


def _twice(entry: Optimization, params: Params, result: Subject) -> Iterator[str]:
    with contextlib.suppress(NotApplicable):
        if entry.apply(result, params) != result.source.text:
            yield "applies again to its own result"


def _broken(entry: Optimization, before: str, after: str) -> Iterator[str]:
    """What a result lost: its syntax, a function, the signature of one that callers use."""
    if before == after:
        yield "changes nothing"
    try:
        compile(after, "after.py", "exec", dont_inherit=True)
    except SyntaxError as problem:
        yield f"gives no Python: {problem}"
        return
    old, new = _signatures(before), _signatures(after)
    for name, (is_kernel, parameters) in old.items():
        if name not in new:
            yield f"loses {name}"
        elif is_kernel != new[name][0]:
            yield f"changes what {name} is"
        elif not is_kernel and new[name][1] != parameters:
            yield f"changes the signature of {name}"
        elif is_kernel and new[name][1][: len(parameters)] != parameters:
            yield f"changes parameters of kernel {name}, which launches elsewhere may give"


@lru_cache(maxsize=2)
def _signatures(text: str) -> dict[str, tuple[bool, list[str]]]:
    """Qualified function -> whether it is decorated with a jit, and its parameters."""
    found = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if isinstance(child, ast.FunctionDef):
                    listed = child.args
                    parameters = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs]
                    texts = [ast.unparse(p) for p in parameters]
                    decorators = [ast.unparse(d) for d in child.decorator_list]
                    found[name] = any("jit" in text for text in decorators), texts
                visit(child, f"{name}.")
            elif not isinstance(child, ast.expr):  # it holds no definition
                visit(child, prefix)

    visit(ast.parse(text), "")
    return found


def _no_line(said: str) -> Iterator[str]:
    if not said.strip():
        yield "nothing"
    elif "\n" in said:
        yield f"several lines: {said!r}"
