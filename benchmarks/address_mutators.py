"""Faults of where a kernel reads and writes: masks, grids, loops, strides, programs."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.syntax import argument, descendants, keyword, positional
from benchmarks.mutation_code import (
    CT,
    TL,
    KernelCode,
    Place,
    attribute,
    becomes,
    without_keywords,
)

BLOCKS = ("BLOCK", "TILE")
"""How the size of a block is called; a size of the data has another name."""
MOST_PROGRAMS = 128
MOST_STEPS_TO = 1024
"""Faults that only large inputs show: tests are mostly smaller, what is timed is larger."""

# --- masks and conditions -----------------------------------------------------------------------


def _comparisons(
    code: KernelCode, kind: type[cst.BaseCompOp]
) -> Iterator[tuple[cst.Comparison, str, str]]:
    """The comparisons by one operator, with the code of both sides."""
    for node in descendants(code.body, cst.Comparison):
        if len(node.comparisons) == 1 and isinstance(node.comparisons[0].operator, kind):
            yield node, code.text(node.left), code.text(node.comparisons[0].comparator)


def mask_inclusive(code: KernelCode) -> Iterator[Place]:
    """`cols < n` lets one more in: `cols <= n`."""
    for node, left, right in _comparisons(code, cst.LessThan):
        yield Place(node, becomes(f"({left} <= {right})"))


def mask_bound(code: KernelCode) -> Iterator[Place]:
    """The bound of `cols < n` is one too low or too high."""
    for node, left, right in _comparisons(code, cst.LessThan):
        for change in ("- 1", "+ 1"):
            yield Place(node, becomes(f"({left} < {right} {change})"))


def causal_shifted(code: KernelCode) -> Iterator[Place]:
    """`columns <= rows` is shifted by one, in either direction."""
    for node, left, right in _comparisons(code, cst.LessThanEqual):
        yield Place(node, becomes(f"({left} < {right})"))
        yield Place(node, becomes(f"({left} <= {right} + 1)"))


def mask_dropped(code: KernelCode) -> Iterator[Place]:
    """A load or store without its mask."""
    for call in code.find((f"{TL}load", f"{TL}store")):
        if keyword(call, "mask") is not None:
            yield Place(call, without_keywords("mask", "other"))


def condition_dropped(code: KernelCode) -> Iterator[Place]:
    """One side of `a & b` is forgotten."""
    for node in code.arithmetic(cst.BitAnd):
        yield Place(node, becomes(code.text(node.left)))
        yield Place(node, becomes(code.text(node.right)))


def other_wrong(code: KernelCode) -> Iterator[Place]:
    """What stands in for lanes that are masked off: 0 in a maximum, 1 in a sum."""
    for call in code.find((f"{TL}load",)):
        if (given := keyword(call, "other")) is not None:
            new = "0.0" if "inf" in code.text(given) else "1.0"
            yield Place(given, becomes(new))
    for call in code.find((f"{CT}load", f"{CT}gather")):
        mode = keyword(call, "padding_mode")
        if isinstance(mode, cst.Attribute):
            wrong = "ZERO" if mode.attr.value == "NEG_INF" else "NEG_INF"
            yield Place(mode, attribute(wrong))


def other_dropped(code: KernelCode) -> Iterator[Place]:
    """Lanes that are masked off hold what they happen to hold."""
    for call in code.find((f"{TL}load",)):
        if keyword(call, "other") is not None:
            yield Place(call, without_keywords("other"))


# --- grids and loops ----------------------------------------------------------------------------


def tail_missing(code: KernelCode) -> Iterator[Place]:
    """`cdiv(n, block)` rounds down: the last block is never computed."""
    for call in code.dialect.find(code.source, code.source.module, code.dialect.cdivs):
        if len(given := positional(call)) == 2:
            yield Place(call, becomes(f"({code.text(given[0])} // {code.text(given[1])})"))


def grid_short(code: KernelCode) -> Iterator[Place]:
    """One program too few, along one axis of the grid."""
    for launch in code.kernel.launches:
        grid = code.source.resolve(launch.grid)
        if isinstance(grid, cst.Tuple):
            for element in grid.elements:
                yield Place(element.value, becomes(f"{code.text(element.value)} - 1"))


def loop_short(code: KernelCode) -> Iterator[Place]:
    """A loop leaves out what does not fill its last step, or the last step."""
    for call in code.find(code.dialect.ranges):
        match [code.text(value) for value in positional(call)]:
            case [start, end, step]:
                yield Place(call, becomes(f"range({start}, {end} - {step} + 1, {step})"))
            case [end]:
                yield Place(call, becomes(f"range({end} - 1)"))


def loop_late(code: KernelCode) -> Iterator[Place]:
    """A loop begins with its second step."""
    for call in code.find(code.dialect.ranges):
        match [code.text(value) for value in positional(call)]:
            case ["0", end, step]:
                yield Place(call, becomes(f"range({step}, {end}, {step})"))
            case [end]:
                yield Place(call, becomes(f"range(1, {end})"))


def loop_capped(code: KernelCode) -> Iterator[Place]:
    """A loop that goes no further than the author ever tried."""
    for call in code.find((f"{TL}program_id",)):
        module = code.source.code(call.func).rpartition(".")[0]
        for loop in code.find(code.dialect.ranges):
            match [code.source.code(value) for value in positional(loop)]:
                case [start, end, step]:
                    capped = f"{module}.minimum({end}, {MOST_STEPS_TO})"
                    yield Place(loop, becomes(f"range({start}, {capped}, {step})"))
        break


# --- addresses ----------------------------------------------------------------------------------


def _strides(code: KernelCode) -> list[cst.Name]:
    """Where a parameter is the stride of an offset: the right side of `offset * stride`."""
    return [
        node.right
        for node in code.arithmetic(cst.Multiply)
        if isinstance(node.right, cst.Name)
        and node.right.value in code.parameters
        and not node.right.value.startswith(BLOCKS)
        and code.in_address(node)
    ]


def stride_swapped(code: KernelCode) -> Iterator[Place]:
    """The stride of another dimension, in the kernel or at its launch."""
    strides = _strides(code)
    known = list(dict.fromkeys(name.value for name in strides))
    for name in strides:
        others = known[known.index(name.value) + 1 :] + known[: known.index(name.value)]
        for other in others[:2]:
            yield Place(name, becomes(other))
    for launch in code.kernel.launches:
        for given in launch.arguments.values():
            match given:
                case cst.Call(
                    func=cst.Attribute(attr=cst.Name(value="stride")),
                    args=[cst.Arg(value=cst.Integer(value=axis))],
                ):
                    other = {"0": "1", "1": "0"}.get(axis, "0")
                    yield Place(given, becomes(f"{code.source.code(given.func)}({other})"))


def stride_off_by_one(code: KernelCode) -> Iterator[Place]:
    """A stride is one too long."""
    for name in _strides(code):
        yield Place(name, becomes(f"({name.value} + 1)"))


def offset_off_by_one(code: KernelCode) -> Iterator[Place]:
    """Blocks overlap by one element, or begin one element late."""
    for node in code.arithmetic(cst.Multiply):
        size = node.right
        is_block = isinstance(size, cst.Name) and size.value.startswith(BLOCKS)
        if is_block and code.is_index(node.left) and code.in_address(node):
            yield Place(size, becomes(f"({code.text(size)} - 1)"))
    for call in code.find(code.dialect.iotas):
        yield Place(call, becomes(f"({code.text(call)} + 1)"))


def program_off_by_one(code: KernelCode) -> Iterator[Place]:
    """A program does the work of its neighbour."""
    for call in code.find(code.dialect.program_ids):
        yield Place(call, becomes(f"({code.text(call)} + 1)"))


def program_wrapped(code: KernelCode) -> Iterator[Place]:
    """Numbers of programs begin anew where a grid is large."""
    for call in code.find(code.dialect.program_ids):
        yield Place(call, becomes(f"({code.text(call)} % {MOST_PROGRAMS})"))


def program_axis(code: KernelCode) -> Iterator[Place]:
    """A program's number along another axis of the grid."""
    calls = list(code.find(code.dialect.program_ids))
    axes = list(dict.fromkeys(code.text(value) for call in calls for value in positional(call)[:1]))
    for call in calls:
        axis = code.text(positional(call)[0])
        other = axes[(axes.index(axis) + 1) % len(axes)]
        if other != axis:
            yield Place(call, becomes(f"{code.source.code(call.func)}({other})"))


