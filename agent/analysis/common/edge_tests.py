"""When the mask of a tile in a loop removes something of it, as a comparison of two numbers.

`columns <= rows` holds for a whole tile as long as the last of its columns is no greater than the
first of its rows: left of the diagonal of a causal attention, and of all tiles but the last of a
row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import libcst as cst

from agent.analysis.common.derived_names import is_no_variable
from agent.analysis.common.index_runs import IndexRange, NotRegular, indexed
from agent.analysis.common.masks import conditions, ordered
from agent.analysis.common.reaching_definitions import binds, value_of
from agent.syntax import Source, descendants

EITHER = " or "
"""Joins the tests of a mask with several conditions."""
ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer)


@dataclass(frozen=True)
class EdgeTest:
    """A condition of a mask."""

    runs: tuple[IndexRange, IndexRange]
    """The side that is to be smaller, and the other."""
    text: str
    """Code that is true where the condition may not hold for the whole of a tile."""
    of_a_step: bool
    """Whether that may change from one step of the loop to the next."""


@dataclass(frozen=True)
class NumberReading:
    """How a language's element numbers are read."""

    run_of: Callable[[Source, cst.BaseExpression], IndexRange]
    """The run that an expression is. Raises `NotRegular` where it is none."""
    holds_at: Callable[[Source, cst.BaseExpression, cst.CSTNode], bool]
    """Whether an expression has the same value at another place."""
    pure: Callable[[Source, cst.BaseExpression], bool]
    """Whether an expression may be evaluated once more: it reads no memory, and changes none."""


def edge_tests(
    source: Source,
    loop: cst.For,
    line: cst.CSTNode,
    mask: cst.BaseExpression,
    reading: NumberReading,
) -> list[EdgeTest]:
    """Those of a mask, of which one is true where it removes something.

    Args:
        source: the file.
        loop: the one around the mask.
        line: the statement that masks.
        mask: the condition that it masks by.
        reading: of the kernel's language.

    Raises:
        NotRegular: that does not follow from the text.
    """
    found = [_test(source, loop, line, each, reading) for each in conditions(source, mask)]
    if not found:
        raise NotRegular("it has no condition")
    if not any(test.of_a_step for test in found):
        raise NotRegular("it is the same in each step of the loop")
    return found


def asks_for(
    source: Source, line: cst.If, mask: cst.BaseExpression, reading: NumberReading
) -> bool:
    """Whether an `if` asks just when a mask in its block removes something.

    That is what follows from the mask's own text, so that it holds for tiles of any size.
    """
    loop = next((a for a in source.ancestors(line) if isinstance(a, cst.For)), None)
    if line.orelse is not None or loop is None or not _only_masks(source, line):
        return False
    try:
        tests = edge_tests(source, loop, line.body.body[-1], mask, reading)
    except NotRegular:
        return False
    asked = source.code(line.test.with_changes(lpar=[], rpar=[]))
    return asked.split() == EITHER.join(test.text for test in tests).split()


def _only_masks(source: Source, line: cst.If) -> bool:
    """Whether what is above the last statement of an `if` gives names that nothing else reads."""
    function, block = source.enclosing(line), line.body.body
    for statement in block[:-1]:
        match statement:
            case cst.SimpleStatementLine(
                body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))])]
            ) if function is not None:
                named = (n for n in descendants(function.node, cst.Name) if n.value == name)
                reads = (n for n in named if not is_no_variable(source, n))  # as in `mask=`
                if not all(line.body in source.ancestors(read) for read in reads):
                    return False
            case _:
                return False
    return True


def loop_of(source: Source, call: cst.Call) -> cst.For | None:
    """The loop around a mask; none that is in a `while`, a lambda or a function inside."""
    kinds = (cst.For, cst.While, cst.Lambda, cst.BaseComp, cst.FunctionDef)
    found = next((a for a in source.ancestors(call) if isinstance(a, kinds)), None)
    return found if isinstance(found, cst.For) else None


