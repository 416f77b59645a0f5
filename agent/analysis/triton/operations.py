"""Operations that a Triton kernel calls, and what its stored values are computed from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.triton.dialect import THROUGH_DESCRIPTOR, TRITON
from agent.analysis.triton.pointers import leftmost
from agent.syntax import Function, Source, argument, assigned, children, descendants

REDUCTIONS = frozenset(
    ("sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce_or", "softmax")
)
SUMS = frozenset(("sum", "reduce", "softmax"))
"""Reductions that may be a norm's; the largest element alone normalizes nothing."""
SCANS = frozenset(("cumsum", "cumprod", "associative_scan", "sort", "topk", "histogram"))
EXPONENTIALS = frozenset(("exp", "exp2", "softmax"))
DOTS = frozenset(("dot", "dot_scaled"))
LOADS = frozenset(("load", "load_tensor_descriptor", "gather_tensor_descriptor"))
RANDOM = frozenset(("rand", "randn", "randint", "rand4x", "randn4x", "randint4x"))
ATOMIC = "atomic_"
MEMBERS = REDUCTIONS | SCANS | {"abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid",
                                "cos", "sin", "erf", "floor", "ceil", "to", "cast",
                                "item"}  # fmt: skip
"""Functions of triton.language that are methods of a tile too: `x.sum(axis=0)`."""


def entry_kernels(source: Source) -> tuple[Kernel, ...]:
    """The kernels that a host launches, here or elsewhere; helpers of kernels are none.

    Who returns a value is a helper, whatever the host does with its name.
    """
    helpers = for_kernels(source)
    return tuple(k for k in TRITON.launched(source) if k.function not in helpers)


def for_kernels(source: Source) -> frozenset[Function]:
    """The jitted functions that no host can launch: kernels call them, or they return a value."""
    found = TRITON.kernels(source)
    device = {k.function for k in found}
    return frozenset(
        k.function
        for k in found
        if not k.launches
        and (
            _returns_value(k.function)
            or any(source.enclosing(name) in device for name in source.mentions(k.function))
        )
    )


def _returns_value(function: Function) -> bool:
    returned = descendants(function.node.body, cst.Return)
    return any(statement.value is not None for statement in returned)


@dataclass(frozen=True)
class Store:
    """A place that writes memory."""

    call: cst.Call
    function: Function
    operation: str
    """'store', 'store_tensor_descriptor', 'atomic_add', 'atomic_add_tensor_descriptor'."""
    value: cst.BaseExpression
    address: tuple[cst.BaseExpression, ...]
    """The pointer, or the descriptor with its offsets."""


Place = tuple[Function, cst.CSTNode]
"""A node and the function that it stands in."""


def operations_of(source: Source, kernel: Kernel) -> Operations:
    """The operations of a kernel; looked up where they were asked for before."""
    return _operations(source, kernel.function)


@lru_cache(maxsize=64)
def _operations(source: Source, function: Function) -> Operations:
    return Operations(source, next(k for k in TRITON.kernels(source) if k.function is function))


