"""Operators that a kernel's file registers with PyTorch, by names of their own in a copy of it.

A name is registered once a process: what registers it again takes the first one's place. So a test
that has both the file and its frozen copy, or its port, would compare the second with itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import libcst as cst

from agent.syntax import Source, argument, descendants

LIBRARY = "torch.library.Library"
NAMING = frozenset(f"torch.library.{name}" for name in ("custom_op", "define", "triton_op"))
"""What gives an operator its name, `namespace::name`."""
ADDING = frozenset((
    "impl", "impl_abstract", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_torch_dispatch", "register_vmap",
))  # fmt: skip
"""What adds to an operator that there is already."""
REGISTERING = re.compile(r"(register\w*_op|custom_op|triton_op|register_operator)$")
"""What projects call functions of theirs that register an operator."""
QUALIFIED = re.compile(r"(\w+)::(\w+)")
OWN = "_origin"
"""Behind the namespace, in a frozen copy."""

Operator = tuple[str, str]
"""Namespace and name."""


def computed_names(text: str, registered: Collection[str]) -> set[Operator]:
    """Operators that a file was seen to register, and whose names do not stand in it.

    Args:
        text: of the file.
        registered: `namespace::name` of each.
    """
    seen = {(found[1], found[2]) for name in registered if (found := QUALIFIED.fullmatch(name))}
    return seen - {*operators_of(Source(text))} if seen else seen


def with_own_operators(text: str, own: str = OWN, computed: Collection[Operator] = ()) -> str:
    """A file's text, in which the operators that it registers are of a namespace of its own.

    What others register keeps its name.

    Args:
        text: the file.
        own: what is put behind the namespace.
        computed: those of its operators that get theirs elsewhere, when it is loaded; what is
            registered by another computed name keeps that.
    """
    if not computed and "::" not in text and "library" not in text:
        return text
    source = Source(text)
    operators = {*computed, *operators_of(source)}
    if not operators:
        return text
    edits: dict[cst.CSTNode, Callable[[Any], Any]] = {}
    for node in descendants(source.module, cst.SimpleString):
        found = QUALIFIED.match(node.raw_value)
        if found and (found[1], found[2]) in operators:
            edits[node] = _longer(found[1], own)
    namespaces = _namespaces(source)
    for call in source.calls:
        if source.name(call.func) == LIBRARY and _string(call) in namespaces:
            edits[call.args[0].value] = _longer(_string(call), own)

    def renamed(name: cst.Name) -> cst.Name:
        return name.with_changes(value=f"{name.value}{own}")

    others = set()  # namespaces that another file's operators are in, too
    spaces: list[cst.Attribute] = []
    for asked in descendants(source.module, cst.Attribute):
        if source.name(asked.value) == "torch.ops":
            spaces.append(asked)
        space = asked.value if isinstance(asked.value, cst.Attribute) else None
        if space is not None and source.name(space.value) == "torch.ops":
            named = (space.attr.value, asked.attr.value)
            if named in operators:
                edits[space.attr] = renamed
            else:
                others.add(space.attr.value)
    for space in spaces:  # `ops = torch.ops.namespace`
        if space.attr.value in {namespace for namespace, _ in operators} - others:
            edits[space.attr] = renamed
    return source.rewrite(edits)


def operators_of(source: Source) -> Mapping[Operator, cst.Call]:
    """The operators that a file registers by a name that it spells out, with what names each."""
    found = {
        (named[1], named[2]): call
        for call in _naming(source)
        if (named := QUALIFIED.match(_string(call)))
    }
    for defined in _libraries(source).values():
        found |= defined
    return found


def registered_otherwise(source: Source) -> tuple[cst.Call, ...]:
    """What registers something that keeps its name: a computed one, or another file's operator."""
    own = operators_of(source)
    named = frozenset(own.values())
    return tuple(c for c in source.calls if c not in named and _registers(source, c, own))


def _registers(source: Source, call: cst.Call, own: Mapping[Operator, cst.Call]) -> bool:
    """Whether a call registers something, under a name that is not among the file's own."""
    called = source.name(call.func) or source.code(call.func)
    last = called.rpartition(".")[2]
    first = argument(call, 0, "qualname")
    if called in NAMING:
        return True
    if called.startswith("torch.library.") and last in ADDING:
        operator = QUALIFIED.match(_string(call))
        if operator is not None:
            return (operator[1], operator[2]) not in own
        if isinstance(first, cst.FormattedString):
            return True
        return first is not None and _is_others(source, first)
    if isinstance(call.func, cst.Attribute) and last in ("define", "impl"):
        return _is_others(source, call.func.value)
    return REGISTERING.search(called) is not None


def _is_others(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression is a library in whose namespace the file defines nothing."""
    library = source.resolve(node)
    if not isinstance(library, cst.Call) or source.name(library.func) != LIBRARY:
        return False
    return _string(library) not in _namespaces(source)


def _naming(source: Source) -> Iterator[cst.Call]:
    """The calls that name an operator: `custom_op("namespace::name", ...)`.

    So does a decorator of the project's own, if it is given such a name first.
    """
    decorators = _decorators(source)
    for call in source.calls:
        called = source.name(call.func) or source.code(call.func)
        if called in NAMING:
            yield call
        elif call in decorators and not called.startswith("torch."):
            is_other = called.rpartition(".")[2] in ADDING
            if not is_other and QUALIFIED.fullmatch(_string(call)):
                yield call


def _decorators(source: Source) -> frozenset[cst.BaseExpression]:
    return frozenset(each.decorator for each in descendants(source.module, cst.Decorator))


def _libraries(source: Source) -> dict[cst.Call, dict[Operator, cst.Call]]:
    """Each `Library("namespace", ...)` that defines operators, with what defines these."""
    found: dict[cst.Call, dict[Operator, cst.Call]] = {}
    for call in source.calls:
        match call.func:
            case cst.Attribute(value=cst.Name() as owner, attr=cst.Name(value="define")):
                library = source.resolve(owner)
                name = re.match(r"\w+", _string(call))
                if name and isinstance(library, cst.Call) and source.name(library.func) == LIBRARY:
                    found.setdefault(library, {})[_string(library), name[0]] = call
    return {library: operators for library, operators in found.items() if _string(library)}


def _namespaces(source: Source) -> frozenset[str]:
    """Those in which libraries of the file define operators."""
    return frozenset(ns for found in _libraries(source).values() for ns, _ in found)


def _string(call: cst.Call) -> str:
    """The first argument by its place, where it is a plain string."""
    first = argument(call, 0, "name")
    value = first.evaluated_value if isinstance(first, cst.SimpleString) else ""
    return value if isinstance(value, str) and value and call.args[0].value is first else ""


def _longer(namespace: str, own: str) -> Callable[[cst.SimpleString], cst.SimpleString]:
    def edit(node: cst.SimpleString) -> cst.SimpleString:
        at = len(node.prefix) + len(node.quote) + len(namespace)
        return node.with_changes(value=f"{node.value[:at]}{own}{node.value[at:]}")

    return edit
