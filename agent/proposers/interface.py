"""What others use of a kernel file must outlive a change of it: names, signatures, and the work.

A kernel that the file itself launches is its own matter: it may change its parameters, and it may
be merged into another. A kernel that only tests or other modules launch may not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Function, Source, assigned, descendants

DIALECTS: tuple[Dialect, ...] = (CUTILE, TRITON)
Signature = tuple[str, ...]
"""Each parameter as its kind, its name and its default."""


def broken_interface(before: Source, after: Source) -> tuple[str, ...]:
    """What callers of the file would miss after the change, one line each."""
    old, new = Outline(before), Outline(after)
    return (*_missing(old, new), *_idle(old, new))


@dataclass(frozen=True)
class Outline:
    """What stands at the top of a kernel file, and who launches what."""

    source: Source

    @cached_property
    def kernels(self) -> Mapping[str, Kernel]:
        """Name -> kernel, of either language."""
        return {k.name: k for dialect in DIALECTS for k in dialect.kernels(self.source)}

    @cached_property
    def device(self) -> frozenset[str]:
        """The functions that run on the GPU: the kernels and what they call."""
        reached = (
            f.name
            for dialect in DIALECTS
            for kernel in dialect.kernels(self.source)
            for f in dialect.reached(self.source, kernel)
        )
        return frozenset(reached)

    @cached_property
    def units(self) -> Mapping[str, tuple[cst.CSTNode, ...]]:
        """Name at the top of the file -> the definitions and assignments that give it."""
        found: dict[str, list[cst.CSTNode]] = {}
        for node, name in self._named():
            around = self.source.ancestors(node)
            if not any(isinstance(a, cst.FunctionDef | cst.ClassDef) for a in around):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def launchers(self) -> Mapping[str, frozenset[str]]:
        """Host unit -> the kernels that a call of it launches, itself or through others."""
        host = {name: nodes for name, nodes in self.units.items() if name not in self.device}
        uses = {name: frozenset(self._uses(nodes)) for name, nodes in host.items()}
        launched = {name: used & self.kernels.keys() for name, used in uses.items()}
        changed = True
        while changed:
            changed = False
            for name, used in uses.items():
                reached = launched[name].union(*(launched[n] for n in used & host.keys()))
                changed |= reached != launched[name]
                launched[name] = frozenset(reached)
        return {name: kernels for name, kernels in launched.items() if kernels}

    @cached_property
    def launched(self) -> frozenset[str]:
        """The kernels that the file launches itself."""
        return frozenset().union(*self.launchers.values())

    def functions(self, name: str) -> tuple[Function, ...]:
        """The function of that name, or the methods of that class that others may call."""
        return tuple(
            f
            for f in self.source.functions
            if f.name == name
            or (f.name.rpartition(".")[0] == name and name in self.units and _is_open(f))
        )

    def _named(self) -> Iterator[tuple[cst.CSTNode, str]]:
        for definition in descendants(self.source.module, cst.FunctionDef):
            yield definition, definition.name.value
        for class_ in descendants(self.source.module, cst.ClassDef):
            yield class_, class_.name.value
        for target, value in assigned(self.source.module):
            if isinstance(target, cst.Name):
                yield value, target.value

    def _uses(self, nodes: tuple[cst.CSTNode, ...]) -> Iterator[str]:
        """The names of the file that are used; of kernels where they are called or handed on."""
        for name in (n for node in nodes for n in descendants(node, cst.Name)):
            top = (self.source.name(name) or "").partition(".")[0]
            in_call = any(isinstance(a, cst.Call) for a in self.source.ancestors(name))
            if top in self.units and (in_call or top not in self.kernels):
                yield top


def _missing(old: Outline, new: Outline) -> Iterator[str]:
    """Names and signatures that others may use and that are gone."""
    for name in old.units:
        if not _is_entry_point(old, name):
            continue
        if name not in new.units:
            yield f"`{name}` is gone: the tests and other modules may use it"
            continue
        if name in old.kernels and name not in new.kernels:
            yield f"`{name}` is no kernel any more, and nothing in this file launches it"
            continue
        signatures = {f.name: _signature(f) for f in new.functions(name)}
        for function in old.functions(name):
            was, is_now = _signature(function), signatures.get(function.name)
            if is_now is None:
                yield f"`{function.name}` is gone: the tests and other modules may use it"
            elif was != is_now:
                yield (
                    f"`{function.name}` takes ({', '.join(is_now)}) instead of "
                    f"({', '.join(was)}): names, kinds, order and defaults have to stay"
                )


def _idle(old: Outline, new: Outline) -> Iterator[str]:
    """Kernels whose work nobody does any more."""
    for name in old.launchers:
        if name in new.units and not name.startswith("_") and name not in new.launchers:
            yield f"`{name}` launches no kernel any more: a kernel has to do the work"
    for name in sorted(old.launched - new.launched):
        if new.launched and not _taken_over(old, new):
            yield f"`{name}` is not launched any more, and no other kernel has changed instead"


def _taken_over(old: Outline, new: Outline) -> bool:
    """Whether a kernel that is launched is new or has changed."""
    return any(
        name not in old.kernels
        or ast.dump(_parsed(old, name).body[0]) != ast.dump(_parsed(new, name).body[0])
        for name in new.launched
    )


def _parsed(outline: Outline, name: str) -> ast.Module:
    node = outline.kernels[name].function.node
    return ast.parse(cst.Module(body=[node]).code)


def _is_entry_point(outline: Outline, name: str) -> bool:
    """Whether others may use a name of the file: functions, classes, and other names of them."""
    if name in outline.kernels:
        helper = any(
            outline.kernels[name].function in dialect.reached(outline.source, kernel)
            for dialect in DIALECTS
            for kernel in dialect.kernels(outline.source)
            if kernel.name != name
        )
        return name not in outline.launched and not helper
    if name.startswith("_") or name in outline.device:
        return False
    callables = cst.FunctionDef | cst.ClassDef | cst.Attribute | cst.Lambda
    return any(isinstance(node, callables) for node in outline.units[name]) and not name.isupper()


def _is_open(function: Function) -> bool:
    name = function.node.name.value
    return not name.startswith("_") or name.endswith("__")


def _signature(function: Function) -> Signature:
    listed = function.node.params
    shown = []
    for kind, parameters in (
        ("/", listed.posonly_params),
        ("", listed.params),
        ("*", listed.kwonly_params),
    ):
        shown += [_parameter(kind, p) for p in parameters]
    if isinstance(listed.star_arg, cst.Param):
        shown.append(f"*{listed.star_arg.name.value}")
    if listed.star_kwarg is not None:
        shown.append(f"**{listed.star_kwarg.name.value}")
    return tuple(shown)


def _parameter(kind: str, parameter: cst.Param) -> str:
    name = parameter.name.value
    suffix = {"/": " (positional only)", "": "", "*": " (keyword only)"}[kind]
    if parameter.default is None:
        return f"{name}{suffix}"
    default = cst.Module(body=[]).code_for_node(parameter.default)
    return f"{name}={ast.unparse(ast.parse(default, mode='eval'))}{suffix}"