def asked_in(source: Source, loop: cst.For, line: cst.CSTNode) -> int:
    """The line of an `if` inside the loop that tells steps apart; 0 where there is none."""
    for around in source.ancestors(line):
        if around is loop:
            break
        if isinstance(around, cst.If) and is_of_a_step(loop, around.test):
            return source.line(around)
    return 0


def is_of_a_step(loop: cst.For, expression: cst.BaseExpression) -> bool:
    """Whether something depends on what the loop assigns, as far as its names tell."""
    return any(binds(loop, name.value) for name in descendants(expression, cst.Name))


def _test(
    source: Source,
    loop: cst.For,
    line: cst.CSTNode,
    condition: cst.BaseExpression,
    reading: NumberReading,
) -> EdgeTest:
    compared = condition
    if isinstance(condition, cst.Subscript):  # `(columns < n)[None, :]`
        compared = value_of(source, condition.value)
    if (sides := ordered(compared)) is None:
        raise NotRegular(f"it asks `{source.code(compared)}`")
    small, large, is_equal = sides
    added, taken = _terms(source, small, reading)
    more, less = _terms(source, large, reading)
    low, high = _joined([*added, *less]), _joined([*more, *taken])
    if isinstance(condition, cst.Subscript):
        low, high = (r if r.length is None else indexed(source, condition, r) for r in (low, high))
    if low.length is not None and high.length is not None and low.place == high.place:
        raise NotRegular("it compares two runs along one axis")
    most = [*low.starts, *([low.length] if low.length is not None else [])]
    for part in (*most, *high.starts):
        if not reading.pure(source, part):
            raise NotRegular(f"`{source.code(part)}` may be another number when it is asked again")
        if not reading.holds_at(source, part, line):
            raise NotRegular(f"`{source.code(part)}` is another number by then")
    # the last of the smaller side, or one more where it is a tile, against the least of the other
    last, least = _sum(source, most), _sum(source, high.starts)
    if low.length is None:
        text = f"{last} > {least}" if is_equal else f"{last} >= {least}"
    else:
        text = f"{last} > {least} + 1" if is_equal else f"{last} > {least}"
    of_a_step = any(is_of_a_step(loop, part) for part in (*low.starts, *high.starts))
    return EdgeTest((low, high), text, of_a_step)


def _terms(
    source: Source, side: cst.BaseExpression, reading: NumberReading
) -> tuple[list[IndexRange], list[IndexRange]]:
    """The runs and single numbers that a side adds up, and those that it takes off.

    What is a run as it stands stays one, so that its start is written as the author did.
    """
    try:
        return [reading.run_of(source, side)], []
    except NotRegular:
        match value_of(source, side):
            case cst.BinaryOperation(left=left, operator=operator, right=right) if isinstance(
                operator, cst.Add | cst.Subtract
            ):
                added, taken = _terms(source, left, reading)
                more, less = _terms(source, right, reading)
                if isinstance(operator, cst.Subtract):
                    more, less = less, more
                return [*added, *more], [*taken, *less]
        raise


def _joined(runs: Sequence[IndexRange]) -> IndexRange:
    """The sum of single numbers and of one run at most."""
    long = [run for run in runs if run.length is not None]
    if len(long) > 1:
        raise NotRegular("it adds two runs")
    given = (start for run in runs for start in run.starts)
    starts = tuple(s for s in given if not (isinstance(s, cst.Integer) and s.evaluated_value == 0))
    return replace(long[0], starts=starts) if long else IndexRange(starts=starts, rank=0)


def _sum(source: Source, terms: Sequence[cst.BaseExpression]) -> str:
    """The code of a sum; nothing gives 0."""
    texts = [
        code if isinstance(term, ATOMS) or term.lpar or _is_product(term) else f"({code})"
        for term in terms
        for code in [source.code(term)]
    ]
    return " + ".join(texts) or "0"


def _is_product(node: cst.BaseExpression) -> bool:
    kinds = (cst.Multiply, cst.Add)
    return isinstance(node, cst.BinaryOperation) and isinstance(node.operator, kinds)
