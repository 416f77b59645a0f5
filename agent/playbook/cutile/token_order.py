"""Let the stores of a loop overtake one another.

When: a cuTile kernel with a loop that stores a tile at a sum of its variable and a value of before
    the loop: `for i in range(n): ... ct.store(y, index=(first + i,), ...)`. cuda-tile orders such
    stores one after the other by tokens. It lets them overtake one another when the index is the
    loop's own variable, the store is the only access to its array in the loop, and it is a
    `ct.store` and no `ct.scatter`.
Do: count the loop from `first` to `first + n`, use its variable as the index, and compute `i` from
    it. Stores by `ct.scatter` become eligible through gather-to-load.
Risk: none to results. There is no public switch for the order itself; the environment variable
    `CUDA_TILE_TESTING_DISABLE_TOKEN_ORDER` is for tests of the compiler, and drops orders that
    are needed.
Source: TileGym's cuTile playbook, item J. The rule is that of the token pass of cuda-tile 1.7.
    Compiled with it for sm_90, the example has 8 block-wide barriers before and none after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.index_ranges import holds_at, is_scalar
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.insertion import unused
from agent.syntax import Source, argument, descendants, positional

STORE = f"{CT}store"
ACCESSES = (*CUTILE.loads, *CUTILE.stores)
Edit = Callable[[Any], Any]


class TokenOrder(Optimization):
    """`for i in range(n): store(first + i)` -> `for at in range(first, first + n): store(at)`."""

    name = "token-order"
    title = "stores that may overtake"
    backend = "cutile"
    family = "order"
    priority: ClassVar = {KernelClass.MEMORY: 180, KernelClass.BALANCED: 200}
    expected = "TileGym calls it variable; only loops that wait for their stores gain"
    hypothesis = "Without a chain of tokens a store need not wait for that of the round before."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch

TILE, ROWS = 1024, 8


@ct.kernel
def double_kernel(x, y):
    first = ct.bid(0) * ROWS
    for i in range(ROWS):
        tile = ct.load(x, index=(first + i, 0), shape=(1, TILE))
        ct.store(y, index=(first + i, 0), tile=tile + tile)


def double(x):
    y = torch.empty_like(x)
    grid = (x.shape[0] // ROWS,)
    ct.launch(torch.cuda.current_stream(), grid, double_kernel, (x, y))
    return y
"""
    after = before.replace("for i in range(ROWS)", "for at in range(first, first + ROWS)").replace(
        "(first + i, 0)", "(at, 0)"
    )

    trial = TileTrial(kernel="double_kernel", arguments=((F32, 2), (F32, 2)), rows_of=8)

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Recount the loops of the launched kernels."""
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        for kernel in CUTILE.chosen(source):
            for loop in descendants(kernel.function.node.body, cst.For):
                shifted = _shifted(source, loop)
                if shifted is not None and not _nested(source, loop, edits):
                    edits |= _edits(source, kernel, shifted)
        if not edits:
            raise NotApplicable(
                "no loop stores at the sum of its variable and a value of before the loop"
            )
        return source.rewrite(edits)


@dataclass(frozen=True)
class Shifted:
    """A loop whose stores are at `first + variable`."""

    loop: cst.For
    bounds: tuple[str, ...]
    """Begin and end of the range; the step is one."""
    first: cst.BaseExpression
    sums: tuple[cst.BinaryOperation, ...]
    """Where the loop writes `first + variable`."""


def _shifted(source: Source, loop: cst.For) -> Shifted | None:
    """The loop, if a store in it is ordered only because its index is a sum."""
    if not isinstance(loop.target, cst.Name) or not isinstance(loop.iter, cst.Call):
        return None
    given = positional(loop.iter)
    if source.name(loop.iter.func) not in ("range", "builtins.range") or not 1 <= len(given) <= 2:
        return None
    if len(given) != len(loop.iter.args) or not isinstance(loop.body, cst.IndentedBlock):
        return None
    sums: list[tuple[cst.BinaryOperation, cst.BaseExpression]] = []
    for store in _lone_stores(source, loop):
        for index in _components(source, store):
            if _is_variable(source, index, loop):
                return None
            if (found := _sum(source, index, loop)) is not None:
                sums.append(found)
    if not sums or len({source.code(first) for _, first in sums}) != 1:
        return None
    first = sums[0][1]
    if not is_scalar(source, first) or not holds_at(source, first, loop):
        return None
    written = [o for o in descendants(loop.body, cst.BinaryOperation)
               if (s := _sum(source, o, loop)) is not None and s[0] is o
               and source.code(s[1]) == source.code(first)]  # fmt: skip
    if _outlives(source, loop):
        return None
    begin = "0" if len(given) == 1 else _operand(source, given[0])
    return Shifted(loop, (begin, _operand(source, given[-1])), first, tuple(written))


def _outlives(source: Source, loop: cst.For) -> bool:
    """Whether the variable may be read after the loop."""
    function = source.enclosing(loop)
    variable = cst.ensure_type(loop.target, cst.Name).value
    inside = {id(n) for n in descendants(loop, cst.Name)}
    return function is None or any(
        n.value == variable
        and id(n) not in inside
        and not isinstance(next(source.ancestors(n)), cst.AssignTarget | cst.For)
        and definition(source, variable, n) is None
        for n in descendants(function.node.body, cst.Name)
    )


def _lone_stores(source: Source, loop: cst.For) -> Iterator[cst.Call]:
    """The stores right in the loop's body that are the only access to their array in it."""
    accesses = list(CUTILE.find(source, loop.body, ACCESSES))
    for statement in loop.body.body:
        if not isinstance(statement, cst.SimpleStatementLine):
            continue
        for call in CUTILE.find(source, statement, (STORE,)):
            array = argument(call, 0, "array")
            others = [a for a in accesses if a is not call
                      and _same_array(source, argument(a, 0, "array"), array)]  # fmt: skip
            if isinstance(array, cst.Name) and not others:
                yield call


