"""Kernels that a call makes of a function, read as if they were decorated.

`f = triton.jit(f)` behind a function does what `@triton.jit` above it does, and so do
`triton.heuristics(...)(f)` and `triton.autotune(...)(f)`. Unsloth writes its kernels so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.syntax import Source, descendants

JIT = "triton.jit"
_MAKERS = frozenset({JIT, "triton.heuristics", "triton.autotune"})
"""What returns a decorator when it is called; `triton.jit` is one itself, too."""


@dataclass(frozen=True)
class _Wrapped:
    """A function and the statements right behind it that wrap it."""

    function: cst.FunctionDef
    statements: tuple[cst.SimpleStatementLine, ...]
    decorators: tuple[cst.Decorator, ...]
    """What stands for them, outermost first."""
    layers: tuple[cst.SimpleStatementLine, ...]
    """The statement that each of them stands for."""


def decorated(source: Source) -> Source:
    """The file with such kernels written with decorators; the same object where there is none."""
    if f"{JIT.rpartition('.')[2]}(" not in source.text:
        return source
    found = tuple(_wrapped(source))
    if not found:
        return source
    decorators = {wrapped.function: wrapped.decorators for wrapped in found}
    gone = {statement for wrapped in found for statement in wrapped.statements}
    body: list[cst.BaseStatement] = []
    for node in source.module.body:
        if isinstance(node, cst.FunctionDef) and node in decorators:
            body.append(node.with_changes(decorators=[*decorators[node], *node.decorators]))
        elif node not in gone:
            body.append(node)
    text = source.module.with_changes(body=body).code
    kept = [node for node in source.module.body if node not in gone]
    moved = tuple(_moved(source, Source(text), kept, {w.function: w for w in found}))
    return Source(text, source.path, source.timed, moved)


def _moved(
    source: Source,
    written: Source,
    kept: Sequence[cst.CSTNode],
    wrapped: Mapping[cst.CSTNode, _Wrapped],
) -> Iterator[tuple[int, int]]:
    """Lines of the text with decorators -> how far on the file has what follows.

    Args:
        source: the file.
        written: the same with decorators.
        kept: the statements of the file that both have.
        wrapped: those that are decorated here.
    """
    for old, new in zip(kept, written.module.body, strict=True):
        if isinstance(old, cst.FunctionDef) and isinstance(new, cst.FunctionDef):
            layers = wrapped[old].layers if old in wrapped else ()
            was = [*layers, *old.decorators, old.name]
            for before, after in zip(was, [*new.decorators, new.name], strict=True):
                line = written.line(after)
                yield line, source.line(before) - line
        else:
            line = written.line(new)
            yield line, source.line(old) - line


def _wrapped(source: Source) -> Iterator[_Wrapped]:
    body = source.module.body
    for index, node in enumerate(body):
        if not isinstance(node, cst.FunctionDef):
            continue
        statements: list[cst.SimpleStatementLine] = []
        decorators: list[cst.Decorator] = []
        places: list[cst.SimpleStatementLine] = []
        between: set[str] = set()
        for line in body[index + 1 :]:
            if isinstance(line, cst.FunctionDef) and _leaves(line, node.name.value):
                between.add(line.name.value)
                continue
            if not isinstance(line, cst.SimpleStatementLine):
                break
            layers = _layers(source, line, node.name.value)
            if layers and any(_asks_now(layer, between) for layer in layers):
                break
            if layers:
                statements.append(line)
                places = [*(line for _ in layers), *places]
                comments = [blank for blank in line.leading_lines if blank.comment]
                first, *others = (cst.Decorator(layer) for layer in layers)
                decorators = [first.with_changes(leading_lines=comments), *others, *decorators]
            elif not _is_pass(line):
                break
        if statements:
            yield _Wrapped(node, tuple(statements), tuple(decorators), tuple(places))


def _layers(
    source: Source, line: cst.SimpleStatementLine, name: str
) -> Sequence[cst.BaseExpression]:
    """The decorators that `name = a(b(name))` stands for, outermost first; none if it is not so."""
    if len(line.body) != 1 or line.trailing_whitespace.comment:
        return ()
    assign = line.body[0]
    if not (
        isinstance(assign, cst.Assign)
        and len(assign.targets) == 1
        and _is_named(assign.targets[0].target, name)
    ):
        return ()
    layers: list[cst.BaseExpression] = []
    value = assign.value
    while isinstance(value, cst.Call) and value.args:
        first, *others = value.args
        if first.keyword is not None or first.star:
            return ()
        if isinstance(value.func, cst.Call):
            if others or source.name(value.func.func) not in _MAKERS:
                return ()
            layers.append(value.func)
        elif source.name(value.func) == JIT and all(arg.keyword for arg in others):
            layers.append(value.with_changes(args=others) if others else value.func)
        else:
            return ()
        value = first.value
    return layers if _is_named(value, name) else ()


def _leaves(function: cst.FunctionDef, name: str) -> bool:
    """Whether the definition of a function neither is nor asks what a name stands for."""
    asked = [function.params, *function.decorators, *filter(None, [function.returns])]
    found = {each.value for node in asked for each in descendants(node, cst.Name)}
    return name not in {function.name.value, *found}


def _asks_now(layer: cst.BaseExpression, names: Collection[str]) -> bool:
    """Whether a layer asks for names when it is made: what a lambda asks for, it does later."""
    later = {
        name
        for function in descendants(layer, cst.Lambda)
        for name in descendants(function.body, cst.Name)
    }
    return any(n.value in names and n not in later for n in descendants(layer, cst.Name))


def _is_named(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_pass(line: cst.SimpleStatementLine) -> bool:
    return all(isinstance(part, cst.Pass) for part in line.body)
