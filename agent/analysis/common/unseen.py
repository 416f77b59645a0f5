"""Functions that a kernel calls and that its file does not show: what they compute is not known.

As `mm` of `from ops import mm`, or what is handed to the kernel to be called. Nobody may say of
such a kernel that it multiplies no tiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst.metadata.scope_provider import ImportAssignment

from agent.analysis.common.dialect import Dialect, Kernel
from agent.syntax import Function, Source, assigned, children, descendants

_PRODUCT = re.compile(r"(?i:(?:^|_)(?:dot|gemm|matmul|mma)(?:_|$))")
_KNOWN = ("builtins.", "math.")
_MEMORY = re.compile(r"(?i:ptr|pointer)|^(?:[A-Z]|[abcpqvwxyz]$)")
"""How arrays and pointers are called, where nothing else tells them from numbers: `x_ptr`, `X`,
`Out` and `x`."""


def unseen_calls(dialect: Dialect, source: Source, kernel: Kernel) -> tuple[cst.Call, ...]:
    """The calls of such functions by a kernel and its helpers that may do work.

    Those whose result goes into what is stored or returned, or that nothing reads the result of. A
    function that only gives places, such as a swizzle of the program's number, does none.
    """
    return tuple(
        call
        for function in dialect.reached(source, kernel)
        for call in _working(dialect, source, function)
    )


def may_multiply(source: Source, call: cst.Call) -> bool:
    """Whether such a call is of a product by its name, or is handed memory by a parameter's name.

    Another one of tiles that are loaded already computes on each element of them as a rule, as an
    activation does; of memory it may load tiles.
    """
    if multiplies_by_name(call):
        return True
    function = source.enclosing(call)
    if function is None:
        return False
    named = {p.name.value for p in function.parameters if p.annotation is None}
    given = {a.value.value for a in call.args if isinstance(a.value, cst.Name)}
    return any(_MEMORY.search(name) for name in named & given)


def multiplies_by_name(call: cst.Call) -> bool:
    """Whether what is called has a name of products: `language.dot` of trident, `_dot_ieee`."""
    called = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return isinstance(called, cst.Name) and _PRODUCT.search(called.value) is not None


def is_unseen(dialect: Dialect, source: Source, call: cst.Call) -> bool:
    """Whether a call of a kernel is of a function that neither the file nor the language has."""
    function = source.enclosing(call)
    if function is None or source.function_of(call.func) is not None:
        return False
    called = dialect.called(source, call)
    if called is None:
        return isinstance(call.func, cst.Name) and _imported(source, call.func)
    if dialect.owns(called) or called.startswith(_KNOWN):
        return False
    own = f"{function.name}."
    if not called.startswith(own):
        return True
    return called.removeprefix(own) in {p.name.value for p in function.parameters}


def _imported(source: Source, name: cst.Name) -> bool:
    """Whether a name without one meaning comes by an import, as by `from ops import *`."""
    assignments = source.assignments(name)
    return not assignments or any(isinstance(each, ImportAssignment) for each in assignments)


def _working(dialect: Dialect, source: Source, function: Function) -> Iterator[cst.Call]:
    body = function.node.body
    calls = [c for c in descendants(body, cst.Call) if is_unseen(dialect, source, c)]
    for call in calls:
        around = next(source.ancestors(call), None)
        if isinstance(around, cst.Expr) or _is_stored(dialect, source, function, call):
            yield call


def _is_stored(dialect: Dialect, source: Source, function: Function, call: cst.Call) -> bool:
    """Whether what a call gives goes into a value that its function stores, returns or hands on."""
    body = function.node.body
    names: set[str] = set()

    def within(node: cst.CSTNode) -> bool:
        """Whether it is computed from it; what is loaded from a place is not."""
        if node is call:
            return True
        if isinstance(node, cst.Name):
            return node.value in names
        if isinstance(node, cst.Call) and dialect.called(source, node) in dialect.loads:
            return False
        return any(within(child) for child in children(node))

    flows = [*assigned(body)]
    before = -1
    while before != len(names):
        before = len(names)
        for target, value in flows:
            if within(value):
                names.update(n.value for n in descendants(target, cst.Name))
    for other in descendants(body, cst.Call):
        stored = dialect.stored(source, other)
        if stored is not None and within(stored):
            return True
    returned = (r.value for r in descendants(body, cst.Return))
    return any(value is not None and within(value) for value in returned)