def _same_array(
    source: Source, one: cst.BaseExpression | None, other: cst.BaseExpression | None
) -> bool:
    return one is not None and other is not None and source.code(one) == source.code(other)


def _components(source: Source, store: cst.Call) -> Iterator[cst.BaseExpression]:
    index = argument(store, 1, "index")
    listed = value_of(source, index) if index is not None else None
    if isinstance(listed, cst.Tuple):
        yield from (element.value for element in listed.elements)


def _sum(
    source: Source, expression: cst.BaseExpression, loop: cst.For
) -> tuple[cst.BinaryOperation, cst.BaseExpression] | None:
    """The operation `first + variable` behind an expression, with `first`."""
    match value_of(source, expression):
        case cst.BinaryOperation(left=left, operator=cst.Add(), right=right) as operation:
            for variable, first in ((left, right), (right, left)):
                if _is_variable(source, variable, loop):
                    return operation, first
    return None


def _is_variable(source: Source, expression: cst.BaseExpression, loop: cst.For) -> bool:
    behind = value_of(source, expression)
    if not isinstance(behind, cst.Name):
        return False
    found = definition(source, behind.value, behind)
    return found is not None and found.node is loop


def _nested(source: Source, loop: cst.For, edits: dict[cst.CSTNode, Edit]) -> bool:
    """Whether a loop around this one is rewritten already, whose text this one may use."""
    return any(around in edits for around in source.ancestors(loop))


def _edits(source: Source, kernel: Kernel, shifted: Shifted) -> dict[cst.CSTNode, Edit]:
    loop = shifted.loop
    variable = cst.ensure_type(loop.target, cst.Name).value
    at = unused(kernel, "at")
    first = _operand(source, shifted.first)
    begin, end = (first if bound == "0" else f"{first} + {bound}" for bound in shifted.bounds)
    spelled = source.code(cst.ensure_type(loop.iter, cst.Call).func)
    consumed = {id(n) for s in shifted.sums for n in descendants(s, cst.Name)}
    needed = any(
        n.value == variable and id(n) not in consumed
        for n in descendants(kernel.function.node.body, cst.Name)
        if n is not loop.target and _is_variable(source, n, loop)
    )

    def edit(updated: cst.For) -> cst.For:
        body = cst.ensure_type(updated.body, cst.IndentedBlock)
        if needed:
            line = cst.parse_statement(f"{variable} = {at} - {first}")
            body = body.with_changes(body=[line, *body.body])
        return updated.with_changes(
            target=cst.Name(at),
            iter=cst.parse_expression(f"{spelled}({begin}, {end})"),
            body=body,
        )

    edits: dict[cst.CSTNode, Edit] = {s: lambda _: cst.Name(at) for s in shifted.sums}
    edits[loop] = edit
    return edits


def _operand(source: Source, expression: cst.BaseExpression) -> str:
    code = source.code(expression)
    simple = isinstance(expression, cst.Name | cst.Call | cst.Integer | cst.Attribute)
    return code if simple or expression.lpar else f"({code})"
