"""Operators that a kernel's file registers with PyTorch, by names of their own in its frozen copy.

A name is registered once a process: what registers it again takes the first one's place. So a test
that has both the file and the copy of it would compare the copy with itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import libcst as cst

from agent.syntax import Source, argument, descendants

LIBRARY = "torch.library.Library"
NAMING = frozenset(f"torch.library.{name}" for name in ("custom_op", "define", "triton_op"))
"""What gives an operator its name, `namespace::name`."""
QUALIFIED = re.compile(r"(\w+)::(\w+)")
OWN = "_origin"
"""Behind the namespace, in the copy."""

Operator = tuple[str, str]
"""Namespace and name."""


def with_own_operators(text: str) -> str:
    """A file's text, in which the operators that it registers are of a namespace of its own.

    What others register keeps its name, and so does what is registered by a computed one.
    """
    if "torch" not in text or "library" not in text:
        return text
    source = Source(text)
    qualified = _qualified(source)
    libraries = _libraries(source)
    operators = {*qualified, *(found for each in libraries.values() for found in each)}
    if not operators:
        return text
    edits: dict[cst.CSTNode, Callable[[Any], Any]] = {}
    for node in descendants(source.module, cst.SimpleString):
        found = QUALIFIED.match(node.raw_value)
        if found and (found[1], found[2]) in operators:
            edits[node] = _longer(found[1])
    namespaces = {namespace for found in libraries.values() for namespace, _ in found}
    for call in source.calls:
        if source.name(call.func) == LIBRARY and _string(call) in namespaces:
            edits[call.args[0].value] = _longer(_string(call))
    others = set()  # namespaces that another file's operators are in, too
    spaces: list[cst.Attribute] = []
    for asked in descendants(source.module, cst.Attribute):
        if source.name(asked.value) == "torch.ops":
            spaces.append(asked)
        space = asked.value if isinstance(asked.value, cst.Attribute) else None
        if space is not None and source.name(space.value) == "torch.ops":
            named = (space.attr.value, asked.attr.value)
            if named in operators:
                edits[space.attr] = _renamed
            else:
                others.add(space.attr.value)
    for space in spaces:  # `ops = torch.ops.namespace`
        if space.attr.value in {namespace for namespace, _ in operators} - others:
            edits[space.attr] = _renamed
    return source.rewrite(edits)


def _qualified(source: Source) -> Collection[Operator]:
    """Those of `custom_op("namespace::name", ...)`."""
    given = (_string(call) for call in source.calls if source.name(call.func) in NAMING)
    return {(found[1], found[2]) for text in given if (found := QUALIFIED.match(text))}


def _libraries(source: Source) -> dict[cst.Call, list[Operator]]:
    """Each `Library("namespace", ...)` that defines operators, with these."""
    found: dict[cst.Call, list[Operator]] = {}
    for call in source.calls:
        match call.func:
            case cst.Attribute(value=cst.Name() as owner, attr=cst.Name(value="define")):
                library = source.resolve(owner)
                name = re.match(r"\w+", _string(call))
                if name and isinstance(library, cst.Call) and source.name(library.func) == LIBRARY:
                    found.setdefault(library, []).append((_string(library), name[0]))
    return {library: operators for library, operators in found.items() if _string(library)}


def _string(call: cst.Call) -> str:
    """The first argument by its place, where it is a plain string."""
    first = argument(call, 0, "name")
    value = first.evaluated_value if isinstance(first, cst.SimpleString) else ""
    return value if isinstance(value, str) and call.args[0].value is first else ""


def _longer(namespace: str) -> Callable[[cst.SimpleString], cst.SimpleString]:
    def edit(node: cst.SimpleString) -> cst.SimpleString:
        at = len(node.prefix) + len(node.quote) + len(namespace)
        return node.with_changes(value=f"{node.value[:at]}{OWN}{node.value[at:]}")

    return edit


def _renamed(name: cst.Name) -> cst.Name:
    return name.with_changes(value=f"{name.value}{OWN}")
