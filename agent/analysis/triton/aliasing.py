"""Which arguments of a launch lie in the same memory: certainly, or possibly.

Two arguments are certainly apart only where one of them is made in the function that launches, by
what allocates, and the other is not made of it. All else may be one tensor: two parameters of a
function (`f(x, out=x)`), what a condition chooses (`y = x if inplace else empty_like(x)`), and what
a view is taken of (`x[0]`).
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.triton.host import HostView
from agent.syntax import Source, assigned, descendants, keyword, names_in

LIKE = ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
ALLOCATING = frozenset(
    f"torch.{name}"
    for name in (*LIKE, *(f"{name}_like" for name in LIKE), "arange", "empty_strided", "tensor")
)
ALLOCATING_METHODS = frozenset(
    {"clone", *(f"new_{name}" for name in ("empty", "empty_strided", "full", "ones", "zeros"))}
)
VIEWING = frozenset(
    {
        "detach", "expand", "expand_as", "movedim", "permute", "squeeze", "swapaxes", "swapdims",
        "t", "transpose", "unflatten", "unsqueeze", "view", "view_as",
    }
)  # fmt: skip
"""Methods whose result lies in the same memory in any case."""
PERHAPS_VIEWING = frozenset({"contiguous", "flatten", "reshape", "select", "narrow"})
"""Methods whose result may be a copy, or only a part of it: of new memory, new memory still."""
HOLDING = frozenset({"append", "extend", "insert", "setdefault", "update"})
"""Methods that make what holds tensors hold another one."""
VIEWS = frozenset({"H", "T", "data", "mH", "mT"})


def alike(source: Source, kernel: Kernel) -> dict[str, str]:
    """Parameter -> an earlier one that some launch gives the same tensor, or another view of it."""
    found: dict[str, str] = {}
    for launch in kernel.launches:
        view = HostView(source, launch)
        first: dict[str, str] = {}
        for name, value in launch.arguments.items():
            identity = view.identity(_viewed(source, value))
            found.setdefault(name, first.setdefault(identity, name))
    return {name: other for name, other in found.items() if name != other}


def may_share(source: Source, kernel: Kernel, one: str, other: str) -> bool:
    """Whether some launch may give two pointers of a kernel the same memory."""
    return one == other or any(_share(source, x, one, other) for x in kernel.launches)


def allocation(source: Source, launch: Launch, value: cst.BaseExpression) -> cst.Call | None:
    """What makes a tensor that is plainly new at each launch; None where that is not certain."""
    found = _allocation(source, value)
    same = found is not None and source.enclosing(found) is launch.function
    return found if same and launch.function is not None else None


def _share(source: Source, launch: Launch, one: str, other: str) -> bool:
    view = HostView(source, launch)
    values = [view.given(name) for name in (one, other)]
    first, second = values
    if first is None or second is None:
        return True
    if any(isinstance(value, cst.Name) and value.value == "None" for value in values):
        return False
    made = [allocation(source, launch, value) for value in (first, second)]
    if made[0] is not None and made[1] is not None:
        return made[0] is made[1]
    for new, behind in ((made[0], second), (made[1], first)):
        if new is not None:
            return bool(_names_of(launch, new) & _made_of(launch, behind))
    return True


def _viewed(source: Source, value: cst.BaseExpression) -> cst.BaseExpression:
    """What a view is taken of; a tensor that is none stays itself."""
    while True:
        match behind := value_of(source, value):
            case cst.Call(func=cst.Attribute(value=viewed, attr=cst.Name(value=name))) if (
                name in VIEWING and not (source.name(behind.func) or "").startswith("torch.")
            ):
                value = viewed
            case cst.Attribute(value=viewed, attr=cst.Name(value=name)) if name in VIEWS:
                value = viewed
            case _:
                return value


def _allocation(source: Source, value: cst.BaseExpression) -> cst.Call | None:
    while True:
        match behind := value_of(source, value):
            case cst.Call() if source.name(behind.func) in ALLOCATING:
                hidden = any(arg.star for arg in behind.args)
                return None if hidden or keyword(behind, "out") is not None else behind
            case cst.Call(func=cst.Attribute(value=viewed, attr=cst.Name(value=name))):
                if name in ALLOCATING_METHODS:
                    return behind
                if name not in VIEWING | PERHAPS_VIEWING:
                    return None
                value = viewed
            case cst.Attribute(value=viewed, attr=cst.Name(value=name)) if name in VIEWS:
                value = viewed
            case cst.Subscript(value=viewed):
                value = viewed
            case _:
                return None


def _assigned_in(launch: Launch) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    assert launch.function is not None
    body = launch.function.node.body
    yield from assigned(body)
    yield from ((walrus.target, walrus.value) for walrus in descendants(body, cst.NamedExpr))
    for call in descendants(body, cst.Call):  # `tensors.append(y)` makes a list hold it
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in HOLDING:
            yield from ((call.func.value, arg.value) for arg in call.args)


def _names_of(launch: Launch, new: cst.Call) -> set[str]:
    """The names that a tensor is given where it is made, and those of its views."""
    return {
        name.value
        for target, value in _assigned_in(launch)
        if any(part is new for part in descendants(value, cst.Call))
        for name in descendants(target, cst.Name)
    }


def _made_of(launch: Launch, value: cst.BaseExpression) -> set[str]:
    """The names that an argument may be computed from, whatever the order of the lines."""
    names = names_in(value)
    while True:
        more = {
            name.value
            for target, computed in _assigned_in(launch)
            if any(n.value in names for n in descendants(target, cst.Name))
            for name in descendants(computed, cst.Name)
        }
        if more <= names:
            return names
        names |= more
