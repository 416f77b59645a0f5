"""Block pointers of Triton kernels: where they are made, advanced, and used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.index_ranges import belongs_to, is_scalar
from agent.syntax import Source, argument, assigned, descendants, keyword

TL = "triton.language."
MAKE, ADVANCE, LOAD, STORE = (
    f"{TL}{name}" for name in ("make_block_ptr", "advance", "load", "store")
)


@dataclass(frozen=True)
class BlockPointer:
    """A name that holds one block pointer, from where it is made to its last use."""

    name: str
    made: cst.SimpleStatementLine
    base: str
    offsets: tuple[cst.BaseExpression, ...]
    """Scalars that are added to the base."""
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    starts: tuple[str, ...]
    block: tuple[str, ...]
    transposed: bool
    """Its two dimensions are in memory the other way round."""
    steps: tuple[tuple[cst.SimpleStatementLine, tuple[str, ...]], ...]
    """Statements that move it on, and by how much."""
    accesses: tuple[cst.Call, ...]

    def fixed_start(self, kernel: Kernel, axis: int) -> str | None:
        """Where it starts along an axis: an integer, or a name of one value in the kernel.

        None where it moves on from there, or where that is computed.
        """
        start = self.starts[axis]
        if any(by[axis] != "0" for _, by in self.steps):
            return None
        if start.isdigit():
            return start
        given = [
            name
            for target, _ in assigned(kernel.function.node.body)
            for name in descendants(target, cst.Name)
            if name.value == start
        ]
        is_parameter = any(p.name.value == start for p in kernel.function.parameters)
        is_fixed = start.isidentifier() and len(given) == (0 if is_parameter else 1)
        return start if is_fixed else None


def block_pointers(source: Source, kernel: Kernel) -> tuple[list[BlockPointer], list[str]]:
    """Those that are used as a descriptor could be, and why the others are not."""
    found, reasons = [], []
    for line, name, call in _made(source, kernel):
        try:
            found.append(_read(source, kernel, line, name, call))
        except NotApplicable as reason:
            reasons.append(str(reason))
    return found, reasons


def _made(
    source: Source, kernel: Kernel
) -> Iterator[tuple[cst.SimpleStatementLine, str, cst.Call]]:
    for line in descendants(kernel.function.node.body, cst.SimpleStatementLine):
        match line.body:
            case [
                cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=name))],
                    value=cst.Call() as call,
                )
            ] if source.name(call.func) == MAKE:
                yield line, name, call


def _read(
    source: Source, kernel: Kernel, line: cst.SimpleStatementLine, name: str, call: cst.Call
) -> BlockPointer:
    number = source.line(call)
    base, *sizes = (
        argument(call, place, key)
        for place, key in enumerate(("base", "shape", "strides", "offsets", "block_shape", "order"))
    )
    lists = [_listed(source, number, size) for size in sizes]
    shape, strides, starts, block, order = lists
    rank = len(shape)
    if rank > 2:
        raise NotApplicable(f"the block pointer at line {number} has {rank} dimensions, over 2")
    plain = tuple(map(str, reversed(range(rank))))
    if base is None or any(len(each) != rank for each in lists):
        raise NotApplicable(f"the block pointer at line {number} does not show all of itself")
    transposed = rank == 2 and order == ("0", "1")
    if order != plain and not transposed:
        raise NotApplicable(f"the block pointer at line {number} has the order {', '.join(order)}")
    if transposed:
        shape, strides, starts, block = (e[::-1] for e in (shape, strides, starts, block))
    for length in shape:
        if not belongs_to(kernel, length) and not length.isdigit():
            raise NotApplicable(f"the length {length} at line {number} is no parameter")
    for stride in strides:
        if not belongs_to(kernel, stride) and not stride.isdigit():
            raise NotApplicable(f"the stride {stride} at line {number} is no parameter")
    if "0" in strides:
        raise NotApplicable(f"the block pointer at line {number} has a stride of 0, one row again")
    if not (block[-1] in kernel.constants or block[-1].isdigit()):
        raise NotApplicable(f"the block at line {number} ends with {block[-1]}, no constant")
    parameter, offsets = _base(source, kernel, base)
    steps, accesses = _uses(source, kernel, line, name, transposed)
    return BlockPointer(
        name, line, parameter, offsets, shape, strides, starts, block, transposed, steps, accesses
    )


def _listed(source: Source, line: int, node: cst.BaseExpression | None) -> tuple[str, ...]:
    behind = value_of(source, node) if node is not None else None
    if not isinstance(behind, cst.Tuple | cst.List):
        raise NotApplicable(f"the block pointer at line {line} does not list its sizes")
    return tuple(source.code(element.value) for element in behind.elements)


def _base(
    source: Source, kernel: Kernel, node: cst.BaseExpression
) -> tuple[str, tuple[cst.BaseExpression, ...]]:
    """The parameter, and what is added to it."""
    terms = list(_terms(node))
    first = terms[0]
    if not isinstance(first, cst.Name) or not belongs_to(kernel, first.value):
        raise NotApplicable(f"line {source.line(node)} begins at `{source.code(first)}`")
    if not all(is_scalar(source, term) for term in terms[1:]):
        raise NotApplicable(f"line {source.line(node)} adds tiles to the base")
    return first.value, tuple(terms[1:])


def _terms(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _uses(
    source: Source, kernel: Kernel, made: cst.SimpleStatementLine, name: str, transposed: bool
) -> tuple[tuple[tuple[cst.SimpleStatementLine, tuple[str, ...]], ...], tuple[cst.Call, ...]]:
    """The steps and accesses of a block pointer. Raises `NotApplicable` for any other use."""
    steps: list[tuple[cst.SimpleStatementLine, tuple[str, ...]]] = []
    accesses: list[cst.Call] = []
    own = {id(n) for n in descendants(made, cst.Name)}
    for use in descendants(kernel.function.node.body, cst.Name):
        if use.value != name or id(use) in own:
            continue
        line = next(
            (a for a in source.ancestors(use) if isinstance(a, cst.SimpleStatementLine)), None
        )
        call = next((a for a in source.ancestors(use) if isinstance(a, cst.Call)), None)
        stepped = _step(source, line, name, transposed)
        if line is not None and stepped is not None:
            if all(line is not known for known, _ in steps):
                steps.append((line, stepped))
            continue
        if line is None or len(line.body) != 1 or call is None or not _is_access(source, call, use):
            raise NotApplicable(f"line {source.line(use)} uses the block pointer {name} otherwise")
        accesses.append(call)
    if not accesses:
        raise NotApplicable(f"the block pointer {name} is never used")
    return tuple(steps), tuple(accesses)


def _step(
    source: Source, line: cst.SimpleStatementLine | None, name: str, transposed: bool
) -> tuple[str, ...] | None:
    """How far `p = tl.advance(p, (a, b))` moves."""
    match line:
        case cst.SimpleStatementLine(
            body=[
                cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=target))],
                    value=cst.Call() as call,
                )
            ]
        ) if target == name and source.name(call.func) == ADVANCE:
            moved, offsets = argument(call, 0, "base"), argument(call, 1, "offsets")
            if moved is not None and source.code(moved) == name:
                by = _listed(source, source.line(call), offsets)
                return by[::-1] if transposed else by
    return None


def _is_access(source: Source, call: cst.Call, use: cst.Name) -> bool:
    called = source.name(call.func)
    if called not in (LOAD, STORE) or argument(call, 0, "pointer") is not use:
        return False
    if keyword(call, "volatile") is not None:
        raise NotApplicable(f"line {source.line(call)} is volatile")
    padding = keyword(call, "padding_option")
    if padding is not None and source.code(padding) not in ('"zero"', "'zero'", '""', "''"):
        raise NotApplicable(f"line {source.line(call)} pads with {source.code(padding)}, not 0")
    return True