def program_ignored(code: KernelCode) -> Iterator[Place]:
    """All programs read the same place; in the address of a store they race for it."""
    for node in code.arithmetic(cst.Multiply, cst.Add):
        for side in (node.left, node.right):
            direct = isinstance(side, cst.Call) and side in set(code.find(code.dialect.program_ids))
            if direct or (isinstance(side, cst.Name) and side.value in code.program_names):
                yield Place(side, becomes("0"))


def output_aliases_input(code: KernelCode) -> Iterator[Place]:
    """The result is written over an input, which is gone then."""
    for call in code.source.calls:
        if code.source.name(call.func) in ("torch.empty", "torch.empty_like"):
            like, function = keyword(call, "dtype"), code.source.enclosing(call)
            given = [p.name.value for p in function.parameters] if function else []
            match like:
                case cst.Attribute(value=cst.Name(value=name)) if name in given:
                    yield Place(call, becomes(name))


def atomic_split(code: KernelCode) -> Iterator[Place]:
    """A load and a store in place of an atomic addition: updates are lost between them."""
    for call in code.find((f"{TL}atomic_add",)):
        pointer, value = argument(call, 0, "pointer"), argument(call, 1, "val")
        if pointer is None or value is None or not isinstance(call.func, cst.Attribute):
            continue
        module = code.source.code(call.func.value)
        mask = keyword(call, "mask")
        masked = f", mask={code.text(mask)}" if mask is not None else ""
        place = code.source.code(pointer)
        loaded = f"{module}.load({place}{masked})"
        new = f"{module}.store({place}, {loaded} + {code.text(value)}{masked})"
        yield Place(call, becomes(new))


ADDRESS_MUTATORS = (
    mask_inclusive,
    mask_bound,
    causal_shifted,
    mask_dropped,
    condition_dropped,
    other_wrong,
    other_dropped,
    tail_missing,
    grid_short,
    loop_short,
    loop_late,
    loop_capped,
    stride_swapped,
    stride_off_by_one,
    offset_off_by_one,
    program_off_by_one,
    program_wrapped,
    program_axis,
    program_ignored,
    output_aliases_input,
    atomic_split,
)
