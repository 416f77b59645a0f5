"""cuTile: kernels under `@cuda.tile.kernel`, launched by `cuda.tile.launch`.

This file may not import cuda.tile: it has to answer on a machine that lacks it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import ArgumentSlot, Dialect, Kernel, Launch
from agent.analysis.cutile.edge_tests import is_edge_test
from agent.analysis.cutile.names import CT as CT
from agent.syntax import Function, Source, argument, keyword

ATOMICS = tuple(f"{CT}atomic_{name}" for name in ("add", "and", "max", "min", "or", "xchg", "xor"))

PADDINGS = {"NAN": math.nan, "NEG_INF": -math.inf, "POS_INF": math.inf}
"""Modes that pad with something else than zeros."""


class CuTile(Dialect):
    """The names of cuTile, and how it is launched."""

    decorator = f"{CT}kernel"
    constant = f"{CT}Constant"
    loads = (f"{CT}load", f"{CT}gather", f"{CT}load_advanced_indexing")
    stores: ClassVar[Mapping[str, ArgumentSlot]] = {
        f"{CT}store": ArgumentSlot(2, "tile"),
        f"{CT}scatter": ArgumentSlot(2, "value"),
        f"{CT}store_advanced_indexing": ArgumentSlot(2, "tile"),
        f"{CT}atomic_cas": ArgumentSlot(3, "desired"),
        **{name: ArgumentSlot(2, "update") for name in ATOMICS},
    }
    scatters = (f"{CT}scatter", f"{CT}atomic_cas", *ATOMICS)
    dots = (f"{CT}mma", f"{CT}mma_scaled", f"{CT}matmul")
    shapes: ClassVar[Mapping[str, ArgumentSlot]] = {
        f"{CT}load": ArgumentSlot(2, "shape"),
        f"{CT}full": ArgumentSlot(0, "shape"),
        f"{CT}zeros": ArgumentSlot(0, "shape"),
        f"{CT}ones": ArgumentSlot(0, "shape"),
        f"{CT}arange": ArgumentSlot(0, "size"),
        f"{CT}reshape": ArgumentSlot(1, "shape"),
        f"{CT}broadcast_to": ArgumentSlot(1, "shape"),
    }
    shape_methods: ClassVar[Mapping[str, ArgumentSlot]] = {"reshape": ArgumentSlot(0, "shape")}
    shape_queries: ClassVar[Mapping[str, tuple[ArgumentSlot, ArgumentSlot]]] = {
        f"{CT}num_tiles": (ArgumentSlot(1, "axis"), ArgumentSlot(2, "shape"))
    }
    accumulators = (f"{CT}full", f"{CT}zeros", f"{CT}ones")
    iotas = (f"{CT}arange",)
    cdivs = (f"{CT}cdiv",)
    ranges = ("range", "builtins.range", f"{CT}static_iter")
    reductions = tuple(
        f"{CT}{name}"
        for name in (
            "sum", "max", "min", "argmax", "argmin", "prod", "reduce", "cumsum", "cumprod", "scan",
        )
    )  # fmt: skip
    arithmetic = tuple(
        f"{CT}{name}"
        for name in (
            "abs", "add", "atan2", "ceil", "cos", "cosh", "exp", "exp2", "floor", "log", "log2",
            "maximum", "minimum", "mul", "negative", "pow", "rsqrt", "sin", "sinh", "sqrt", "sub",
            "tan", "tanh", "truediv", "where",
        )
    )  # fmt: skip
    program_ids = (f"{CT}bid",)
    choices = (*Dialect.choices, f"{CT}minimum", f"{CT}maximum")
    indexed_loads: ClassVar[Mapping[str, tuple[ArgumentSlot, ArgumentSlot]]] = {
        f"{CT}load": (ArgumentSlot(1, "index"), ArgumentSlot(2, "shape"))
    }
    indexed_stores = (f"{CT}store",)

    def named(self, source: Source, call: cst.Call) -> cst.BaseExpression | None:
        """`kernel` of `ct.launch(stream, grid, kernel, args)`, possibly with other hints."""
        if source.name(call.func) != f"{CT}launch" or argument(call, 1, "grid") is None:
            return None
        expression = argument(call, 2, "kernel")
        replaced = _replaced(source, expression) if expression is not None else None
        return replaced.value if replaced is not None else expression

    def launch_of(self, source: Source, call: cst.Call, kernel: Function) -> Launch:
        """With what is listed for the kernel, and the hints that it is launched with."""
        grid, expression = argument(call, 1, "grid"), argument(call, 2, "kernel")
        assert grid is not None
        assert expression is not None
        given = argument(call, 3, "kernel_args")
        hints: dict[str, cst.BaseExpression] = {}
        if _replaced(source, expression) is not None:
            others = cst.ensure_type(source.resolve(expression), cst.Call)
            hints = {a.keyword.value: a.value for a in others.args if a.keyword is not None}
        values = source.resolve(given) if given is not None else None
        listed = values.elements if isinstance(values, cst.Tuple | cst.List) else ()
        names = [p.name.value for p in kernel.parameters]
        complete = len(listed) == len(names) and not any(
            isinstance(e, cst.StarredElement) for e in listed
        )
        return Launch(
            node=call,
            kernel=kernel,
            function=source.enclosing(call),
            grid=grid,
            arguments=dict(zip(names, (e.value for e in listed), strict=True)) if complete else {},
            hints=hints,
            complete=complete,
        )

    def accepts(self, launch: Launch) -> bool:
        """One value for each parameter, all of them shown."""
        return launch.complete

    def guarded(self, source: Source, access: cst.Call, *, in_loop: bool) -> bool:
        """Bounds are checked unless told not to; what a load pads with is undetermined, though.

        Of `check_bounds=NAME` the launches decide: see `agent.analysis.common.provenance`.
        """
        unchecked = keyword(access, "check_bounds")
        by_launch = isinstance(unchecked, cst.Name) and unchecked.value != "True"
        if unchecked is not None and not by_launch and source.code(unchecked) != "True":
            return False
        mode = keyword(access, "padding_mode")
        padded = mode is not None and not source.code(mode).endswith("UNDETERMINED")
        return padded or not in_loop or source.name(access.func) != f"{CT}load"

    def padding(self, source: Source, load: cst.Call) -> cst.BaseExpression | float:
        """`padding_mode=` of tiles, `padding_value=` of single elements."""
        value = keyword(load, "padding_value")
        mode = keyword(load, "padding_mode")
        written = source.code(source.resolve(mode)) if mode is not None else ""
        for name, number in PADDINGS.items():
            if written.endswith(f"PaddingMode.{name}"):
                return number
        return 0.0 if value is None else value

    def masks_edges(self, source: Source, line: cst.If) -> bool:
        """By a comparison that follows from the mask."""
        return is_edge_test(source, line)

    def tuned(self, source: Source, kernel: Kernel) -> cst.Call | None:
        """The call that tunes the kernel at run time, if there is one."""
        for call in source.calls:
            if (source.name(call.func) or "").startswith((f"{CT}tune.", "cuda.tile_experimental.")):
                given = (source.function_of(a.value) for a in call.args)
                if kernel.function in given:
                    return call
        return None


CUTILE = CuTile()


def _replaced(source: Source, expression: cst.BaseExpression) -> cst.Attribute | None:
    """`kernel.replace_hints` of the call that gives a launch its kernel."""
    match source.resolve(expression):
        case cst.Call(func=cst.Attribute(attr=cst.Name(value="replace_hints")) as replaced):
            return replaced
    return None


def grid_axis(call: cst.Call) -> int | None:
    """The axis of the grid that `ct.bid(axis)` or `ct.num_blocks(axis)` is asked along; None where
    it is computed."""
    axis = argument(call, 0, "axis")
    return axis.evaluated_value if isinstance(axis, cst.Integer) else None
