"""Triton: kernels under `@triton.jit`, launched as `kernel[grid](...)`.

This file may not import triton: it has to answer on a machine that lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import ArgumentSlot, Dialect, Launch
from agent.syntax import Function, Source, positional

TL = "triton.language."
ATOMICS = tuple(
    f"{TL}atomic_{name}" for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor")
)
GUARDS = ("mask", "boundary_check")


class Triton(Dialect):
    """The names of Triton, and how it is launched."""

    decorator = "triton.jit"
    constant = f"{TL}constexpr"
    loads = (f"{TL}load", f"{TL}load_tensor_descriptor")
    stores: ClassVar[Mapping[str, ArgumentSlot]] = {
        f"{TL}store": ArgumentSlot(1, "value"),
        f"{TL}store_tensor_descriptor": ArgumentSlot(2, "value"),
        **{name: ArgumentSlot(1, "val") for name in ATOMICS},
    }
    dots = (f"{TL}dot", f"{TL}dot_scaled")
    shapes: ClassVar[Mapping[str, ArgumentSlot]] = {
        f"{TL}zeros": ArgumentSlot(0, "shape"),
        f"{TL}full": ArgumentSlot(0, "shape"),
        f"{TL}reshape": ArgumentSlot(1, "shape"),
        f"{TL}view": ArgumentSlot(1, "shape"),
        f"{TL}broadcast_to": ArgumentSlot(1, "shape"),
        f"{TL}arange": ArgumentSlot(1, "end"),
        f"{TL}make_block_ptr": ArgumentSlot(4, "block_shape"),
        f"{TL}make_tensor_descriptor": ArgumentSlot(3, "block_shape"),
    }
    shape_queries: ClassVar[Mapping[str, tuple[ArgumentSlot, ArgumentSlot]]] = {}
    accumulators = (f"{TL}zeros", f"{TL}full")
    iotas = (f"{TL}arange",)
    cdivs = (f"{TL}cdiv", "triton.cdiv")
    ranges = ("range", "builtins.range", f"{TL}range", f"{TL}static_range")
    reductions = tuple(
        f"{TL}{name}"
        for name in (
            "sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce_or",
            "cumsum", "cumprod", "associative_scan", "sort", "topk", "histogram", "softmax",
        )
    )  # fmt: skip
    arithmetic = tuple(
        f"{module}{name}"
        for module in (TL, f"{TL}math.", f"{TL}extra.libdevice.", f"{TL}extra.cuda.libdevice.")
        for name in (
            "abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log",
            "log1p", "log2", "maximum", "minimum", "pow", "rsqrt", "sigmoid", "sin", "sqrt",
            "sqrt_rn", "tanh", "where",
        )
    )  # fmt: skip
    program_ids = (f"{TL}program_id",)
    methods: ClassVar[Mapping[str, str]] = {
        "load": f"{TL}load_tensor_descriptor",
        "store": f"{TL}store_tensor_descriptor",
    }

    def launch(self, source: Source, call: cst.Call) -> Launch | None:
        """`kernel[grid](...)`; options that no parameter takes are hints, as `num_warps=8`."""
        if not isinstance(call.func, cst.Subscript) or len(call.func.slice) != 1:
            return None
        index = call.func.slice[0].slice
        kernel = source.function_of(_unwrapped(source, call.func.value))
        if not isinstance(index, cst.Index) or kernel is None:
            return None
        if source.decorator(kernel, self.decorator) is None:
            return None
        names = [p.name.value for p in kernel.parameters]
        keywords = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
        return Launch(
            node=call,
            kernel=kernel,
            function=source.enclosing(call),
            grid=index.value,
            arguments=dict(zip(names, positional(call), strict=False))
            | {k: v for k, v in keywords.items() if k in names},
            hints={k: v for k, v in keywords.items() if k not in names},
            complete=not any(a.star for a in call.args),
        )

    def guarded(self, source: Source, access: cst.Call, *, in_loop: bool) -> bool:  # noqa: ARG002
        """A mask, or a descriptor, which knows its bounds."""
        if self.called(source, access) in self.methods.values():
            return True
        return any(a.keyword and a.keyword.value in GUARDS for a in access.args) or (
            len(positional(access)) > (2 if self.stored(source, access) is not None else 1)
        )

    def autotuned(self, source: Source, function: Function) -> bool:
        """Whether Triton chooses the kernel's options itself, at run time."""
        return source.decorator(function, "triton.autotune") is not None


TRITON = Triton()
ROUNDING = (*TRITON.cdivs, "triton.next_power_of_2")
"""Functions of host code that round sizes, and have no side effects."""


def _unwrapped(source: Source, expression: cst.BaseExpression) -> cst.BaseExpression:
    """The kernel inside `torch.library.wrap_triton(kernel)`."""
    wrapper = isinstance(expression, cst.Call) and source.name(expression.func)
    if wrapper in ("torch.library.wrap_triton", "torch._library.triton.wrap_triton"):
        assert isinstance(expression, cst.Call)
        return (*positional(expression), expression)[0]
    return expression
