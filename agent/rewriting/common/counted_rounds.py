"""Rounds that the host counts, counted in the kernel: of `range(N)` comes `range(cdiv(n, BLOCK))`.

`for c in range(N)` passes over a row where every launch gives `cdiv(n, BLOCK)` for the constant N.
Written so, it is a pass that the rest of the playbook knows, and another block counts other rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel, Launch
from agent.analysis.common.sizes import negated_division, rounded_up
from agent.analysis.common.subject import NotApplicable, Subject
from agent.rewriting.common.dead_names import without_dead_names
from agent.syntax import Source, assigned, descendants, positional

Edits = dict[cst.CSTNode, Callable[[Any], Any]]


def counted_in_kernels(
    subject: Subject, dialect: Dialect, language: Callable[[Kernel], str | None]
) -> Source | None:
    """The file with rounds counted in its kernels; None where no kernel has such.

    Args:
        subject: the file.
        dialect: its language.
        language: how a kernel spells the module that has `cdiv`; None where it does not.
    """
    source = subject.source
    edits: Edits = {}
    for kernel in dialect.chosen(source):
        spelled = language(kernel)
        for rounds in kernel.constants if spelled else ():
            if (found := _divided(dialect, source, kernel, rounds)) is not None:
                edits |= _counted(kernel, rounds, f"{spelled}.cdiv({', '.join(found)})")
    if not edits:
        return None
    return source.with_text(without_dead_names(source.text, source.rewrite(edits)))


def _bounds(dialect: Dialect, source: Source, kernel: Kernel, rounds: str) -> list[cst.Name]:
    """Where loops go round so often; empty where anything else asks for the number."""
    body = kernel.function.node.body
    found = []
    for loop in descendants(body, cst.For):
        if isinstance(loop.iter, cst.Call) and source.name(loop.iter.func) in dialect.ranges:
            given = positional(loop.iter)
            from_zero = len(given) == 1 or (len(given) == 2 and source.code(given[0]) == "0")
            if from_zero and isinstance(given[-1], cst.Name) and given[-1].value == rounds:
                found.append(given[-1])
    uses = [name for name in descendants(body, cst.Name) if name.value == rounds]
    in_text = any(
        each.evaluated_value == rounds for each in descendants(source.module, cst.SimpleString)
    )
    return found if len(found) == len(uses) and not in_text else []


def _divided(
    dialect: Dialect, source: Source, kernel: Kernel, rounds: str
) -> tuple[str, str] | None:
    """The length and the block, as the kernel says them, that every launch divides for rounds."""
    if not kernel.launches or not _bounds(dialect, source, kernel, rounds):
        return None
    default = next((p.default for p in kernel.function.parameters if p.name.value == rounds), None)
    found: set[tuple[str, str]] | None = None
    for launch in kernel.launches:
        if default is not None or not launch.complete or _place(launch, rounds) is None:
            return None
        pairs = {*_pairs(dialect, source, kernel, launch, launch.arguments[rounds])}
        found = pairs if found is None else found & pairs
    return min(found, key=lambda each: ("." in each[0], each), default=None) if found else None


def _pairs(
    dialect: Dialect, source: Source, kernel: Kernel, launch: Launch, given: cst.BaseExpression
) -> Iterator[tuple[str, str]]:
    parts = _quotient(dialect, source, source.resolve(given))
    if parts is None or not all(_is_steady(source, each) for each in (given, *parts)):
        return
    whole, part = (source.code(source.resolve(each)) for each in parts)
    stored = {name for target, _ in assigned(kernel.function.node.body)
              for name in (n.value for n in descendants(target, cst.Name))}  # fmt: skip
    lengths = []
    for parameter, value in launch.arguments.items():
        if parameter in stored or not _is_steady(source, value):
            continue
        said = source.code(source.resolve(value))
        if said == whole:
            lengths.append(parameter)
        elif whole.startswith(f"{said}.shape["):  # an array's
            lengths.append(f"{parameter}{whole.removeprefix(said)}")
    for block in kernel.constants:
        given_block = launch.arguments.get(block)
        if given_block is None or not _is_steady(source, given_block):
            continue
        if source.code(source.resolve(given_block)) == part:
            yield from ((length, block) for length in lengths if length != block)


def _quotient(
    dialect: Dialect, source: Source, node: cst.BaseExpression
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """What is divided, and by what, rounded up."""
    match node:
        case cst.Call() if source.name(node.func) in dialect.cdivs and len(node.args) == 2:
            given = positional(node)
            return (given[0], given[1]) if len(given) == 2 else None
        case cst.BinaryOperation():
            return rounded_up(source, node)
        case cst.UnaryOperation(operator=cst.Minus()):
            return negated_division(node.expression)
    return None


def _is_steady(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression means the same wherever it stands: its names are given one value."""
    for name in descendants(node, cst.Name):
        for each in (given := source.assignments(name)):
            loops = (a for a in source.ancestors(each.node) if isinstance(a, cst.For | cst.While))
            if len(given) > 1 or any(loops):
                return False
        behind = source.resolve(name)
        if behind is not name and not _is_steady(source, behind):
            return False
    return True


def _place(launch: Launch, rounds: str) -> cst.Arg | cst.Element | None:
    """What of a launch gives the number."""
    value = launch.arguments.get(rounds)
    if value is None or any(arg.star for arg in launch.node.args):
        return None
    places: list[cst.Arg | cst.Element] = [*descendants(launch.node, cst.Arg)]
    places += descendants(launch.node, cst.Element)
    return next((each for each in places if each.value is value), None)


def _counted(kernel: Kernel, rounds: str, text: str) -> Edits:
    edits: Edits = {}
    for name in descendants(kernel.function.node.body, cst.Name):
        if name.value == rounds:
            edits[name] = lambda _: cst.parse_expression(text)
    for parameter in kernel.function.parameters:
        if parameter.name.value == rounds:
            edits[parameter] = lambda _: cst.RemoveFromParent()
    for launch in kernel.launches:
        place = _place(launch, rounds)
        assert place is not None  # see `_divided`
        edits[place] = lambda _: cst.RemoveFromParent()
    return edits


def or_counted(
    subject: Subject,
    dialect: Dialect,
    language: Callable[[Source, Kernel], str | None],
    attempt: Callable[[Subject], Any],
) -> Any:
    """What an attempt gives, or gives where rounds are counted in the kernels.

    Raises:
        NotApplicable: neither applies; the reason is that of the file as it is.
    """
    try:
        return attempt(subject)
    except NotApplicable as reason:
        source = subject.source
        counted = counted_in_kernels(subject, dialect, lambda kernel: language(source, kernel))
        if counted is None:
            raise
        try:
            return attempt(replace(subject, source=counted))
        except NotApplicable:
            raise reason from None
