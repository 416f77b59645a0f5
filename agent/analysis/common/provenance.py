"""Which constants of a kernel are tile sizes only, and the integer literals that set them.

A tile size can be changed when

- the kernel uses it as one, and no result depends on it (`agent.analysis.common.constant_flow`);
- every launch binds it to the same integer of the file, which may be a default of the function
  that launches it where what is written leaves callers their choice;
- that integer serves no other purpose there: its names are used for tiles and grids only, and for
  the condition under which the kernel checks its bounds;
- the grid is computed from it, or a loop of the kernel goes over its blocks, so that every element
  is still covered.

Otherwise the reason is told, in one line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst as cst
from libcst.metadata import Assignment

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.constant_flow import Flow, drops_remainder, is_multiple_of
from agent.analysis.common.dialect import Dialect, Kernel, Launch
from agent.analysis.common.grid_coverage import loop_covers
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.common.reaching_definitions import traced
from agent.analysis.common.size_changes import SMALLEST_DOT, SizeChanges
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Literal, Source, Untraceable, descendants, keyword

CHECK = "check_bounds"
UNCOVERED = "neither the grid nor a loop is computed from it"
CEILINGS = ("math.ceil", "numpy.ceil")
DIVMOD = "builtins.divmod"


@dataclass(frozen=True)
class TileConstant:
    """A constant that is a tile size, and the integers that set it."""

    kernel: Kernel
    constant: str
    literals: tuple[Literal, ...]
    changes: SizeChanges

    @property
    def size(self) -> int:
        """What it is now."""
        return self.literals[0].value

    def allows(self, size: int) -> bool:
        """Whether a size may be tried."""
        return self.changes.allow(size, self.size)


def tile_names(
    dialect: Dialect, source: Source, kernel: Kernel, *, computed: bool = False
) -> tuple[str, ...]:
    """The constants in the kernel's tile shapes: its parameters, and integers of the module.

    Among these are expressions of integers, as `2**4`, if they are asked for.
    """
    names: dict[str, None] = {}
    for call in descendants(kernel.function.node.body, cst.Call):
        called = dialect.called(source, call) or ""
        taken = dialect.shapes.get(called)
        for name in descendants(taken.of(call) or cst.Pass(), cst.Name) if taken else ():
            if name.value in kernel.constants or _module_integer(source, name, computed):
                names[name.value] = None
    return tuple(names)


def _module_integer(source: Source, name: cst.Name, computed: bool) -> bool:
    try:
        return not source.trace(name, computed=computed).is_default
    except Untraceable:
        return False


def tile_of(
    dialect: Dialect,
    source: Source,
    kernel: Kernel,
    constant: str,
    *,
    defaults: bool = False,
    computed: bool = False,
) -> TileConstant:
    """The tile behind a constant, or `NotApplicable` with the first rule it breaks.

    Args:
        dialect: the language.
        source: the file.
        kernel: of it.
        constant: of the kernel.
        defaults: whether an integer counts that is a default of the launching function. Where a
            caller gives another, the kernel has to take that as before.
        computed: whether an expression of integers counts, as `2**4`, which an edit replaces.
    """
    literals = _literals(dialect, source, kernel, constant, defaults, computed)
    flow = Flow(dialect, source, kernel, constant)
    if (refusal := _refusal(flow, literals)) is not None:
        raise NotApplicable(refusal)
    values = {literal.value for literal in literals}
    if len(values) > 1:
        raise NotApplicable(f"its launches give it different values: {sorted(values)}")
    size = literals[0].value
    if size < 1 or size & (size - 1):
        raise NotApplicable(f"{size} is no power of two")
    changes = _changes(flow, literals)
    for literal in literals:
        changes &= _only_tiles(dialect, source, literal)
    return TileConstant(kernel, constant, literals, changes)


def _changes(flow: Flow, literals: tuple[Literal, ...]) -> SizeChanges:
    return SizeChanges.of(flow).without_growth(unless=_checks_follow(flow, literals))


def _refusal(flow: Flow, literals: tuple[Literal, ...]) -> str | None:
    """Why a constant cannot change: of its kernel, or of the launches; None when it can."""
    if (refusal := needed_size(flow)) is not None:
        return refusal
    launches = flow.kernel.launches
    if loop_covers(flow) or all(
        _sizes_grid(flow.source, launch, flow.constant, literals) for launch in launches
    ):
        return None
    return UNCOVERED


def _literals(
    dialect: Dialect,
    source: Source,
    kernel: Kernel,
    constant: str,
    defaults: bool,
    computed: bool,
) -> tuple[Literal, ...]:
    """The integers that set a constant: one for each launch, or one of the module."""
    if not kernel.launches:
        raise not_launched(source, kernel)
    if constant not in kernel.constants:
        name = next(n for n in descendants(kernel.function.node.body, cst.Name)
                    if n.value == constant)  # fmt: skip
        return (source.trace(name, computed=computed),)
    found: dict[cst.CSTNode, Literal] = {}
    for launch in kernel.launches:
        line = source.line(launch.node)
        expression = launch.arguments.get(constant) or _default(kernel, constant)
        if not launch.complete:
            raise NotApplicable(f"the launch at line {line} hides arguments behind a `*`")
        if expression is None and dialect.autotuned(source, kernel.function):
            raise NotApplicable("chosen by its tuner")
        if expression is None or constant in launch.hidden:
            raise NotApplicable(f"the launch at line {line} does not show what it is given")
        try:
            literal = source.trace(expression, computed=computed)
        except Untraceable as reason:
            raise NotApplicable(f"what the launch at line {line} gives {reason}") from None
        if literal.is_default and not defaults:
            raise NotApplicable(f"a caller chooses it: line {line} passes on a parameter")
        found[literal.node] = _joined(found.get(literal.node), literal)
    return tuple(found.values())


def _joined(known: Literal | None, literal: Literal) -> Literal:
    """An integer with the names that carry it to each of several launches."""
    if known is None:
        return literal
    names = dict.fromkeys((*known.names, *literal.names))
    assignments = dict.fromkeys((*known.assignments, *literal.assignments))
    return replace(known, names=tuple(names), assignments=tuple(assignments))


def _default(kernel: Kernel, constant: str) -> cst.BaseExpression | None:
    return next(p.default for p in kernel.function.parameters if p.name.value == constant)


def _only_tiles(dialect: Dialect, source: Source, literal: Literal) -> SizeChanges:
    """Which changes are safe wherever an integer's names are used.

    Raises `NotApplicable` when one of the uses is neither a tile size nor part of a grid.
    """
    kernels = dialect.kernels(source)
    given: dict[cst.CSTNode, list[Flow]] = {}
    for kernel in kernels:
        for launch in kernel.launches:
            for name, value in launch.arguments.items():
                if name in kernel.constants:
                    given.setdefault(value, []).append(Flow(dialect, source, kernel, name))
                elif value is literal.node or value in literal.names:
                    raise NotApplicable(f"{kernel.name} takes it as {name}, which is no constant")
    by_launch = [(k, x, grid_nodes(source, x)) for k in kernels for x in k.launches]
    grids = [node for _, _, nodes in by_launch for node in nodes]
    changes = SizeChanges()
    in_place = given.get(literal.node, [])
    for flow in in_place if len(in_place) > 1 else ():  # a launch may be one of several kernels
        changes &= _shared(flow, literal)
    for assignment in literal.assignments:
        for use in source.uses(assignment):
            line = source.line(use)
            around = (use, *source.ancestors(use))
            inside = next((k for k in kernels if k.function.node in around), None)
            flows = given.get(use) or (
                [Flow(dialect, source, inside, use.value)] if inside is not None else []
            )
            for flow in flows:
                changes &= _shared(flow, literal)
            if flows:
                continue
            if any(node in grids for node in around):
                for kernel, launch, nodes in by_launch:
                    if any(node in nodes for node in around):
                        _check_sized(source, kernel, launch, literal)
                check_grid_use(source, use, grids, set())
            elif use not in literal.names and not _decides_checks(source, use, kernels):
                raise NotApplicable(f"line {line} uses `{use.value}` for more than tiles and grid")
    return changes


def _shared(flow: Flow, literal: Literal) -> SizeChanges:
    """Which changes are safe for a constant that an integer sets, perhaps among others."""
    if (refusal := _refusal(flow, (literal,))) is not None:
        raise NotApplicable(f"{flow.kernel.name} shares it, and there {refusal}")
    if not flow.in_loop and not sizes_tiles(flow):  # the grid would go by it, and nothing else
        raise NotApplicable(f"{flow.kernel.name} shares it, and no tile there goes by it")
    changes = _changes(flow, (literal,))
    multiplies = flow.dialect.has_dot(flow.source, flow.kernel)
    return replace(changes, smallest=SMALLEST_DOT) if multiplies else changes


def sizes_tiles(flow: Flow) -> bool:
    """Whether a kernel has tiles of a size, or hands it to a function that may have some."""
    source, dialect = flow.source, flow.dialect
    for call in descendants(flow.body, cst.Call):
        taken = dialect.shapes.get(dialect.called(source, call) or "")
        shape = taken.of(call) if taken is not None else None
        is_helper = source.function_of(call.func) is not None
        if any(map(flow.carries, [shape] if shape is not None else call.args if is_helper else ())):
            return True
    return any(True for _ in flow.shapes)


def _check_sized(source: Source, kernel: Kernel, launch: Launch, literal: Literal) -> None:
    """Raise `NotApplicable` for a grid that goes by an integer by which no tile of its kernel does.

    Another integer of the same value, say, which would stay as it is.
    """
    named = (
        *(value for value in launch.arguments.values() if isinstance(value, cst.Name)),
        *descendants(kernel.function.node, cst.Name),
    )
    if not any(_carries(source, name, (literal,)) for name in named):
        raise NotApplicable(f"the grid of {kernel.name} uses it, and its tiles do not")


def _checks_follow(flow: Flow, literals: tuple[Literal, ...]) -> bool:
    """Whether accesses that leave their check to the launches have it computed from the size."""
    checks = [keyword(call, CHECK) for call in flow.accesses]
    constants = {c.value for c in checks if isinstance(c, cst.Name) and c.value != "True"}
    for launch in flow.kernel.launches:
        for constant in constants:
            given = launch.arguments.get(constant)
            condition = flow.source.resolve(given) if given is not None else None
            names = descendants(condition, cst.Name) if condition is not None else ()
            if not any(_carries(flow.source, name, literals) for name in names):
                return False
    return True


def _carries(source: Source, name: cst.Name, literals: tuple[Literal, ...]) -> bool:
    """Whether a name stands for one of these integers, also as a parameter whose default it is."""
    return any(
        source.resolve(name) is literal.node
        or not {*source.assignments(name)}.isdisjoint(literal.assignments)
        for literal in literals
    )


def _decides_checks(source: Source, use: cst.Name, kernels: tuple[Kernel, ...]) -> bool:
    """Whether a name is used for what kernels are given to decide on their checks alone."""
    assign = next((a for a in source.ancestors(use) if isinstance(a, cst.Assign)), None)
    if assign is None or len(assign.targets) != 1:
        return False
    target = assign.targets[0].target
    if not isinstance(target, cst.Name):
        return False
    deciding: dict[int, bool] = {}
    for kernel in kernels:
        for launch in kernel.launches:
            for name, value in launch.arguments.items():
                decides = name in kernel.constants and _only_checks(kernel, name)
                deciding[id(value)] = deciding.get(id(value), True) and decides
    uses = [other for a in source.assignments(target) for other in source.uses(a)]
    return bool(uses) and all(deciding.get(id(other), False) for other in uses)


def _only_checks(kernel: Kernel, constant: str) -> bool:
    """Whether a kernel checks bounds, and chooses what it pads with, by a constant alone."""
    body = kernel.function.node.body
    allowed: set[int] = set()
    for call in descendants(body, cst.Call):
        check, padding = keyword(call, CHECK), keyword(call, "padding_mode")
        allowed.add(id(check))
        if isinstance(padding, cst.IfExp):
            allowed.add(id(padding.test))
    names = [name for name in descendants(body, cst.Name) if name.value == constant]
    return all(id(name) in allowed for name in names if not _is_keyword(body, name))


def _is_keyword(body: cst.BaseSuite, name: cst.Name) -> bool:
    return any(argument.keyword is name for argument in descendants(body, cst.Arg))


def check_grid_use(
    source: Source, use: cst.Name, grids: list[cst.CSTNode], seen: set[Assignment]
) -> None:
    """A grid may use a tile size, if it rounds up and what it computes serves no other purpose."""
    for node in source.ancestors(use):
        if _drops_remainder(source, node, use.value):
            raise NotApplicable(f"the grid at line {source.line(node)} drops a remainder by it")
        if isinstance(node, cst.FunctionDef):
            return
        if isinstance(node, cst.Assign):
            break
    else:
        return
    names = (name for target in node.targets for name in descendants(target.target, cst.Name))
    computed = {a for name in names for a in source.assignments(name)} - seen
    for other in (other for assignment in computed for other in source.uses(assignment)):
        if not any(n in grids for n in (other, *source.ancestors(other))):
            raise NotApplicable(
                f"line {source.line(other)} uses `{other.value}`, which is computed from it, for "
                "more than the grid"
            )
        check_grid_use(source, other, grids, seen | computed)


def _drops_remainder(source: Source, node: cst.CSTNode, name: str) -> bool:
    """Whether host code divides by a size and may round down: of `n / BLOCK` a ceiling does not."""
    match node:
        case cst.BinaryOperation(operator=cst.Divide(), right=right) if is_multiple_of(
            right, {name}
        ):
            calls = (a for a in source.ancestors(node) if isinstance(a, cst.Call))
            return not any(source.name(call.func) in CEILINGS for call in calls)
        case cst.BinaryOperation():
            return drops_remainder(node, {name})
        case cst.Call(args=[_, cst.Arg(value=size)]) if source.name(node.func) == DIVMOD:
            return is_multiple_of(size, {name})
    return False


def grid_nodes(source: Source, launch: Launch) -> list[cst.CSTNode]:
    """The expression of the grid and those that it is computed from."""
    nodes: list[cst.CSTNode] = [launch.grid]
    for node in nodes:
        for name in descendants(node, cst.Name):
            function = source.function_of(name)
            value = function.node.body if function else traced(source, name)
            if value is not name and value not in nodes and not isinstance(value, cst.Integer):
                nodes.append(value)
    return nodes


def _sizes_grid(
    source: Source, launch: Launch, constant: str, literals: tuple[Literal, ...]
) -> bool:
    """Whether the grid of a launch is computed from the constant or the integer that sets it."""
    for node in grid_nodes(source, launch):
        for name in descendants(node, cst.Name):
            if _carries(source, name, literals):
                return True
        for text in descendants(node, cst.SimpleString):
            if text.raw_value == constant:
                return True
    return False
