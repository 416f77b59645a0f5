"""The place in a file that a search is written into: one kernel, launched once by one function.

Whatever is not of this form is refused with one line. A transform may miss a chance; it must not
change what a program computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Assignment

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.uses import Uses
from agent.syntax import Function, Source, argument, descendants
from agent.tuning.templates import NotTunable

FRESH = ("torch.empty", "torch.empty_like", "torch.empty_strided")
"""What makes an array whose content nobody reads, so that trial runs may write it."""
DESCRIBING = frozenset(
    {
        "device",
        "dim",
        "dtype",
        "element_size",
        "is_cuda",
        "ndim",
        "numel",
        "shape",
        "size",
        "stride",
    }
)
"""What is asked of an array, or of its methods, without a look at its content."""


@dataclass(frozen=True)
class Form:
    """A kernel, its launch, and the function around it."""

    source: Source
    kernel: Kernel
    launch: Launch
    wrapper: Function
    written: tuple[str, ...]
    """Parameters of the kernel that it writes, in their order."""
    scratch: tuple[str, ...]
    """Those of them that trial runs must not write: a caller may see them, or the kernel reads
    what was there before."""
    read: frozenset[str]
    """Parameters whose content the kernel reads."""

    @property
    def in_place(self) -> tuple[str, ...]:
        """Written parameters that are given an array which is read as well."""
        given = {p: self.source.code(self.launch.arguments[p]) for p in (*self.written, *self.read)}
        read = {given[p] for p in self.read}
        return tuple(p for p in self.written if given[p] in read)


def form_of(source: Source, kernel: Kernel, uses: Uses) -> Form:
    """The form around a kernel.

    Raises:
        NotTunable: what departs from it, with the line.
    """
    if (tuning := CUTILE.tuned(source, kernel)) is not None:
        raise NotTunable(f"{kernel.name} is tuned at line {source.line(tuning)} already")
    if len(kernel.launches) != 1:
        lines = ", ".join(str(source.line(launch.node)) for launch in kernel.launches)
        raise NotTunable(
            f"{kernel.name} is launched {len(kernel.launches)} times (lines {lines}): "
            "let one function launch it"
            if lines
            else str(not_launched(source, kernel))
        )
    (launch,) = kernel.launches
    line = source.line(launch.node)
    if launch.function is None:
        raise NotTunable(f"line {line} launches {kernel.name} outside any function")
    if not launch.complete:
        raise NotTunable(f"line {line} does not show what {kernel.name} is given")
    if launch.hints or len(source.mentions(kernel.function)) != 1:
        raise NotTunable(f"{kernel.name} is named elsewhere than in its launch at line {line}")
    if len(launch.node.args) != 4 or any(a.keyword and a.keyword.value not in
                                         ("stream", "grid", "kernel", "kernel_args")
                                         for a in launch.node.args):  # fmt: skip
        raise NotTunable(f"the launch at line {line} has options that the search does not know")
    around = source.enclosing(launch.function.node)
    if around is not None:
        raise NotTunable(f"line {line} launches {kernel.name} from a function inside {around.name}")
    if top_level(source, kernel.function.node) is not kernel.function.node:
        raise NotTunable(f"{kernel.name} is not defined at the top level of the file")
    if not uses.arrays & launch.arguments.keys():
        raise NotTunable(f"no parameter of {kernel.name} is plainly an array")
    written = _written(source, kernel)
    return Form(
        source=source,
        kernel=kernel,
        launch=launch,
        wrapper=launch.function,
        written=written,
        scratch=tuple(p for p in written if p in uses.loaded or not _is_fresh(source, launch, p)),
        read=frozenset(uses.loaded),
    )


def top_level(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The statement of the module's body that holds a node; for a definition itself, that."""
    for around in (node, *source.ancestors(node)):
        if any(around is statement for statement in source.module.body):
            return around
    return source.module


def _is_fresh(source: Source, launch: Launch, parameter: str) -> bool:
    """Whether an array is made for the launch, and holds nothing before it, under any name."""
    given = launch.arguments[parameter]
    if isinstance(given, cst.Name) and not _is_untouched(source, launch, given):
        return False
    made = source.resolve(given)
    if made is given or not isinstance(made, cst.Call):
        return False
    is_method = isinstance(made.func, cst.Attribute) and made.func.attr.value == "new_empty"
    return is_method or (source.name(made.func) or "") in FRESH


