"""Which elements a round of a loop reads and writes, and that no other round writes them.

They are those at `cols = start + tl.arange(0, BLOCK)` where `start` counts by `BLOCK`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.by_program import by_program, names_by_program
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.aliasing import may_share
from agent.analysis.triton.counting_loops import Counting, depends
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import is_scalar, span_of
from agent.analysis.triton.pointers import leftmost
from agent.syntax import Source, argument, assigned, descendants, names_in

LOAD, STORE = "triton.language.load", "triton.language.store"


@dataclass(frozen=True)
class _Address:
    base: str
    """The parameter that it begins at."""
    block: str | None
    """The run of elements that only this round has; None where others may have some of them."""
    others: tuple[str, ...]
    """What else is added up, the same in each round."""
    by_program: bool
    """Whether it is another one in each program."""

    def is_apart(self, other: _Address) -> bool:
        """Whether it is another round's only where the other address is, in the same memory."""
        same = (self.base, self.block, self.others) == (other.base, other.block, other.others)
        return same and self.block is not None


def _collide(source: Source, kernel: Kernel, one: _Address, written: _Address) -> bool:
    """Whether a round may touch by one address what another round writes.

    What all programs read and one of them writes is another value whatever the order of rounds.
    """
    if one.is_apart(written) or (written.by_program and not one.by_program):
        return False
    return not kernel.launches or may_share(source, kernel, one.base, written.base)


def check_memory(source: Source, kernel: Kernel, counted: Counting) -> None:
    """Raise `NotApplicable` where a round may write what another one reads or writes."""
    body = counted.loop.body
    written: list[_Address] = []
    for store in TRITON.find(source, body, (STORE,)):
        address = _address(source, kernel, counted, store)
        if address.block is None:
            line = source.line(store)
            raise NotApplicable(
                f"that each round writes other elements at line {line} is not shown"
            )
        for other in written:
            if _collide(source, kernel, address, other):
                line = source.line(store)
                raise NotApplicable(f"a round may write at line {line} what another one writes")
        written.append(address)
    before = list(_written_before(source, kernel, counted.loop))
    for load in TRITON.find(source, body, (LOAD,)):
        address = _address(source, kernel, counted, load)
        for earlier, base in before:
            if base is None or not kernel.launches or may_share(source, kernel, address.base, base):
                line = source.line(load)
                raise NotApplicable(
                    f"line {line} may read what line {source.line(earlier)} has just written, and "
                    "other threads than those that read it"
                )
        for other in written:
            if _collide(source, kernel, address, other):
                line = source.line(load)
                raise NotApplicable(f"a round may read at line {line} what another one writes")


def _written_before(
    source: Source, kernel: Kernel, loop: cst.For
) -> Iterable[tuple[cst.Call, str | None]]:
    """What the kernel writes on its way to a loop, and where; nothing orders threads in between.

    From the front a block is read long after it was written, from the end right after.
    """
    start = source.place(loop).start
    for store in TRITON.find(source, kernel.function.node.body, TRITON.stores):
        place = source.place(store).start
        if (place.line, place.column) > (start.line, start.column) or _leaves(source, store, loop):
            continue
        pointer = argument(store, 0, "pointer")
        yield store, _base(source, kernel, pointer) if pointer is not None else None


def _leaves(source: Source, node: cst.CSTNode, loop: cst.For) -> bool:
    """Whether the kernel ends behind a node, in the branch that it stands in."""
    around = set(source.ancestors(loop))
    for block in source.ancestors(node):
        if block in around:
            return False
        if isinstance(block, cst.IndentedBlock) and any(
            isinstance(small, cst.Return)
            for line in block.body
            if isinstance(line, cst.SimpleStatementLine)
            for small in line.body
        ):
            return True
    return False


def _address(source: Source, kernel: Kernel, counted: Counting, access: cst.Call) -> _Address:
    pointer = argument(access, 0, "pointer")
    base = _base(source, kernel, pointer) if pointer is not None else None
    if pointer is None or base is None:
        raise NotApplicable(f"the base of line {source.line(access)} is not known")
    blocks: list[str | None] = []
    others: list[str] = []
    for term in _terms(source, base, pointer):
        if (block := _block_of(source, counted, term)) is not None:
            blocks.append(block)
        elif depends(counted, term) or not is_scalar(source, term):
            blocks += [None, None]
        else:
            others.append(source.code(term))
    block = blocks[0] if len(blocks) == 1 else None
    mine = by_program(TRITON, source, pointer, names_by_program(TRITON, source, kernel.function))
    return _Address(base, block, tuple(sorted(others)), mine)


def _base(source: Source, kernel: Kernel, pointer: cst.BaseExpression) -> str | None:
    """The parameter that an address begins at; None where another may have taken its place."""
    body = kernel.function.node.body
    parameters = {p.name.value for p in kernel.function.parameters}
    for _ in range(1 + len(list(assigned(body)))):
        pointer = leftmost(source, pointer)
        if not isinstance(pointer, cst.Name):
            return None
        if pointer.value in parameters:
            break
        found = definition(source, pointer.value, pointer)
        if found is None or found.value is None or found.index is not None:
            return None
        pointer = found.value
    else:
        return None
    base = pointer.value
    steps = {step.value for step in descendants(body, cst.AugAssign)}
    plain = [v for t, v in assigned(body) if isinstance(t, cst.Name) and t.value == base]
    return base if all(value in steps for value in plain) else None


def _terms(
    source: Source, base: str, expression: cst.BaseExpression
) -> Iterable[cst.BaseExpression]:
    """What an address adds up; a run of elements stays whole, without the base."""
    span = span_of(source, expression)
    if span is None or any(base in names_in(value_of(source, start)) for start in span.starts):
        behind = value_of(source, expression)
        if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Add):
            yield from _terms(source, base, behind.left)
            yield from _terms(source, base, behind.right)
            return
    yield expression


def _block_of(source: Source, counted: Counting, term: cst.BaseExpression) -> str | None:
    """The run of elements of a round, as a text that is the same for the same run.

    It begins at the loop's variable, which counts by the run's length, or at that many times it,
    and its elements are neighbours.
    """
    span = span_of(source, term)
    if span is None:
        return None
    own = [start for start in span.starts if depends(counted, start)]
    if len(own) != 1 or not _is_start(source, counted, own[0], span.extent):
        return None
    others = sorted(source.code(start) for start in span.starts if start is not own[0])
    return f"{' + '.join([*others, span.extent])} along {span.axis}"


def _is_start(source: Source, counted: Counting, start: cst.BaseExpression, extent: str) -> bool:
    behind = value_of(source, start)
    if counted.step is not None:
        return _is_variable(source, counted, behind) and source.code(counted.step) == extent
    if isinstance(behind, cst.BinaryOperation) and isinstance(behind.operator, cst.Multiply):
        sides = ((behind.left, behind.right), (behind.right, behind.left))
        return any(
            _is_variable(source, counted, value_of(source, one)) and source.code(other) == extent
            for one, other in sides
        )
    return False


def _is_variable(source: Source, counted: Counting, expression: cst.BaseExpression) -> bool:
    if not isinstance(expression, cst.Name) or expression.value != counted.name:
        return False
    found = definition(source, expression.value, expression)
    return found is not None and found.node is counted.loop
