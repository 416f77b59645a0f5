"""By which operation the rounds of a loop are put together: that of the reduction, or another one.

The sum of all sums is the sum of the axis, and the greatest of all maxima its maximum. A sum of
maxima, or of the means of blocks, and the maximum of what each place of a block adds up, are other
values with other blocks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import SHAPING
from agent.analysis.common.induction import induction_variables
from agent.analysis.common.rounds import Round, is_product, rounds_of
from agent.syntax import argument, assigned, children, descendants, names_in

_CHOOSING = {"maximum": "max", "minimum": "min", "max": "max", "min": "min"}
"""What chooses of two values -> the reduction that it goes on with."""
_REDUCING = frozenset({"argmax", "argmin", "cumprod", "max", "min", "prod", "sum", "xor_sum"})


def combined_otherwise(flow: Flow) -> str | None:
    """Why another cut of an axis gives another result; None where all rounds make one reduction."""
    for found in rounds_of(flow):
        numbers = induction_variables(flow, found.loop)
        for name, value in found.values:
            if name in found.kept and _differs(found, name, value, numbers):
                line = flow.source.line(value)
                return f"line {line} puts together what rounds reduce by another operation"
        if (call := _of_lanes(found)) is not None:
            line = flow.source.line(call)
            return f"line {line} reduces what the rounds put together by another operation"
    return None


@dataclass
class _Made:
    """What a value is made of."""

    kinds: set[str] = field(default_factory=set)
    """The reductions by their bare names, as far as no other reduction takes them in."""
    names: set[str] = field(default_factory=set)
    """The names that were looked for."""
    linear: bool = True
    """No more than sums, and products with what is neither, are made of them."""

    @property
    def found(self) -> bool:
        """Whether there is anything of what was looked for."""
        return bool(self.kinds or self.names)


def _made(
    flow: Flow,
    node: cst.CSTNode,
    reductions: Collection[cst.CSTNode],
    names: Collection[str],
    behind: dict[str, cst.BaseExpression],
) -> _Made:
    """What a value is made of: reductions and names, also behind other names."""
    source, dialect = flow.source, flow.dialect
    if isinstance(node, cst.Comparison):
        return _Made()
    if isinstance(node, cst.Name):
        if node.value in names:
            return _Made(names={node.value})
        value = behind.get(node.value)
        rest = {name: v for name, v in behind.items() if name != node.value}
        return _Made() if value is None else _made(flow, value, reductions, names, rest)
    called = (dialect.called(source, node) or "") if isinstance(node, cst.Call) else ""
    bare = called.rpartition(".")[2]
    if node in reductions:
        products = {each for each in reductions if is_product(flow, each)} - {node}
        parts = [_made(flow, each, products, (), behind) for each in children(node)]
        kind = "sum" if is_product(flow, node) else bare
        return _Made({kind}, linear=all(p.linear and p.kinds <= {kind} for p in parts))
    if called in dialect.loads:
        return _Made()
    if isinstance(node, cst.Attribute | cst.Arg):
        return _made(flow, node.value, reductions, names, behind)
    parts = [_made(flow, child, reductions, names, behind) for child in children(node)]
    whole = _Made(
        set().union(*(part.kinds for part in parts)),
        set().union(*(part.names for part in parts)),
        all(part.linear for part in parts),
    )
    if isinstance(node, cst.Call) and whole.found:
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else bare
        whole.linear &= method in SHAPING
    if isinstance(node, cst.BinaryOperation) and whole.found:
        left, right = (_made(flow, side, reductions, names, behind).found
                       for side in (node.left, node.right))  # fmt: skip
        if isinstance(node.operator, cst.Multiply):
            whole.linear &= not (left and right)
        elif isinstance(node.operator, cst.Divide):
            whole.linear &= not right
        else:
            whole.linear &= isinstance(node.operator, cst.Add | cst.Subtract)
    return whole


def _combined(
    found: Round, name: str, value: cst.BaseExpression
) -> tuple[str, cst.BaseExpression] | None:
    """The reduction that a name goes on with in a round, and what it takes in."""
    if value in found.augmented:
        operator = found.augmented[value].operator
        return ("sum", value) if isinstance(operator, cst.AddAssign | cst.SubtractAssign) else None
    if isinstance(value, cst.BinaryOperation):
        sides = [value.left, value.right]
        if isinstance(value.operator, cst.Add):
            others = [side for side in sides if name not in names_in(side)]
            return ("sum", others[0]) if len(others) == 1 else None
        return None
    if isinstance(value, cst.Call):
        called = found.flow.called(value)
        reduction = _CHOOSING.get(called.rpartition(".")[2])
        given = [argument(value, place, "") for place in (0, 1)]
        others = [g for g in given if g is not None and name not in names_in(g)]
        if reduction is not None and len(others) == 1 and None not in given:
            return reduction, others[0]
    return None


def _differs(found: Round, name: str, value: cst.BaseExpression, numbers: Collection[str]) -> bool:
    """Whether a name takes in reductions of another kind, or with the number of the round.

    Not where what other names keep of the blocks before corrects it, as in a softmax in one pass.
    """
    combined = _combined(found, name, value)
    if combined is None:
        return False
    reduction, taken = combined
    others, flow = {*found.kept} - {name}, found.flow
    behind = _single(found.values, {*found.kept, *numbers})
    made = _made(flow, taken, found.reductions, {*others, *numbers}, behind)
    if made.names & others or not made.kinds:
        return False
    if made.names or any(kind in _REDUCING and kind != reduction for kind in made.kinds):
        return True
    return reduction == "sum" and "sum" in made.kinds and not made.linear


def _of_lanes(found: Round) -> cst.Call | None:
    """A reduction behind the loop of what is put together place by place, by another operation."""
    flow = found.flow
    place, below = flow.source.place, {*descendants(found.loop, cst.Call)}
    lanes: dict[str, str | None] = {}
    for name in found.kept:
        steps = [_combined(found, name, value) for other, value in found.values if other == name]
        kinds = {step[0] if step is not None else None for step in steps}
        if _is_begun_as_a_block(found, name):
            lanes[name] = next(iter(kinds)) if len(kinds) == 1 else None
    behind = _single(
        [(target.value, value) for target, value in assigned(flow.body)
         if isinstance(target, cst.Name)],
        lanes,
    )  # fmt: skip
    for call in flow.reductions():
        after = place(call).start.line > place(found.loop).end.line and call not in below
        if not after or not call.args:
            continue
        kind = flow.called(call).rpartition(".")[2]
        made = _made(flow, call.args[0].value, (), lanes, behind)
        of = {lanes[name] for name in made.names}
        if len(made.names) != 1 or None in of or kind not in _REDUCING:
            continue
        if kind not in of or (kind == "sum" and not made.linear):
            return call
    return None


def _is_begun_as_a_block(found: Round, name: str) -> bool:
    """Whether a name begins as a tile out of nothing whose shape the constant is part of."""
    flow, inside = found.flow, {id(value) for _, value in found.values}
    shapes = {id(shape) for shape in flow.shapes}
    return any(
        isinstance(target, cst.Name)
        and target.value == name
        and id(value) not in inside
        and isinstance(value, cst.Call)
        and (called := flow.called(value)) in flow.dialect.accumulators
        and id(flow.dialect.shapes[called or ""].of(value)) in shapes
        for target, value in assigned(flow.body)
    )


def _single(
    values: Collection[tuple[str, cst.BaseExpression]], but: Collection[str]
) -> dict[str, cst.BaseExpression]:
    """The names that are assigned once, with their values."""
    names = [name for name, _ in values]
    return {n: value for n, value in values if names.count(n) == 1 and n not in but}
