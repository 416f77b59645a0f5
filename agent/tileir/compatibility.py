"""What stands between a kernel and Triton's Tile IR backend: operations and the memory model.

The operations are those that the Triton-to-tile-IR README lists as unsupported, for CUDA 13.1 and
for 13.4. An unsupported one fails loudly, at compile time. The memory model does not: Tile IR does
not order accesses to global memory, so that a kernel which reads what it writes, or whose blocks
wait for one another, compiles and may be wrong. Such a kernel is stopped here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.triton.dialect import THROUGH_DESCRIPTOR, TRITON
from agent.analysis.triton.operations import (
    ATOMIC,
    DOTS,
    LOADS,
    Operations,
    entry_kernels,
    operations_of,
)
from agent.syntax import Source, argument, descendants, keyword
from agent.tileir import descriptors, hints

BLOCK_POINTERS = "block pointers: use tl.make_tensor_descriptor"
UNSUPPORTED = {
    "inline_asm_elementwise": "inline PTX",
    "erf": "math.erf",
    "histogram": "histograms",
    "make_block_ptr": BLOCK_POINTERS,
}
"""Operation -> what it is; missing in CUDA 13.1 and in 13.4."""
SINCE_13_4 = {
    "gather": "tl.gather, and slow for large tiles after that",
    "map_elementwise": "tl.map_elementwise",
    "dot_scaled": "tl.dot_scaled, and mixed formats never",
    "item": "a tile's only element as a scalar",
    "extern_elementwise": "functions of other libraries",
    **descriptors.OPERATIONS,
}
NEVER_FLOAT = ("atomic_min_tensor_descriptor", "atomic_max_tensor_descriptor")
"""What CUDA 13.4 has for integers alone."""


class Impact(StrEnum):
    """What a finding means for the way to Tile IR."""

    STOP = "stop"
    """Wrong or uncompilable there: no configs are prepared, nothing is run."""
    NOTE = "note"
    """Depends on the version or on a type that the source does not tell; or it is only slow."""


@dataclass(frozen=True)
class Obstacle:
    """One thing in the way."""

    kernel: str
    line: int
    severity: Impact
    kind: str
    """'operation', 'memory model', 'descriptor', 'hint' or 'speed'."""
    text: str


def check(source: Source) -> tuple[Obstacle, ...]:
    """What is in the way of each kernel that the file runs, in the order of the file."""
    found = [f for kernel in entry_kernels(source) for f in check_kernel(source, kernel)]
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: finding.line))


def stops(findings: tuple[Obstacle, ...], kernel: str | None = None) -> tuple[Obstacle, ...]:
    """Those that keep a kernel, or any, from Tile IR."""
    return tuple(f for f in findings if f.severity is Impact.STOP and kernel in (None, f.kernel))


def check_kernel(source: Source, kernel: Kernel) -> Iterator[Obstacle]:
    """What is in the way of one kernel."""
    checks = _Checks(operations_of(source, kernel))
    yield from checks.operations_missing()
    yield from checks.in_place()
    yield from checks.aliases()
    yield from checks.blocks_that_wait()
    yield from checks.descriptors()
    yield from checks.slow()
    yield from checks.hints()


class _Checks:
    def __init__(self, operations: Operations) -> None:
        self.operations = operations
        self.source = operations.source
        self.kernel = operations.kernel

    def _finding(self, node: cst.CSTNode, severity: Impact, kind: str, text: str) -> Obstacle:
        return Obstacle(self.kernel.name, self.source.line(node), severity, kind, text)

    def operations_missing(self) -> Iterator[Obstacle]:
        """What the backend cannot compile, now or before CUDA 13.4."""
        for _, call, operation in self.operations.calls:
            if operation in UNSUPPORTED:
                yield self._finding(
                    call, Impact.STOP, "operation", f"Tile IR has no {UNSUPPORTED[operation]}"
                )
            elif operation in SINCE_13_4:
                later = ", and of floats not after it either" if operation in NEVER_FLOAT else ""
                yield self._finding(
                    call,
                    Impact.NOTE,
                    "operation",
                    f"before CUDA 13.4 no {SINCE_13_4[operation]}{later}",
                )
            elif ".libdevice." in (TRITON.called(self.source, call) or ""):
                yield self._finding(
                    call,
                    Impact.NOTE,
                    "operation",
                    f"no libdevice before CUDA 13.4, and not all of it after: {operation}",
                )
            rounding = keyword(call, "fp_downcast_rounding")
            if rounding is not None and "rtz" in self.source.code(rounding):
                yield self._finding(
                    call, Impact.NOTE, "operation", "before CUDA 13.4 no rounding towards zero"
                )
            if operation in ("reduce", "associative_scan"):
                yield from self._impure(call)
        for statement in descendants(self.kernel.function.node.body, cst.Return):
            if any(isinstance(a, cst.If) for a in self.source.ancestors(statement)):
                yield self._finding(
                    statement,
                    Impact.NOTE,
                    "operation",
                    "a return inside a branch may not compile: mask what follows instead",
                )

    def _impure(self, call: cst.Call) -> Iterator[Obstacle]:
        combine = argument(call, 2, "combine_fn")
        function = self.source.function_of(combine) if combine is not None else None
        for inner in descendants(function.node.body, cst.Call) if function else ():
            operation = self.operations.operation(inner) or ""
            pure = not operation.startswith((ATOMIC, "device_")) and operation != "store"
            if not pure or operation in UNSUPPORTED:
                yield self._finding(
                    call,
                    Impact.STOP,
                    "operation",
                    f"Tile IR combines by pure functions only, and line {self.source.line(inner)} "
                    f"calls {operation}",
                )

    def in_place(self) -> Iterator[Obstacle]:
        """A pointer that is read and written: Tile IR orders neither."""
        loaded = {
            root: call
            for function, call in self.operations.find(LOADS)
            for address in self.operations.address(call)[:1]
            for root in self.operations.roots(function, address)
        }
        for store in self.operations.stores:
            for address in store.address[:1]:
                for root in sorted(self.operations.roots(store.function, address) & loaded.keys()):
                    yield self._finding(
                        store.call,
                        Impact.STOP,
                        "memory model",
                        f"writes {root}, which line {self.source.line(loaded[root])} reads: "
                        "Tile IR does not order the two",
                    )

    def aliases(self) -> Iterator[Obstacle]:
        """One tensor handed over twice, and written."""
        written = {
            root
            for store in self.operations.stores
            for address in store.address[:1]
            for root in self.operations.roots(store.function, address)
        }
        read = {
            root
            for function, call in self.operations.find(LOADS)
            for address in self.operations.address(call)[:1]
            for root in self.operations.roots(function, address)
        }
        for launch in self.kernel.launches:
            tensors = {name: self._tensor(launch, name) for name in sorted(written | read)}
            for out in sorted(written):
                twins = [
                    name
                    for name in sorted(written | read)
                    if name != out and tensors[name] is not None and tensors[name] == tensors[out]
                ]
                if twins:
                    yield self._finding(
                        launch.node,
                        Impact.STOP,
                        "memory model",
                        f"{out} and {twins[0]} are the same tensor, {tensors[out]}: Tile IR does "
                        "not order writing one and reading the other",
                    )
                    break

    def _tensor(self, launch: Launch, parameter: str) -> str | None:
        """The tensor that a launch gives a pointer: `x` for `x`, `x.view(-1)`, and `y = x`."""
        node = launch.arguments.get(parameter)
        while node is not None:
            node = self.source.resolve(node)
            if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                if node.func.attr.value not in VIEWS:
                    return None
                node = node.func.value
            elif isinstance(node, cst.Name):
                return node.value
            else:
                return None
        return None

    def blocks_that_wait(self) -> Iterator[Obstacle]:
        """Locks, tickets and split-K: what one block writes is another's to read."""
        has_dot = any(True for _ in self.operations.find(DOTS))
        for _, call, operation in self.operations.calls:
            if operation is None or not operation.startswith(ATOMIC):
                continue
            if operation in ("atomic_cas", "atomic_xchg", "atomic_load", "atomic_store",
                             "atomic_poll"):  # fmt: skip
                text = f"a lock: {operation}, which orders no other access"
            elif has_dot:
                text = f"split-K: blocks add up one tile by {_spoken(operation)}"
            elif self._is_used(call):
                text = f"a ticket: what {_spoken(operation)} returns decides what a block does"
            elif operation.endswith(THROUGH_DESCRIPTOR):
                continue  # told with the operations that are missing
            else:
                yield self._finding(
                    call, Impact.NOTE, "memory model",
                    f"{operation}: no bfloat16 before CUDA 13.4",
                )  # fmt: skip
                continue
            yield self._finding(call, Impact.STOP, "memory model", text)
        for _, call in self.operations.find(("debug_barrier",)):
            yield self._finding(
                call, Impact.STOP, "memory model",
                "tl.debug_barrier: Tile IR orders no accesses to memory by it",
            )  # fmt: skip

    def _is_used(self, call: cst.Call) -> bool:
        return not isinstance(next(self.source.ancestors(call), None), cst.Expr)

    def descriptors(self) -> Iterator[Obstacle]:
        """What tensor descriptors cannot do there."""
        for told in (descriptors.paddings, descriptors.wide_offsets, descriptors.offsets_anywhere):
            for node, text in told(self.operations):
                yield self._finding(node, Impact.NOTE, "descriptor", text)

    def hints(self) -> Iterator[Obstacle]:
        """Hints and habits of PTX that do nothing there, and values that are out of range."""
        for node, text in hints.told(self.operations):
            yield self._finding(node, Impact.NOTE, "hint", text)

    def _is_spare(self, load: cst.CSTNode) -> bool:
        """Whether it is only for arrays that do not fit: descriptors load above its `else`."""
        inner: cst.CSTNode = load
        for around in self.source.ancestors(load):
            if isinstance(around, cst.If) and inner is around.orelse:
                return any(
                    self.operations.operation(call) in descriptors.AT_OFFSETS
                    for call in descendants(around.body, cst.Call)
                )
            inner = around
        return False

    def slow(self) -> Iterator[Obstacle]:
        """What the backend compiles to slow code."""
        for function, dot in self.operations.find(DOTS):
            operands = (argument(dot, 0, "input"), argument(dot, 1, "other"))
            for operand in (o for o in operands if o is not None):
                for node in self.operations.behind(function, operand):
                    if self.operations.operation_at(node) == "load" and not self._is_spare(node):
                        yield self._finding(
                            node,
                            Impact.NOTE,
                            "speed",
                            "a dot's operand is loaded through pointers: tensor descriptors (TMA) "
                            "are faster, by 20 % and more in CUDA 13.1",
                        )


def _spoken(operation: str) -> str:
    """`a descriptor's atomic_add`, as the source has it."""
    name = operation.removesuffix(THROUGH_DESCRIPTOR)
    return name if name == operation else f"a descriptor's {name}"


VIEWS = ("view", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "detach", "t", "transpose",
         "permute", "expand", "view_as", "contiguous")  # fmt: skip
"""Methods that may hand back the same memory."""
