"""Changes a kernel's parameters and the arguments of its launches together.

`ct.launch` hands a kernel its arguments by position, in one tuple. A parameter can be added or
dropped only where every launch shows that tuple, and where nothing else names the kernel: a tuner
or another launcher would go on passing what it passed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.rewriting.common.elements import Space, uncommented
from agent.rewriting.common.parameters import joined, said_behind
from agent.syntax import Edits, Source, argument, descendants


@dataclass(frozen=True)
class Interface:
    """A kernel whose parameters can be changed."""

    source: Source
    kernel: Kernel
    tuples: tuple[cst.Tuple, ...]
    """The arguments of each launch."""

    @classmethod
    def of(cls, source: Source, kernel: Kernel) -> Interface:
        """Find the launches' tuples. Raises `NotApplicable` with what is in the way."""
        if not kernel.launches:
            raise not_launched(source, kernel)
        listed = kernel.function.node.params
        if (
            listed.star_kwarg
            or listed.kwonly_params
            or listed.posonly_params
            or isinstance(listed.star_arg, cst.Param)
        ):
            raise NotApplicable(f"{kernel.name} has parameters that no tuple shows")
        tuples = []
        for launch in kernel.launches:
            line = source.line(launch.node)
            given = argument(launch.node, 3, "kernel_args")
            found = source.resolve(given) if given is not None else None
            if not launch.complete or not isinstance(found, cst.Tuple) or given is None:
                raise NotApplicable(f"the launch at line {line} does not show its arguments")
            if found is not given and not _is_used_once(source, given):
                raise NotApplicable(f"line {line} passes arguments that are used elsewhere too")
            tuples.append(found)
        inside = {id(node) for x in kernel.launches for node in descendants(x.node, cst.Name)}
        others = [n for n in source.mentions(kernel.function) if id(n) not in inside]
        if others:
            line = source.line(others[0])
            raise NotApplicable(f"line {line} hands {kernel.name} on, with arguments of its own")
        return cls(source, kernel, tuple(tuples))

    def added(self, parameters: Sequence[str], arguments: Sequence[Sequence[str]]) -> Edits:
        """The edits that append parameters, and to each launch's tuple its expressions."""
        parsed = cst.parse_module(f"def f({', '.join(parameters)}): ...\n").body[0]
        added = cst.ensure_type(parsed, cst.FunctionDef).params.params
        node = self.kernel.function.node
        edits: dict[Any, Any] = {node.params: _in_parameters(lambda items: joined(items, added))}
        for given, values in zip(self.tuples, arguments, strict=True):
            edits[given] = appending(values)
        return edits

    def dropped(self, names: Collection[str]) -> Edits:
        """The edits that drop parameters, and from each launch's tuple what it gave for them."""
        places = [i for i, p in enumerate(self.kernel.function.parameters)
                  if p.name.value in names]  # fmt: skip
        edits: dict[Any, Any] = {
            self.kernel.function.node.params: _in_parameters(_dropping(places))
        }
        return edits | {node: _in_tuple(_dropping(places)) for node in self.tuples}

    def given(self, name: str) -> tuple[cst.BaseExpression, ...]:
        """What each launch gives for a parameter."""
        return tuple(launch.arguments[name] for launch in self.kernel.launches)


def _is_used_once(source: Source, given: cst.BaseExpression) -> bool:
    if not isinstance(given, cst.Name):
        return False
    uses = {use for a in source.assignments(given) for use in source.uses(a)}
    return uses == {given}


# --- lists of parameters and of arguments, with their layout ------------------------------------

Change = Callable[[Sequence[Any]], list[Any]]
"""What becomes of the items. The comma of the last one holds all that follows it."""


def _in_parameters(change: Change) -> Any:
    return lambda listed: listed.with_changes(params=change(listed.params))


def appending(values: Sequence[str]) -> Callable[[cst.Tuple], cst.Tuple]:
    """The edit of a tuple that appends expressions, laid out as those before them are."""
    return _in_tuple(_joining([cst.Element(cst.parse_expression(value)) for value in values]))


def _in_tuple(change: Change) -> Callable[[cst.Tuple], cst.Tuple]:
    def edit(node: cst.Tuple) -> cst.Tuple:
        items = list(node.elements)
        closing = node.rpar[-1] if node.rpar else cst.RightParen()
        space = closing.whitespace_before
        lines = isinstance(space, cst.ParenthesizedWhitespace)
        ends = bool(items) and isinstance(items[-1].comma, cst.Comma) and (len(items) > 1 or lines)
        if items:
            items[-1] = items[-1].with_changes(comma=cst.Comma(whitespace_after=space))
        *items, last = change(items)
        if isinstance(last.comma, cst.Comma):
            closing = closing.with_changes(whitespace_before=last.comma.whitespace_after)
        comma = cst.Comma() if ends else cst.MaybeSentinel.DEFAULT
        last = last.with_changes(comma=comma)
        rpar = [*node.rpar[:-1], closing] if node.rpar else []
        return node.with_changes(elements=[*items, last], rpar=rpar)

    return edit


def _joining(added: Sequence[cst.Element]) -> Change:
    """Append elements, laid out as those before them are. A comment stays behind its element."""

    def change(items: Sequence[Any]) -> list[Any]:
        if not items:
            return list(added)
        *before, last = items
        comma = before[-1].comma if before else cst.Comma(whitespace_after=_SPACE)
        separator = cst.Comma(whitespace_after=uncommented(comma.whitespace_after))
        behind = last.comma.whitespace_after
        first = cst.Comma(whitespace_after=said_behind(behind, separator.whitespace_after))
        *middle, end = added
        return [
            *before,
            last.with_changes(comma=first),
            *(item.with_changes(comma=separator) for item in middle),
            end.with_changes(comma=cst.Comma(whitespace_after=uncommented(behind))),
        ]

    return change


def _dropping(places: Collection[int]) -> Change:
    """Drop the items at some places, with their comments; what is left ends as the list did."""

    def change(items: Sequence[Any]) -> list[Any]:
        kept = [item for i, item in enumerate(items) if i not in places]
        tail = items[-1].comma
        if len(items) - 1 in places:
            if isinstance(tail, cst.Comma):
                space = _laid_out(kept[-1].comma.whitespace_after, tail.whitespace_after)
                tail = cst.Comma(whitespace_after=space)
            kept[-1] = kept[-1].with_changes(comma=tail)
        if len(kept) == 1 and isinstance(kept[0], cst.Element) and tail is not kept[0].comma:
            kept[0] = kept[0].with_changes(comma=cst.Comma())
        return kept

    return change


_SPACE = cst.SimpleWhitespace(" ")


def _laid_out(space: Space, layout: Space) -> Space:
    """A comment and the lines of one whitespace with the indentation of another."""
    lines = cst.ParenthesizedWhitespace
    if isinstance(space, lines) and isinstance(layout, lines):
        return space.with_changes(indent=layout.indent, last_line=layout.last_line)
    return uncommented(layout)