class Operations:
    """The operations of a kernel and of the helpers of the file that it calls."""

    def __init__(self, source: Source, kernel: Kernel) -> None:
        self.source = source
        self.kernel = kernel
        self.functions = TRITON.reached(source, kernel)
        self._behind: dict[tuple[cst.CSTNode, bool, frozenset[str]], frozenset[cst.CSTNode]] = {}
        self._known: dict[cst.Call, str | None] = {}

    @cached_property
    def calls(self) -> tuple[tuple[Function, cst.Call, str | None], ...]:
        """Every call with the function it stands in and what it does, as `operation` says."""
        return tuple(
            (function, call, self.operation(call))
            for function in self.functions
            for call in descendants(function.node.body, cst.Call)
        )

    def operation(self, call: cst.Call) -> str | None:
        """'exp' for `tl.exp(x)`, `tl.math.exp(x)`, `libdevice.exp(x)` and `x.exp()`."""
        if call not in self._known:
            self._known[call] = self._operation(call)
        return self._known[call]

    def operation_at(self, node: cst.CSTNode) -> str | None:
        """The same of any node."""
        return self.operation(node) if isinstance(node, cst.Call) else None

    def _operation(self, call: cst.Call) -> str | None:
        called = TRITON.called(self.source, call)
        if TRITON.owns(called):
            return (called or "").rpartition(".")[2]
        if isinstance(call.func, cst.Attribute) and self.source.function_of(call.func) is None:
            member = call.func.attr.value
            return member if member in MEMBERS else None
        return None

    def find(self, names: Collection[str]) -> Iterator[tuple[Function, cst.Call]]:
        """The calls that do one of those."""
        return ((f, call) for f, call, operation in self.calls if operation in names)

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """All that writes memory, atomics included."""
        found = []
        for function, call, operation in self.calls:
            value = TRITON.stored(self.source, call)
            if operation is not None and value is not None:
                found.append(Store(call, function, operation, value, self.address(call)))
        return tuple(found)

    def address(self, call: cst.Call) -> tuple[cst.BaseExpression, ...]:
        """Where a load or a store goes: a pointer, or a descriptor with its offsets."""
        if isinstance(call.func, cst.Attribute) and not TRITON.owns(self.source.name(call.func)):
            operation = self.operation(call) or ""
            listed = operation.startswith(("load", "store", ATOMIC))
            has_offsets = listed and operation.endswith(THROUGH_DESCRIPTOR)
            offsets = argument(call, 0, "offsets") if has_offsets else None
            return (call.func.value, *([offsets] if offsets is not None else []))
        pointer = argument(call, 0, "pointer") or argument(call, 0, "desc")
        if self.operation(call) in ("load_tensor_descriptor", "store_tensor_descriptor"):
            offsets = argument(call, 1, "offsets")
            return tuple(part for part in (pointer, offsets) if part is not None)
        return (pointer,) if pointer is not None else ()

    def behind(
        self,
        function: Function,
        expression: cst.CSTNode,
        *,
        addresses: bool = False,
        but: frozenset[str] = frozenset(),
    ) -> frozenset[cst.CSTNode]:
        """Every node that an expression is computed from, through names and helpers.

        Every assignment of a name counts, wherever it stands; that is coarse and errs towards more.
        An augmented assignment is among the nodes itself.

        Args:
            function: the one the expression stands in.
            expression: what is asked about.
            addresses: look behind the address of a load too, and not only at what it loads.
            but: operations behind whose results is not looked.
        """
        key = (expression, addresses, but)
        if key not in self._behind:
            seen: set[cst.CSTNode] = set()
            todo: list[Place] = [(function, expression)]
            while todo:
                inside, node = todo.pop()
                if node not in seen:
                    seen.add(node)
                    known = self.operation_at(node) in but
                    todo += [] if known else self._below(inside, node, addresses)
            self._behind[key] = frozenset(seen)
        return self._behind[key]

    def holds_load(self, function: Function, node: cst.CSTNode) -> bool:
        """Whether what was loaded goes into a node."""
        return any(
            self.operation(call) in LOADS
            or any(self._returns_load(f) for f in self.functions
                   if f is self.source.function_of(call.func))
            for call in descendants(node, cst.Call)
        ) or any(
            (function, name.value) in self._loaded_names for name in descendants(node, cst.Name)
        )  # fmt: skip

    def _returns_load(self, helper: Function) -> bool:
        return any(
            any(isinstance(n, cst.Call) and self.operation(n) in LOADS
                for n in self.behind(helper, value))
            for value in _returned(helper)
        )  # fmt: skip

    @cached_property
    def _loaded_names(self) -> frozenset[tuple[Function, str]]:
        """The names that what was loaded goes into, with their functions."""
        found: set[tuple[Function, str]] = set()
        for function in self.functions:
            names = {n for n, _ in self._assignments[function]}
            names |= {p.name.value for p in function.parameters}
            for name in names:
                nodes = [self.behind(f, n) for f, n in self.definitions(function, name)]
                calls = (n for n in frozenset[cst.CSTNode]().union(*nodes)
                         if isinstance(n, cst.Call))  # fmt: skip
                if any(self.operation(call) in LOADS for call in calls):
                    found.add((function, name))
        return frozenset(found)

    def _below(self, function: Function, node: cst.CSTNode, addresses: bool) -> list[Place]:
        if isinstance(node, cst.Name):
            return self.definitions(function, node.value)
        if isinstance(node, cst.Call):
            helper = self.source.function_of(node.func)
            if helper is not None and helper in self.functions:
                return [(helper, value) for value in _returned(helper)]
            if self.operation(node) in LOADS and not addresses:
                return []
            below: list[cst.CSTNode] = [a.value for a in node.args]
            if isinstance(node.func, cst.Attribute):
                below.append(node.func.value)
            return [(function, child) for child in below]
        if isinstance(node, cst.Attribute):
            return [(function, node.value)]
        return [(function, child) for child in children(node)]

    def definitions(self, function: Function, name: str) -> list[Place]:
        """All that a name of a function may be computed from, and what calls pass for it."""
        found = [(function, node) for n, node in self._assignments[function] if n == name]
        names = [p.name.value for p in function.parameters]
        if name in names:
            found += self._handed_over(function, names.index(name), name)
        return found

    @cached_property
    def _assignments(self) -> dict[Function, list[tuple[str, cst.CSTNode]]]:
        """Names and what they are assigned, function by function."""
        found: dict[Function, list[tuple[str, cst.CSTNode]]] = {}
        for function in self.functions:
            body = function.node.body
            here: list[tuple[str, cst.CSTNode]] = [
                (augmented.target.value, augmented)
                for augmented in descendants(body, cst.AugAssign)
                if isinstance(augmented.target, cst.Name)
            ]
            for target, value in assigned(body):
                parts = [(target, value)]
                if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
                    pairs = zip(target.elements, value.elements, strict=False)
                    parts = [(one.value, other.value) for one, other in pairs]
                for part, behind in parts:
                    here += [(n.value, behind) for n in descendants(part, cst.Name)]
            found[function] = here
        return found

    def _handed_over(self, helper: Function, position: int, name: str) -> list[Place]:
        """What the calls of a helper pass for a parameter."""
        found: list[Place] = []
        for caller, call, _ in self.calls:
            if self.source.function_of(call.func) is helper:
                value = argument(call, position, name)
                found += [(caller, value)] if value is not None else []
        return found

    def roots(self, function: Function, address: cst.BaseExpression) -> frozenset[str]:
        """The kernel's parameters that an address may begin with: `x_ptr` of `x_ptr + offsets`.

        Several where a helper is called with several, or a name is assigned different pointers.
        """
        found: set[str] = set()
        seen: set[tuple[str, str]] = set()
        todo: list[Place] = [(function, address)]
        while todo:
            inside, node = todo.pop()
            if isinstance(node, cst.BaseExpression):
                node = leftmost(self.source, node)
            if not isinstance(node, cst.Name) or (inside.name, node.value) in seen:
                continue
            seen.add((inside.name, node.value))
            if inside is self.kernel.function:
                found |= {node.value} & {p.name.value for p in inside.parameters}
            todo += [
                (where, behind)
                for where, behind in self.definitions(inside, node.value)
                if not (isinstance(behind, cst.AugAssign) or self._is_added(behind))
            ]
        return frozenset(found)

    def _is_added(self, value: cst.CSTNode) -> bool:
        """Whether it is what an address is advanced by: `p += value` begins where `p` does."""
        around = next(iter(self.source.ancestors(value)), None)
        return isinstance(around, cst.AugAssign) and around.value is value


def _returned(function: Function) -> list[cst.BaseExpression]:
    found = descendants(function.node.body, cst.Return)
    return [statement.value for statement in found if statement.value is not None]
