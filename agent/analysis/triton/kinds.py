"""The kind of a Triton kernel, by its syntax tree: it decides which hints of Tile IR pay.

The kinds and their decision tree are those of TensorRT-LLM's kernel-tileir-optimization skill. It
decides by words of the file; here the question is what the stored values are computed from:

- attention: a dot of the exponential of another dot, which is more than the divisor of a sigmoid
- dot-related: any other dot
- norm-like: a sum over a row goes into a tile that is stored along that same row
- reduction: a reduction, a scan, an atomic, or a sum over a loop is stored, and no such tile
- data movement: what is stored was loaded, perhaps selected by its place, and nothing computed
- unknown: what is stored comes of functions that the file does not show, and none of the above;
  or one of them has a name of products
- element-wise: anything else
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.unseen import multiplies_by_name, unseen_calls
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.operations import (
    ATOMIC,
    DOTS,
    EXPONENTIALS,
    LOADS,
    RANDOM,
    REDUCTIONS,
    SCANS,
    SUMS,
    Operations,
    Store,
    entry_kernels,
    operations_of,
)
from agent.analysis.triton.wrapped import decorated
from agent.errors import UsageError
from agent.syntax import Function, Source, argument, descendants, names_in

RESHAPED = frozenset({
    "to", "cast", "reshape", "view", "ravel", "trans", "permute", "broadcast_to", "expand_dims",
    "multiple_of", "max_contiguous", "max_constancy",
})  # fmt: skip
"""What gives the same elements, in another form or with something said of them."""


class Kind(StrEnum):
    """What a kernel does, the most work first."""

    ATTENTION = "attention"
    DOT = "dot-related"
    NORM = "norm-like"
    REDUCTION = "reduction"
    ELEMENT_WISE = "element-wise"
    MOVEMENT = "data movement"
    UNKNOWN = "unknown"

    @property
    def family(self) -> str:
        """Which of the skill's four kinds it is treated as."""
        return {"attention": "dot-related", "data movement": "element-wise"}.get(self, self)

    @property
    def strategy(self) -> str:
        """What the skill does for its family."""
        return {
            "dot-related": "TMA + 2CTA",
            "norm-like": "High occupancy",
            "reduction": "High occupancy",
            "element-wise": "Occupancy + num_stages",
        }.get(self.family, "none")


@dataclass(frozen=True)
class KernelKind:
    """One kernel's kind."""

    kernel: str
    kind: Kind
    confidence: float
    """Share of the calls in the kernel and its helpers whose meaning is known: Triton's, Python's
    or this file's. The others may do anything."""
    indicators: tuple[str, ...]
    """What it follows from, with lines."""


def classify(source: Source) -> tuple[KernelKind, ...]:
    """The kinds of the kernels that the file runs, the most work first.

    Raises:
        UsageError: the file holds no Triton kernel.
    """
    source = decorated(source)
    kernels = entry_kernels(source)
    if not kernels and (helpers := TRITON.kernels(source)):
        raise UsageError(
            f"{source.path} holds only functions that kernels call, such as {helpers[0].name}: "
            "name the file of a kernel that does"
        )
    if not kernels:
        raise UsageError(f"{source.path} holds no @triton.jit kernel: name a file that does")
    found = [classify_kernel(source, kernel) for kernel in kernels]
    order = list(Kind)
    return tuple(sorted(found, key=lambda each: order.index(each.kind)))


def classify_kernel(source: Source, kernel: Kernel) -> KernelKind:
    """The kind of one kernel."""
    operations = operations_of(source, kernel)
    reader = _KindQuestions(operations)
    for read in (
        reader.attention, reader.dot, lambda: reader.unseen(multiplies_by_name), reader.norm,
        reader.reduction, reader.unseen, reader.movement, reader.element_wise,
    ):  # fmt: skip
        found = read()
        if found is not None:
            kind, indicators = found
            return KernelKind(kernel.name, kind, _confidence(operations), tuple(indicators))
    line = source.line(kernel.function.node)
    stored = f"line {line}: nothing is stored by a call that this file shows"
    nothing = reader.undefined() or [stored]
    return KernelKind(kernel.name, Kind.UNKNOWN, _confidence(operations), tuple(nothing))


_Found = tuple[Kind, list[str]] | None


