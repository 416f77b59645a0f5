"""Breaks lines that an edit has made too long, at the arguments of a call.

How long is too long the file tells: its authors' widest line, within reason. A line that was only
moved to the right, as by a loop around it, stays as they wrote it. A line that only the comment
behind it makes too long stays whole, and the comment goes above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.syntax import Source
from agent.syntax.tree import descendants

LEAST, MOST = 88, 120
"""What a line may have in any file, and in none."""
PASSES = 3
"""A part of a broken line may be too long, too."""

_Edit = tuple[cst.CSTNode, Callable[[Any], cst.CSTNode]]


def within_width(before: str, after: str) -> str:
    """The text after an edit, its new lines no longer than the file's others where that can be."""
    old = {line.strip() for line in before.splitlines()}
    width = max(LEAST, min(MOST, max(map(len, before.splitlines()), default=0)))
    for _ in range(PASSES):
        lines = after.splitlines()
        long = [
            number
            for number, line in enumerate(lines, 1)
            if len(line) > width and line.strip() not in old
        ]
        edits = dict(_edits(Source(after), lines, long, width)) if long else {}
        if not edits:
            break
        after = Source(after).rewrite(edits)
    return after


def _edits(source: Source, lines: list[str], long: list[int], width: int) -> Iterator[_Edit]:
    """What shortens each of the long lines: its comment above it, or a call on it broken."""
    for statement in descendants(source.module, cst.SimpleStatementLine):
        place = source.place(statement)
        number, comment = place.start.line, statement.trailing_whitespace.comment
        if number in long and number == place.end.line and comment is not None:
            code = lines[number - 1].removesuffix(comment.value).rstrip()
            if len(code) <= width:
                long = [each for each in long if each != number]
                yield statement, _with_comment_above
    calls: dict[int, list[cst.Call]] = {number: [] for number in long}
    for call in descendants(source.module, cst.Call):
        first, last = source.place(call).start.line, source.place(call).end.line
        for number in long:
            if first <= number <= last and call.args and not _is_in_string(source, call):
                calls[number].append(call)
    for number in long:
        line = _Line(source, number, lines[number - 1], width)
        edit = next((found for call in calls[number] if (found := line.broken(call))), None)
        if edit is not None:
            yield edit


def _with_comment_above(statement: Any) -> cst.CSTNode:
    comment = statement.trailing_whitespace.comment
    changed: cst.CSTNode = statement.with_changes(
        leading_lines=[*statement.leading_lines, cst.EmptyLine(comment=comment)],
        trailing_whitespace=cst.TrailingWhitespace(),
    )
    return changed


def _is_in_string(source: Source, node: cst.CSTNode) -> bool:
    return any(isinstance(each, cst.FormattedString) for each in source.ancestors(node))


@dataclass(frozen=True)
class _Line:
    """A line that is too long."""

    source: Source
    number: int
    text: str
    width: int

    def broken(self, call: cst.Call) -> _Edit | None:
        """How it is broken at a call, which are asked from the outermost inwards."""
        place = self.source.place(call)
        if place.start.line == place.end.line:
            return self._broken_open(call)
        return self._with_last_below(call)

    def _broken_open(self, call: cst.Call) -> _Edit | None:
        """Its arguments on a line of their own, or on one each."""
        margin, step = self._margin(call), self._step()
        written = [
            self._code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for arg in call.args
        ]
        first = self.source.place(call.args[0]).start.column
        rest = len(self.text) - self.source.place(call).end.column + 1
        inner = len(self._indent) + len(step)
        is_open = first <= self.width and len(self._indent) + rest <= self.width
        if margin is None or not is_open or max(map(len, written)) + inner + 1 > self.width:
            return None
        on_one = inner + len(", ".join(written)) <= self.width
        below, closing = _newline(margin + step), _newline(margin)
        between = cst.SimpleWhitespace(" ") if on_one else below
        has_comma = not on_one and not isinstance(call.args[-1].value, cst.GeneratorExp)

        def edit(new: cst.Call) -> cst.Call:
            *others, last = new.args
            args = [arg.with_changes(comma=cst.Comma(whitespace_after=between)) for arg in others]
            end: dict[str, Any] = {"comma": cst.MaybeSentinel.DEFAULT}
            if has_comma:
                end = {"comma": cst.Comma(whitespace_after=closing)}
            else:
                end |= {"whitespace_after_arg": closing}
            args.append(last.with_changes(**end))
            return new.with_changes(whitespace_before_args=below, args=args)

        return call, edit

    def _with_last_below(self, call: cst.Call) -> _Edit | None:
        """The last argument of several on the line below them, of a call that has lines already."""
        here = [n for n, arg in enumerate(call.args) if self._is_here(arg)]
        margin = self._margin(call)
        if len(here) < 2 or margin is None or self.source.place(call).start.line == self.number:
            return None
        before, last = call.args[here[-2]], call.args[here[-1]]
        place = self.source.place(last)
        is_last = place.end.line == self.number and not self.text[place.end.column :].strip(",) ")
        if not is_last or not isinstance(before.comma, cst.Comma):
            return None
        below = before.comma.with_changes(whitespace_after=_newline(margin))
        return before, lambda new: new.with_changes(comma=below)

    def _is_here(self, node: cst.CSTNode) -> bool:
        return self.source.place(node).start.line == self.number

    def _code(self, node: cst.CSTNode) -> str:
        return self.source.module.code_for_node(node)

    @property
    def _indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip())]

    def _step(self) -> str:
        return self.source.module.default_indent

    def _margin(self, node: cst.CSTNode) -> str | None:
        """The line's indentation beyond that of the block, which LibCST adds by itself."""
        blocks = [
            each for each in self.source.ancestors(node) if isinstance(each, cst.IndentedBlock)
        ]
        default = self.source.module.default_indent
        block = "".join(default if b.indent is None else b.indent for b in reversed(blocks))
        return self._indent.removeprefix(block) if self._indent.startswith(block) else None


def _newline(margin: str) -> cst.ParenthesizedWhitespace:
    return cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(margin))
