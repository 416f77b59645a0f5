"""Breaks lines that an edit has made too long.

A value is broken before its operators, a call at its arguments, and a tuple or a list that holds
calls at its elements.
How long is too long the file tells: its authors' widest line, within reason. A line that was only
moved to the right, as by a loop around it, stays as they wrote it. A line that only the comment
behind it makes too long stays whole, and the comment goes above it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from agent.rewriting.common.broken_values import (
    before_operators,
    ends_in_its_call,
    in_parentheses,
    operands,
    value_of,
)
from agent.syntax import Source
from agent.syntax.tree import descendants

LEAST, MOST = 88, 120
"""What a line may have in any file, and in none."""
LONGEST_OPERATOR = len("else ")
"""But for `not in` and `is not`."""
PASSES = 3
"""A part of a broken line may be too long, too."""

_Edit = tuple[cst.CSTNode, Callable[[Any], cst.CSTNode]]
_Brackets = cst.Call | cst.Tuple | cst.List


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
    """What shortens each of the long lines: its comment above it, or what is on it broken."""
    for statement in descendants(source.module, cst.SimpleStatementLine):
        place = source.place(statement)
        number, comment = place.start.line, statement.trailing_whitespace.comment
        if number in long and number == place.end.line and comment is not None:
            code = lines[number - 1].removesuffix(comment.value).rstrip()
            if len(code) <= width:
                long = [each for each in long if each != number]
                yield statement, _with_comment_above
    for holder in _all(source):
        value = value_of(holder)
        if value is None or (number := source.place(value).start.line) not in long:
            continue
        line = _Line(source, number, lines[number - 1], width)
        if (broken := line.at_operators(holder, value)) is not None:
            long = [each for each in long if each != number]
            yield broken
    brackets = _brackets(source, long)
    for number in long:
        line = _Line(source, number, lines[number - 1], width)
        edit = next((found for each in brackets[number] if (found := line.broken(each))), None)
        if edit is not None:
            yield edit


def _all(source: Source) -> Iterator[cst.CSTNode]:
    return descendants(source.module, cst.CSTNode)  # type: ignore[type-abstract]


def _brackets(source: Source, long: list[int]) -> dict[int, list[_Brackets]]:
    """Line -> what may be opened on it, from the outermost inwards.

    Of a call and the method of its result, the one with the longer arguments comes first.
    """
    found: dict[int, list[_Brackets]] = defaultdict(list)
    seen: set[cst.CSTNode] = set()
    for node in _all(source):
        if not isinstance(node, cst.Call | cst.Tuple | cst.List) or node in seen:
            continue
        place = source.place(node)
        if all(not place.start.line <= number <= place.end.line for number in long):
            continue
        opened: list[_Brackets] = []
        if isinstance(node, cst.Call):
            seen.update(chain := list(_chain(node)))
            lengths = {call: _length(source, call) for call in chain if call.args}
            opened += [call for call, _ in sorted(lengths.items(), key=lambda c: -c[1])]
        elif _holds_calls(source, node):
            opened.append(node)
        for each in opened if not _is_in_string(source, node) else ():
            first, last = source.place(each).start.line, source.place(each).end.line
            for number in long:
                if first <= number <= last:
                    found[number].append(each)
    return found


def _holds_calls(source: Source, node: cst.Tuple | cst.List) -> bool:
    """Whether a tuple or list of a value holds calls, which would be opened in its stead."""
    is_target = isinstance(next(source.ancestors(node), None), cst.AssignTarget)
    has_brackets = isinstance(node, cst.List) or len(node.lpar) == 1
    calls = (call for each in _parts(node) for call in descendants(each, cst.Call))
    return has_brackets and not is_target and any(call.args for call in calls)


def _length(source: Source, call: cst.Call) -> int:
    return sum(len(source.code(arg)) for arg in call.args)


def _chain(call: cst.Call) -> Iterator[cst.Call]:
    """A call, and the one of whose result it is a method."""
    here: cst.BaseExpression = call
    while isinstance(here, cst.Call):
        yield here
        here = here.func.value if isinstance(here.func, cst.Attribute) else here.func


def _parts(node: _Brackets) -> Sequence[cst.Arg | cst.BaseElement]:
    return node.args if isinstance(node, cst.Call) else node.elements


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

    def at_operators(self, statement: cst.CSTNode, value: cst.BaseExpression) -> _Edit | None:
        """The value of a statement in parentheses, with a line for each operand if need be."""
        margin = self._margin(value)
        places = [self.source.place(value)]
        if isinstance(statement, cst.SimpleStatementLine):
            places.append(self.source.place(statement))
        is_here = all(place.start.line == place.end.line for place in places)
        if not is_here or margin is None or ends_in_its_call(value):
            return None
        new = self._in_parentheses(value, margin)
        return (value, lambda _: new) if new is not None else None

    def _in_parentheses(
        self, value: cst.BaseExpression, margin: str, deeper: int = 0
    ) -> cst.BaseExpression | None:
        """A value with operators on lines of its own, below one that many steps from this one."""
        if not operands(value) or len(value.lpar) > 1:
            return None
        step = self._step()
        outer = margin + deeper * step
        below, closing = _newline(outer + step), _newline(outer)
        block = len(self._indent) - len(margin)
        room = self.width - block - len(outer + step) - LONGEST_OPERATOR
        for broken in (value, before_operators(value, below, room)):
            new = in_parentheses(broken, below, closing)
            _, *lines = self._code(new).splitlines()
            if block + max(map(len, lines)) <= self.width:
                return new
        return None

    def broken(self, node: _Brackets) -> _Edit | None:
        """How it is broken at brackets, which are asked from the outermost inwards."""
        place = self.source.place(node)
        if place.start.line == place.end.line:
            return self._broken_open(node)
        return self._with_last_below(node) if isinstance(node, cst.Call) else None

    def _broken_open(self, node: _Brackets) -> _Edit | None:
        """Its arguments on a line of their own, or on one each."""
        margin, step = self._margin(node), self._step()
        parts = _parts(node)
        written = [self._code(part.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for part in parts]
        first = self.source.place(parts[0]).start.column
        rest = len(self.text) - self.source.place(node).end.column + 1
        inner = len(self._indent) + len(step)
        is_open = first <= self.width and len(self._indent) + rest <= self.width
        if margin is None or not is_open:
            return None
        wrapped = {
            number: self._in_parentheses(part.value, margin, deeper=1)
            for number, (part, text) in enumerate(zip(parts, written, strict=True))
            if inner + len(text) + 1 > self.width
        }
        if any(value is None for value in wrapped.values()):
            return None
        on_one = inner + len(", ".join(written)) <= self.width
        below, closing = _newline(margin + step), _newline(margin)
        between = cst.SimpleWhitespace(" ") if on_one else below
        is_single = isinstance(node, cst.Tuple) and len(parts) == 1
        is_generator = isinstance(parts[-1].value, cst.GeneratorExp)
        has_comma = is_single or (not on_one and not is_generator)

        def edit(new: Any) -> cst.CSTNode:
            *others, last = [
                part.with_changes(value=wrapped.get(number, part.value))
                for number, part in enumerate(_parts(new))
            ]
            comma: Any = cst.MaybeSentinel.DEFAULT
            if has_comma:
                comma = cst.Comma(whitespace_after=closing)
            changed = [
                part.with_changes(comma=cst.Comma(whitespace_after=between)) for part in others
            ]
            changed.append(last.with_changes(comma=comma))
            return _opened(new, changed, below, None if has_comma else closing)

        return node, edit

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


def _opened(
    node: Any,
    parts: list[Any],
    below: cst.ParenthesizedWhitespace,
    closing: cst.ParenthesizedWhitespace | None,
) -> cst.CSTNode:
    """Brackets with what is between them on lines of its own; the last comma may close them."""
    end = cst.SimpleWhitespace("") if closing is None else closing
    if isinstance(node, cst.Call):
        parts[-1] = parts[-1].with_changes(whitespace_after_arg=end)
        return node.with_changes(whitespace_before_args=below, args=parts)
    if isinstance(node, cst.List):
        return node.with_changes(
            lbracket=node.lbracket.with_changes(whitespace_after=below),
            rbracket=node.rbracket.with_changes(whitespace_before=end),
            elements=parts,
        )
    return in_parentheses(node.with_changes(elements=parts), below, end)