class _KindQuestions:
    """The questions of the decision tree. Each answers with evidence, or None."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self.source = operations.source
        self.behind = {s.call: operations.behind(s.function, s.value) for s in operations.stores}

    def attention(self) -> _Found:
        dots = list(self.operations.find(DOTS))
        for function, dot in dots:
            for operand in (argument(dot, 0, "input"), argument(dot, 1, "other")):
                nodes = self.operations.behind(function, operand) if operand is not None else ()
                for exponential in self._calls(nodes, EXPONENTIALS):
                    inner = self._calls(self._behind_call(exponential), DOTS)
                    if inner and not self._only_divides(exponential):
                        return Kind.ATTENTION, [
                            self._line(inner[0], "a dot"),
                            self._line(exponential, "the exponential of its result"),
                            self._line(dot, "a dot of that"),
                        ]
        return None

    def _only_divides(self, node: cst.CSTNode) -> bool:
        """Whether a value is a part of divisors and of nothing else, as in a sigmoid."""
        inner = node
        for outer in self.source.ancestors(node):
            match outer:
                case cst.BinaryOperation(operator=cst.Divide(), right=right) if right is inner:
                    return True
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as name)]):
                    assignments = self.source.assignments(name)
                    uses = [use for a in assignments for use in self.source.uses(a)]
                    return len(assignments) == 1 and all(map(self._only_divides, uses))
            inner = outer
        return False

    def dot(self) -> _Found:
        dots = [self._line(call, "a dot") for _, call in self.operations.find(DOTS)]
        return (Kind.DOT, dots) if dots else None

    def norm(self) -> _Found:
        for store in self._plain_stores():
            sums = self._calls(self.behind[store.call], SUMS) if self._stores_rows(store) else ()
            for reduction in sums:
                row = self._widest_load(self._behind_call(reduction))
                width = len(self._dimensions(store.call))
                if row and width >= row:
                    return Kind.NORM, [
                        self._line(reduction, "a sum over the loaded tile"),
                        self._line(store.call, "it goes into a tile stored along the same row"),
                    ]
        return None

    def _stores_rows(self, store: Store) -> bool:
        """Whether a store writes more than results of reductions, which are one for each row."""
        rows = LOADS | {"softmax"}
        beside = self.operations.behind(store.function, store.value, but=REDUCTIONS - rows)
        return bool(self._calls(beside, rows))

    def reduction(self) -> _Found:
        found = []
        for store in self.operations.stores:
            calls = self._calls(self.behind[store.call], REDUCTIONS | SCANS)
            found += [self._line(call, "a reduction that is stored") for call in calls]
            if store.operation.startswith(("atomic_add", "atomic_max", "atomic_min")):
                found.append(self._line(store.call, "accumulates over blocks"))
        found += [self._line(each, "gathered over a loop") for each in self._accumulations()]
        return (Kind.REDUCTION, list(dict.fromkeys(found))) if found else None

    def unseen(self, only: Callable[[cst.Call], bool] = lambda _: True) -> _Found:
        told = "not of this file, so that what it computes is not known"
        calls = unseen_calls(TRITON, self.source, self.operations.kernel)
        found = [self._line(call, told) for call in calls if only(call)]
        return (Kind.UNKNOWN, found) if found else None

    def movement(self) -> _Found:
        stores = self._plain_stores()
        if not stores or any(self._arithmetic(self.behind[s.call]) for s in stores):
            return None
        if self.undefined():
            return None
        return Kind.MOVEMENT, [self._line(s.call, "stored as it was loaded") for s in stores]

    def undefined(self) -> list[str]:
        """Names that go into what is stored and that nothing in the file gives a value."""
        names = {
            node
            for store in self.operations.stores
            for node in self.behind[store.call]
            if isinstance(node, cst.Name) and self._is_undefined(node)
        }
        return [
            self._line(name, "stored, and defined nowhere")
            for name in sorted(names, key=self._place)
        ]

    def _place(self, node: cst.CSTNode) -> tuple[int, int]:
        start = self.source.place(node).start
        return start.line, start.column

    def _is_undefined(self, name: cst.Name) -> bool:
        around = next(self.source.ancestors(name), None)
        if isinstance(around, cst.Attribute) and around.attr is name:
            return False
        return not self.source.name(name) and not self.source.assignments(name)

    def element_wise(self) -> _Found:
        found = dict.fromkeys(
            self._line(node, "computed for each element, and no reduction")
            for store in self.operations.stores
            for node in self._arithmetic(self.behind[store.call])[:1]
        )
        return (Kind.ELEMENT_WISE, [*found]) if found else None

    def _plain_stores(self) -> list[Store]:
        return [s for s in self.operations.stores if not s.operation.startswith(ATOMIC)]

    def _calls(self, nodes: frozenset[cst.CSTNode] | tuple[()], names: frozenset[str]
               ) -> list[cst.Call]:  # fmt: skip
        found = [
            n for n in nodes if isinstance(n, cst.Call) and self.operations.operation(n) in names
        ]
        return sorted(found, key=self._place)

    def _behind_call(self, call: cst.Call) -> frozenset[cst.CSTNode]:
        """What the operands of a call are computed from."""
        function = self._function(call)
        operands = [a.value for a in call.args]
        if isinstance(call.func, cst.Attribute):
            operands.append(call.func.value)
        return frozenset[cst.CSTNode]().union(
            *(self.operations.behind(function, operand) for operand in operands)
        )

    def _function(self, node: cst.CSTNode) -> Function:
        return self.source.enclosing(node) or self.operations.kernel.function

    def _widest_load(self, nodes: frozenset[cst.CSTNode]) -> int:
        """How many dimensions the largest loaded tile among the nodes has."""
        loads = self._calls(nodes, LOADS)
        return max((len(self._dimensions(call)) for call in loads), default=0)

    def _dimensions(self, access: cst.Call) -> frozenset[str]:
        """The extents of the tile that a load or store touches, as the source writes them."""
        function = self._function(access)
        found: set[str] = set()
        pointer, *offsets = self.operations.address(access) or (None,)
        nodes: set[cst.CSTNode] = set()
        for part in (pointer, *offsets):
            if part is not None:
                nodes |= self.operations.behind(function, part, addresses=True)
        for call in (node for node in nodes if isinstance(node, cst.Call)):
            name = self.operations.operation(call)
            if name == "arange":
                found.add(self.source.code(call.args[-1].value))
            elif name in ("make_block_ptr", "make_tensor_descriptor"):
                shape = TRITON.shapes[f"triton.language.{name}"].of(call)
                if isinstance(shape, cst.Tuple | cst.List):
                    found |= {self.source.code(e.value) for e in shape.elements} - {"1"}
        if not found and offsets and isinstance(offsets[0], cst.Tuple | cst.List):
            found |= {f"dimension {i}" for i, _ in enumerate(offsets[0].elements)}
        return frozenset(found)

    def _accumulations(self) -> list[cst.CSTNode]:
        """Loops over loads whose sum, or largest element, is stored."""
        stored = frozenset[cst.CSTNode]().union(*self.behind.values())
        found: list[cst.CSTNode] = []
        for function in self.operations.functions:
            loops: list[cst.For | cst.While] = [*descendants(function.node.body, cst.For)]
            loops += descendants(function.node.body, cst.While)
            for name, value in (carried for loop in loops for carried in _carried(loop)):
                if name in names_in(value) and not self._accumulates(name, value):
                    continue
                behind = self.operations.behind(function, value)
                if value in stored and self._calls(behind, LOADS):
                    found.append(value)
        return found

    def _accumulates(self, name: str, value: cst.BaseExpression) -> bool:
        """Whether a carried value is computed with what it was, not only masked or reshaped."""
        match value:
            case cst.Name() if value.value == name:
                return False
            case cst.Call() if self.operations.operation(value) == "where":
                condition = argument(value, 0, "condition")
                parts = [argument(value, 1, "x"), argument(value, 2, "y")]
            case cst.IfExp():
                condition, parts = value.test, [value.body, value.orelse]
            case cst.Call() if self.operations.operation(value) in RESHAPED:
                condition, parts = None, [value.func, *(each.value for each in value.args)]
            case cst.Attribute() | cst.Subscript():
                condition, parts = None, [value.value]
            case _:
                return name in names_in(value)
        return (condition is not None and name in names_in(condition)) or any(
            self._accumulates(name, part) for part in parts if part is not None
        )

    def _arithmetic(self, nodes: frozenset[cst.CSTNode]) -> list[cst.CSTNode]:
        """What computes with loaded values; with any, where nothing is loaded."""
        names = {name.rpartition(".")[2] for name in TRITON.arithmetic}
        found = [
            node
            for node in nodes
            if isinstance(node, cst.BinaryOperation | cst.Comparison | cst.AugAssign)
            or (isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus))
            or (isinstance(node, cst.Call) and self.operations.operation(node) in names)
        ]
        if self._calls(nodes, LOADS):
            found = [
                n
                for n in found
                if self.operations.holds_load(self._function(n), n) and not self._selects(n)
            ]
        return sorted(found, key=self._place)

    def _selects(self, node: cst.CSTNode) -> bool:
        """Whether it is a `tl.where` that asks for the place of an element, not for its value."""
        if not isinstance(node, cst.Call) or self.operations.operation(node) != "where":
            return False
        condition, function = argument(node, 0, "condition"), self._function(node)
        return (
            condition is not None
            and not self.operations.holds_load(function, condition)
            and not self._calls(self.operations.behind(function, condition), RANDOM)
        )

    def _line(self, node: cst.CSTNode, text: str) -> str:
        shown = code if len(code := self.source.code(node)) <= 60 else f"{code[:57]}..."
        return f"line {self.source.line(node)}: {text}: `{shown}`"


def _carried(loop: cst.For | cst.While) -> list[tuple[str, cst.BaseExpression]]:
    """What a loop makes of names of its own, or adds to them: `top = tl.maximum(top, x)`,
    `total += x`."""
    plain: set[str] = set()
    found: list[tuple[str, cst.BaseExpression]] = [
        (augmented.target.value, augmented.value)
        for augmented in descendants(loop.body, cst.AugAssign)
        if isinstance(augmented.target, cst.Name)
    ]
    for assign in descendants(loop.body, cst.Assign):
        for target in (t.target for t in assign.targets if isinstance(t.target, cst.Name)):
            if target.value in names_in(assign.value):
                found.append((target.value, assign.value))
            else:
                plain.add(target.value)
    return [(name, value) for name, value in found if name not in plain]


def _confidence(operations: Operations) -> float:
    """The share of calls whose meaning is known."""
    source = operations.source
    known = total = 0
    for function, call, operation in operations.calls:
        total += 1
        named = source.name(call.func) or ""
        method = isinstance(call.func, cst.Attribute) and (
            not named or named.startswith(f"{function.name}.")
        )
        known += (
            operation is not None
            or method
            or source.function_of(call.func) is not None
            or named.startswith(("triton.", "builtins."))
        )
    return round(known / total, 2) if total else 1.0
