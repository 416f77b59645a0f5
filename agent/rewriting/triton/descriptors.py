"""Host code that tensor descriptors need: arrays that fit, and memory for the descriptors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeVar

import libcst as cst

from agent.analysis.common.absent import may_be_none
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.arguments import does_without
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import launches_in_sight, torch_module, triton_module
from agent.analysis.triton.index_ranges import belongs_to
from agent.rewriting.common.formatting import STEP, Place
from agent.rewriting.common.insertion import first_kernel, free_name, imports_above
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.edits import Edit, statement_of
from agent.syntax import Source

ALIGNMENT_BYTES = 16
Node = TypeVar("Node", cst.SimpleStatementLine, cst.BaseExpression)


@dataclass(frozen=True)
class Layout:
    """How an array lies in memory, as its descriptor would say it."""

    base: str
    """The parameter that points to it."""
    offsets: tuple[cst.BaseExpression, ...]
    """Scalars that are added to it."""
    strides: tuple[tuple[str, ...], ...]
    """Of all dimensions but the last, the factors: parameters of the kernel or integers."""
    inner_stride: tuple[str, ...]
    """The factors of that of the last, which has to be 1."""
    inner_extent: str
    """Of a tile, along the last dimension: a constant of the kernel or an integer."""


def check_given(
    source: Source, kernel: Kernel, layouts: Sequence[Layout], more: Collection[str] = ()
) -> None:
    """Raise `NotApplicable` unless every launch gives what the conditions ask for, and more.

    A heuristic is told the arguments of the launch and of the config, not the defaults.
    """
    tuned = TRITON.autotuned(source, kernel.function)
    parameters = {p.name.value for p in kernel.function.parameters}
    names = {name for layout in layouts for name in _asked(source, kernel, layout)}
    names |= parameters & set(more)
    for launch in launches_in_sight(source, kernel):
        missing = sorted(names - launch.arguments.keys())
        if tuned:
            defaults = {p.name.value for p in kernel.function.parameters if p.default is not None}
            excused = set(kernel.constants) - defaults
            missing = [name for name in missing if name not in excused]
        if missing:
            line = source.line(launch.node)
            raise NotApplicable(f"the launch at line {line} does not give {', '.join(missing)}")


def _asked(source: Source, kernel: Kernel, layout: Layout) -> Iterator[str]:
    parameters = {p.name.value for p in kernel.function.parameters}
    yield layout.base
    offsets = _offset_factors(source, kernel, layout)
    for factors in (*layout.strides, layout.inner_stride, (layout.inner_extent,), *offsets):
        yield from parameters.intersection(factors)


def conditions(source: Source, kernel: Kernel, layouts: Sequence[Layout]) -> Sequence[str]:
    """What has to hold of the arguments, which the conditions call `args`."""
    parameters = {p.name.value for p in kernel.function.parameters}

    def said(text: str) -> str:
        return f'args["{text}"]' if text in parameters else text

    found: dict[str, None] = {}
    for layout in layouts:
        array = said(layout.base)
        if layout.inner_stride:
            found[f"{' * '.join(map(said, layout.inner_stride))} == 1"] = None
        held = [f"{array}.data_ptr() % {ALIGNMENT_BYTES} == 0"]
        offsets = _offset_factors(source, kernel, layout)
        for factors in (*layout.strides, *offsets):
            product = " * ".join(map(said, factors))
            held.append(f"{array}.element_size() * {product} % {ALIGNMENT_BYTES} == 0")
        extent = said(layout.inner_extent)
        held.append(f"{array}.element_size() * {extent} >= {ALIGNMENT_BYTES}")
        if does_without(source, kernel, layout.base) or may_be_absent(source, kernel, layout.base):
            held = [_where_present(array, held)]
        found |= dict.fromkeys(held)
    return list(found)


def _where_present(array: str, held: Sequence[str]) -> str:
    """Conditions of an array that may be left out, laid out as one of `fitting`."""
    within, inner, outer = (f"\n{' ' * STEP * n}" for n in (4, 3, 2))
    each = f"{within}and ".join(held)
    return f"({inner}{array} is None{inner}or ({within}{each}{inner}){outer})"


def may_be_absent(source: Source, kernel: Kernel, pointer: str) -> bool:
    """Whether a launch shows that it may give `None` for a pointer."""
    given = (launch.arguments.get(pointer) for launch in kernel.launches)
    return any(value is not None and may_be_none(source, value) for value in given)


def check_present(source: Source, kernel: Kernel, pointer: str) -> None:
    """Raise `NotApplicable` where an array may be left out, so that nothing can describe it."""
    if may_be_absent(source, kernel, pointer):
        raise NotApplicable(f"{pointer} may be None, of which no descriptor can be made")


def _offset_factors(source: Source, kernel: Kernel, layout: Layout) -> Iterator[tuple[str, ...]]:
    """For each offset of the base, the parameters that it is a multiple of."""
    for offset in layout.offsets:
        factors = list(_factors(source, offset))
        named = tuple(code for code in map(source.code, factors) if belongs_to(kernel, code))
        numbers = [f.evaluated_value for f in factors if isinstance(f, cst.Integer)]
        if any(gcd(number, ALIGNMENT_BYTES) == ALIGNMENT_BYTES for number in numbers):
            continue
        if not named:
            line = source.line(offset)
            raise NotApplicable(f"line {line} adds `{source.code(offset)}`, of unknown alignment")
        yield named


def _factors(source: Source, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    behind = value_of(source, node)
    match behind:
        case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
            yield from _factors(source, left)
            yield from _factors(source, right)
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="to"))):
            yield from _factors(source, value)
        case _:
            yield behind


def branching(
    line: cst.SimpleStatementLine,
    described: Mapping[cst.Call, str],
    flag: str,
    plain: Mapping[cst.Call, str] | None = None,
    setup: Sequence[str] = (),
) -> Edit:
    """The edit that runs a statement in two ways, as a constant says.

    Args:
        line: the statement.
        described: what becomes of some of its calls where the constant is true.
        flag: the constant.
        plain: what becomes of them where it is false.
        setup: statements that come before it where the constant is false.
    """
    first, second = (
        replaced(line, texts).with_changes(leading_lines=()) for texts in (described, plain or {})
    )
    before = [cst.parse_statement(text) for text in setup]

    def edit(updated: cst.SimpleStatementLine) -> cst.If:
        return cst.If(
            cst.Name(flag),
            cst.IndentedBlock([first]),
            orelse=cst.Else(cst.IndentedBlock([*before, second])),
            leading_lines=updated.leading_lines,
        )

    return edit


def replaced(node: Node, texts: Mapping[cst.Call, str]) -> Node:
    """A node with other expressions in place of some of its calls."""

    class Replacing(cst.CSTTransformer):
        def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
            text = texts.get(original_node)
            return cst.parse_expression(text) if text is not None else updated_node

    new = node.visit(Replacing())
    assert isinstance(new, cst.CSTNode)
    return new


def only_where(flag: str, lines: Sequence[str]) -> cst.If:
    """Statements that run where a constant is true."""
    return cst.If(cst.Name(flag), cst.IndentedBlock([cst.parse_statement(line) for line in lines]))


def descriptor_place(source: Source, statement: cst.CSTNode, name: str) -> Place:
    """Where what makes a descriptor of that name stands, within `if DESCRIPTORS:`."""
    column = source.place(statement).start.column + STEP
    return Place(column, column, column + len(f"{name} = "), 0)


def fitting(name: str, lines: Sequence[str]) -> str:
    """The function that a heuristic calls."""
    listed = "\n        and ".join(lines)
    return (
        f"def {name}(args):\n"
        '    """Whether the arrays are laid out as tensor descriptors need."""\n'
        f"    return (\n        {listed}\n    )\n"
    )


def with_descriptors(
    source: Source, describe: Callable[[Kernel, str], tuple[dict[cst.CSTNode, Edit], str]]
) -> str:
    """The file with descriptors that its kernels make.

    Args:
        source: the file.
        describe: gives the edits of a kernel, and the function that says whether its arrays fit,
            which is to have that name. Raises `NotApplicable` for a kernel that has to stay.
    """
    allocate = free_name(source, "allocate")
    alone = len(TRITON.launched(source)) == 1

    def described(kernel: Kernel) -> tuple[dict[cst.CSTNode, Edit], str]:
        prefix = "" if alone else f"{kernel.name.replace('.', '_')}_"
        edits, function = describe(kernel, free_name(source, f"{prefix}descriptors_fit"))
        return edits | _allocator(source, kernel, allocate), function

    found = of_each(TRITON.chosen(source), described, "no Triton kernel is launched here")
    edits: dict[cst.CSTNode, Edit] = {}
    for more, _ in found:
        edits |= more
    functions = [*(function for _, function in found), _scratch(source, allocate)]
    return source.rewrite(edits | before_kernels(source, functions))


def _allocator(source: Source, kernel: Kernel, name: str) -> dict[cst.CSTNode, Edit]:
    """The edits that set the allocator above each launch."""
    line = f"{triton_module(source, kernel)}.set_allocator({name})"
    edits: dict[cst.CSTNode, Edit] = {}
    for launch in launches_in_sight(source, kernel):
        statement = statement_of(source, launch)
        edits[statement] = lambda updated: preceded(updated, [line])
    return edits


def _scratch(source: Source, name: str) -> str:
    """The function that gives memory for descriptors. Raises `NotApplicable` without torch."""
    torch = torch_module(source, "which allocates")
    return (
        f"def {name}(size, alignment, stream):\n"
        '    """Memory for the descriptors of one launch."""\n'
        f'    return {torch}.empty(size, device="cuda", dtype={torch}.int8)\n'
    )


def before_kernels(
    source: Source, functions: Sequence[str], import_line: str | None = None
) -> dict[cst.CSTNode, Edit]:
    """The edits that write functions above the first kernel, and an import below the others."""
    place = first_kernel(TRITON, source)
    imports = max(imports_above(source, place), default=-1) + 1
    if import_line is not None and not imports:
        raise NotApplicable("the file has no import at its top level to write below")
    added_import = [cst.parse_statement(import_line)] if import_line is not None else []
    empty = [cst.EmptyLine(indent=False)] * 2
    added = [cst.parse_statement(text).with_changes(leading_lines=empty) for text in functions]

    def edit(module: cst.Module) -> cst.Module:
        first, middle = module.body[:imports], module.body[imports:place]
        body = [*first, *added_import, *middle, *added, *module.body[place:]]
        return module.with_changes(body=body)

    return {source.module: edit}
