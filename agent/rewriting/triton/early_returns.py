"""Early returns of a Triton kernel, written as branches, so that its body can stand in a loop."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from agent.analysis.common.reaching_definitions import binds
from agent.syntax import descendants

Statement = cst.BaseStatement


def early_returns(body: cst.IndentedBlock) -> tuple[cst.Return, ...]:
    """What `without_returns` takes out: each ends an `if` of the body without `else`, or all."""
    found = [_early_return(line) for line in body.body]
    return tuple(end for end in (*found, _last_return(body.body)) if end is not None)


def changed_behind(body: cst.IndentedBlock) -> str | None:
    """A name that is bound before an early return and again behind it, if there is one.

    In a branch it could not be given a value of another type or shape.
    """
    for place, line in enumerate(body.body):
        if _early_return(line) is not None:
            before, behind = body.body[:place], body.body[place + 1 :]
            for name in {node.value for each in before for node in descendants(each, cst.Name)}:
                if any(binds(b, name) for b in before) and any(binds(b, name) for b in behind):
                    return name
    return None


def beyond(line: cst.CSTNode, variable: str, end: str) -> bool:
    """Whether a line is `if variable >= end: return`, needless in a loop up to that end."""
    if not isinstance(line, cst.If) or _early_return(line) is None or _before_return(line):
        return False
    match line.test:
        case cst.Comparison(
            left=cst.Name(value=name),
            comparisons=[cst.ComparisonTarget(cst.GreaterThanEqual(), cst.Name(value=other))],
        ):
            return (name, other) == (variable, end)
    return False


def without_returns(lines: Sequence[Statement]) -> list[Statement]:
    """The same lines, where what follows an early return stands in a branch of its own.

    `if n <= start: return` and what follows become `if not n <= start:` with what follows in it.
    """
    if _last_return(lines) is not None:
        small = cst.ensure_type(lines[-1], cst.SimpleStatementLine).body[:-1]
        last = [cst.SimpleStatementLine(_unjoined(small))] if small else []
        lines = [*lines[:-1], *last]
    for place, line in enumerate(lines):
        if isinstance(line, cst.If) and _early_return(line) is not None:
            first, rest = _before_return(line), without_returns(lines[place + 1 :])
            return [*lines[:place], *_branches(line, first, rest)]
    return list(lines)


def _early_return(line: cst.CSTNode) -> cst.Return | None:
    if not isinstance(line, cst.If) or line.orelse is not None:
        return None
    returns = list(descendants(line.body, cst.Return))
    last = line.body.body[-1] if line.body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    if len(returns) != 1 or returns[0] is not last or returns[0].value is not None:
        return None
    return returns[0]


def _last_return(lines: Sequence[cst.CSTNode]) -> cst.Return | None:
    """The one that says what the end of a kernel says without it."""
    last = lines[-1] if lines else None
    if not isinstance(last, cst.SimpleStatementLine) or len(lines) + len(last.body) < 3:
        return None  # nothing would be left
    end = last.body[-1]
    return end if isinstance(end, cst.Return) and end.value is None else None


def _before_return(line: cst.If) -> list[Statement]:
    """What such an `if` does before it returns."""
    if isinstance(line.body, cst.SimpleStatementSuite):
        small = line.body.body[:-1]
        return [cst.SimpleStatementLine(_unjoined(small))] if small else []
    *lines, last = line.body.body
    small = cst.ensure_type(last, cst.SimpleStatementLine).body[:-1]
    more = [cst.SimpleStatementLine(_unjoined(small))] if small else []
    return [*(each for each in lines if isinstance(each, cst.BaseStatement)), *more]


def _unjoined(small: Sequence[cst.BaseSmallStatement]) -> list[cst.BaseSmallStatement]:
    """Statements of one line, without the semicolon behind the last."""
    last: cst.BaseSmallStatement = small[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return [*small[:-1], last]


def _branches(line: cst.If, first: list[Statement], rest: list[Statement]) -> list[Statement]:
    if not rest:
        return [line.with_changes(body=cst.IndentedBlock(first))] if first else []
    if first:
        other = cst.Else(body=cst.IndentedBlock(rest))
        return [line.with_changes(body=cst.IndentedBlock(first), orelse=other)]
    test = line.test
    if isinstance(test, cst.BooleanOperation | cst.IfExp | cst.NamedExpr) and not test.lpar:
        test = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    negated = cst.UnaryOperation(cst.Not(), test)
    return [
        line.with_changes(
            test=negated,
            body=cst.IndentedBlock(rest),
            whitespace_before_test=cst.SimpleWhitespace(" "),
        )
    ]
