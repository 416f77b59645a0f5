"""Elements that are added to a list or taken out of it, and the space around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import libcst as cst

from agent.rewriting.common.formatting import STEP

Space: TypeAlias = cst.BaseParenthesizableWhitespace


def uncommented(space: Space) -> Space:
    """Whitespace without its comments."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    line = space.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    return space.with_changes(first_line=line, empty_lines=[])


def with_elements(added: Sequence[str]) -> Callable[[cst.List], cst.List]:
    """The edit of a list that appends elements, each on a line; comments stay where they are."""
    elements = [cst.Element(cst.parse_expression(text)) for text in added]

    def edit(listed: cst.List) -> cst.List:
        opening, closing = listed.lbracket.whitespace_after, listed.rbracket.whitespace_before
        whole, closing = _appended(listed.elements, elements, opening, closing)
        return listed.with_changes(
            elements=whole, rbracket=listed.rbracket.with_changes(whitespace_before=closing)
        )

    return edit


def with_entries(added: Mapping[str, str]) -> Callable[[cst.Dict], cst.Dict]:
    """The same of a table: the text of a key -> that of its value."""
    entries = [
        cst.DictElement(cst.parse_expression(key), cst.parse_expression(value))
        for key, value in added.items()
    ]

    def edit(table: cst.Dict) -> cst.Dict:
        opening, closing = table.lbrace.whitespace_after, table.rbrace.whitespace_before
        whole, closing = _appended(table.elements, entries, opening, closing)
        return table.with_changes(
            elements=whole, rbrace=table.rbrace.with_changes(whitespace_before=closing)
        )

    return edit


def _appended(
    present: Sequence[Any],
    added: Sequence[Any],
    opening: Space,
    closing: Space,
) -> tuple[list[Any], Space]:
    """The elements with others behind them, and what is before the closing bracket then."""
    *before, last = present
    space = uncommented(
        before[-1].comma.whitespace_after
        if before and isinstance(before[-1].comma, cst.Comma)
        else opening
    )
    if not isinstance(space, cst.ParenthesizedWhitespace):
        space = cst.ParenthesizedWhitespace(
            indent=True, last_line=cst.SimpleWhitespace(" " * 2 * STEP)
        )
        closing = space.with_changes(last_line=cst.SimpleWhitespace(" " * STEP))
    between = cst.Comma(whitespace_after=space)
    joint = between
    if isinstance(closing, cst.ParenthesizedWhitespace):
        commented = closing.with_changes(indent=space.indent, last_line=space.last_line)
        joint = cst.Comma(whitespace_after=commented)
        closing = uncommented(closing)
    *middle, end = added
    whole = [
        *before,
        last.with_changes(comma=joint),
        *(element.with_changes(comma=between) for element in middle),
        end.with_changes(comma=cst.Comma()),
    ]
    return whole, closing


def with_only(given: cst.List, left: Sequence[cst.BaseElement]) -> Callable[[cst.List], cst.List]:
    """The edit of a list that leaves it these of its elements, with their comments."""

    def edit(listed: cst.List) -> cst.List:
        *before, last = left
        end, closing = listed.elements[-1], listed.rbracket.whitespace_before
        if last is not given.elements[-1] and isinstance(last.comma, cst.Comma):
            behind = last.comma.whitespace_after
            if isinstance(behind, cst.ParenthesizedWhitespace) and isinstance(
                closing, cst.ParenthesizedWhitespace
            ):
                commented = behind.with_changes(indent=closing.indent, last_line=closing.last_line)
                closing = commented
            last = last.with_changes(comma=end.comma)
        return listed.with_changes(
            elements=[*before, last],
            rbracket=listed.rbracket.with_changes(whitespace_before=closing),
        )

    return edit