def _is_untouched(source: Source, launch: Launch, name: cst.Name) -> bool:
    """Whether nothing but its shape and type is asked of a name before the launch, or in it."""
    assigned = source.assignments(name)
    if len(assigned) != 1:
        return False
    itself = launch.node
    for use in source.uses(assigned[0]):
        around = tuple(source.ancestors(use))
        if use is name or (source.line(use) > source.line(itself) and itself not in around):
            continue
        if not isinstance(around[0], cst.Attribute) or around[0].attr.value not in DESCRIBING:
            return False
    return True


def _written(source: Source, kernel: Kernel) -> tuple[str, ...]:
    """The parameters whose arrays the kernel and its helpers write."""
    names = [p.name.value for p in kernel.function.parameters]
    found: set[str] = set()
    for function in CUTILE.reached(source, kernel):
        for call in descendants(function.node.body, cst.Call):
            array = _array_written(source, call)
            if array is not None:
                found |= _roots(source, kernel, function, array, ())
    return tuple(name for name in names if name in found)


def _array_written(source: Source, call: cst.Call) -> cst.BaseExpression | None:
    called = CUTILE.called(source, call) or ""
    if called in CUTILE.stores:
        return argument(call, 0, "array")
    is_method = isinstance(call.func, cst.Attribute) and not called.startswith((CT, "builtins."))
    if is_method and isinstance(call.func, cst.Attribute) and call.func.attr.value == "store":
        return call.func.value
    return None


def _roots(
    source: Source,
    kernel: Kernel,
    function: Function,
    array: cst.BaseExpression,
    seen: tuple[str, ...],
) -> set[str]:
    """The kernel's parameters that an array, or a view or slice of one, may be."""
    for _ in range(20):
        array = source.resolve(array)
        if isinstance(array, cst.Subscript | cst.Attribute):
            array = array.value
        elif isinstance(array, cst.Call) and isinstance(array.func, cst.Attribute):
            array = array.func.value
        else:
            break
    name = array.value if isinstance(array, cst.Name) else ""
    position = next((n for n, p in enumerate(function.parameters) if p.name.value == name), None)
    if position is not None and function is kernel.function:
        return {name}
    calls = list(_calls_of(source, kernel, function))
    if position is None or not calls or function.name in seen:
        raise NotTunable(f"line {source.line(array)} writes to an array that cannot be traced")
    found: set[str] = set()
    for caller, call in calls:
        given = argument(call, position, name)
        if given is None:
            raise NotTunable(f"line {source.line(call)} does not show which array it hands on")
        found |= _roots(source, kernel, caller, given, (*seen, function.name))
    return found


def _calls_of(
    source: Source, kernel: Kernel, function: Function
) -> Iterator[tuple[Function, cst.Call]]:
    for caller in CUTILE.reached(source, kernel):
        for call in descendants(caller.node.body, cst.Call):
            if source.function_of(call.func) is function:
                yield caller, call


def local_assignments(form: Form, name: cst.Name) -> tuple[Assignment, ...]:
    """The assignments of a name inside the wrapper; empty for one of the module or a builtin."""
    source, wrapper = form.source, form.wrapper.node
    return tuple(
        a for a in source.assignments(name)
        if any(n is wrapper for n in source.ancestors(a.node))
    )  # fmt: skip


def follows_from_shapes(form: Form, value: cst.BaseExpression) -> bool:
    """Whether an expression of the wrapper is computed from shapes of the kernel's arrays alone."""
    source = form.source
    arrays = {source.code(given) for given in form.launch.arguments.values()}
    pending, seen = [value], set[int]()
    for node in pending:
        for name in descendants(node, cst.Name):
            around = next(source.ancestors(name))
            asked = isinstance(around, cst.Attribute) and around.attr.value == "shape"
            if asked and name.value in arrays:
                continue
            for assignment in local_assignments(form, name):
                above = source.ancestors(assignment.node)
                statement = next((a for a in above if isinstance(a, cst.Assign)), None)
                if statement is None:
                    return False
                if id(statement) not in seen:
                    seen.add(id(statement))
                    pending.append(statement.value)
    return True
