"""Triton: kernels under `@triton.jit`, launched as `kernel[grid](...)`.

This file may not import triton: it has to answer on a machine that lacks it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import ArgumentSlot, Dialect, Kernel, Launch
from agent.analysis.triton.block_products import product_of_block
from agent.analysis.triton.broadcasts import needs_one
from agent.analysis.triton.edge_forms import is_edge_test
from agent.analysis.triton.reduced_axes import reduces_elsewhere
from agent.analysis.triton.tables import computed_by
from agent.syntax import Function, Source, argument, assigned, keyword, positional

TL = "triton.language."
POINTER_ATOMICS = tuple(
    f"{TL}atomic_{name}" for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor")
)
THROUGH_DESCRIPTOR = "_tensor_descriptor"
"""Ends the names that stand here for methods of a descriptor, as Triton ends those of its own."""
DESCRIPTOR_ATOMICS = tuple(
    f"{TL}atomic_{name}{THROUGH_DESCRIPTOR}" for name in ("add", "and", "max", "min", "or", "xor")
)
"""`descriptor.atomic_add(offsets, value)`, for which Triton has no function."""
ATOMICS = (*POINTER_ATOMICS, *DESCRIPTOR_ATOMICS)
GATHER, SCATTER = f"{TL}gather{THROUGH_DESCRIPTOR}", f"{TL}scatter{THROUGH_DESCRIPTOR}"
MAKE_DESCRIPTOR = f"{TL}make_tensor_descriptor"
GUARDS = ("mask", "boundary_check")


class Triton(Dialect):
    """The names of Triton, and how it is launched."""

    decorator = "triton.jit"
    constant = f"{TL}constexpr"
    loads = (f"{TL}load", f"{TL}load_tensor_descriptor", GATHER)
    stores: ClassVar[Mapping[str, ArgumentSlot]] = {
        f"{TL}store": ArgumentSlot(1, "value"),
        f"{TL}store_tensor_descriptor": ArgumentSlot(2, "value"),
        SCATTER: ArgumentSlot(1, "value"),
        **{name: ArgumentSlot(1, "val") for name in POINTER_ATOMICS},
        **{name: ArgumentSlot(2, "value") for name in DESCRIPTOR_ATOMICS},
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
    permutations: ClassVar[Mapping[str, ArgumentSlot]] = {
        f"{TL}flip": ArgumentSlot(1, "dim"),
        f"{TL}gather": ArgumentSlot(2, "axis"),
        f"{TL}cat": ArgumentSlot(9, "dim"),
    }
    random = tuple(
        f"{TL}{name}"
        for name in ("philox", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x")
    )
    program_counts = (f"{TL}num_programs",)
    choices = (*Dialect.choices, f"{TL}minimum", f"{TL}maximum")
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
        "scatter": SCATTER,
    }

    def masks_edges(self, source: Source, line: cst.If) -> bool:
        """By a comparison that follows from the mask."""
        return is_edge_test(self, source, line)

    def called(self, source: Source, call: cst.Call) -> str | None:
        """The dotted name of what a call calls; of atomics and gathers that are methods too.

        Those are methods of pointers and tiles as well as of descriptors: what they are called on,
        and with, tells the two apart.
        """
        member = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if f"{TL}{member}" in (*POINTER_ATOMICS, f"{TL}gather") and not self.owns(
            source.name(call.func)
        ):
            of_descriptor = f"{TL}{member}{THROUGH_DESCRIPTOR}"
            known = of_descriptor in self.loads or of_descriptor in self.stores
            return of_descriptor if known and _on_descriptor(source, call) else f"{TL}{member}"
        return super().called(source, call)

    def named(self, source: Source, call: cst.Call) -> cst.BaseExpression | None:
        """`kernel` of `kernel[grid](...)`."""
        match call.func:
            case cst.Subscript(value=kernel, slice=[cst.SubscriptElement(slice=cst.Index())]):
                return _unwrapped(source, kernel)
        return None

    def launch_of(self, source: Source, call: cst.Call, kernel: Function) -> Launch:
        """`kernel[grid](...)`; options that no parameter takes are hints, as `num_warps=8`."""
        launched = cst.ensure_type(call.func, cst.Subscript)
        index = cst.ensure_type(launched.slice[0].slice, cst.Index)
        names = [p.name.value for p in kernel.parameters]
        keywords = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
        shown, hidden = _by_position(source, kernel, call, keywords)
        unpacks = any(a.star == "**" for a in call.args)
        if unpacks and hidden is not None:  # what is given already, Python takes no second time
            hidden = frozenset(names) - {*shown, *keywords, *(_computed(source, kernel) or ())}
        return Launch(
            node=call,
            kernel=kernel,
            function=source.enclosing(call),
            grid=index.value,
            arguments=shown | {k: v for k, v in keywords.items() if k in names},
            hints={k: v for k, v in keywords.items() if k not in names},
            complete=hidden is not None,
            hidden=hidden or frozenset(),
            options_shown=not unpacks,
        )

    def accepts(self, launch: Launch) -> bool:
        """Unless there are more values than parameters, or two for one, or some that are hidden."""
        names = [parameter.name.value for parameter in launch.kernel.parameters]
        places = [a for a in launch.node.args if a.keyword is None and not a.star]
        by_name = {a.keyword.value for a in launch.node.args if a.keyword is not None}
        is_room = len(places) <= len(names)
        return launch.complete and is_room and by_name.isdisjoint(names[: len(places)])

    def reduces_elsewhere(self, source: Source, body: cst.BaseSuite, sizes: frozenset[str]) -> bool:
        """By `rows[:, None]` and `cols[None, :]`."""
        return reduces_elsewhere(self, source, body, sizes)

    def product_of_block(
        self, source: Source, body: cst.BaseSuite, sizes: frozenset[str]
    ) -> cst.Call | None:
        """By `rows[:, None]` and `cols[None, :]`, too."""
        return product_of_block(self, source, body, sizes)

    def needs_one(
        self, source: Source, kernel: Kernel, sizes: frozenset[str]
    ) -> tuple[cst.CSTNode, str] | None:
        """By `rows + cols[None, :]`."""
        return needs_one(self, source, kernel, sizes)

    def guarded(self, source: Source, access: cst.Call, *, in_loop: bool) -> bool:  # noqa: ARG002
        """A mask, or a descriptor, which knows its bounds."""
        if self.called(source, access) in self.methods.values():
            return True
        return any(a.keyword and a.keyword.value in GUARDS for a in access.args) or (
            len(positional(access)) > (2 if self.stored(source, access) is not None else 1)
        )

    def unchecked(
        self, source: Source, body: cst.BaseSuite, access: cst.Call
    ) -> tuple[cst.BaseExpression, ...]:
        """Those of the block pointer's shape that are not in `boundary_check`."""
        checked = keyword(access, "boundary_check")
        pointer = access.args[0].value if access.args else None
        if not isinstance(checked, cst.Tuple | cst.List) or not isinstance(pointer, cst.Name):
            return ()
        axes = {source.code(element.value) for element in checked.elements}
        made = f"{TL}make_block_ptr"
        return tuple(
            element.value
            for target, value in assigned(body)
            if isinstance(target, cst.Name) and target.value == pointer.value
            for call in self.find(source, value, (made,))
            if isinstance(shape := self.shapes[made].of(call), cst.Tuple | cst.List)
            for axis, element in enumerate(shape.elements)
            if str(axis) not in axes
        )

    def mask(self, source: Source, access: cst.Call) -> cst.BaseExpression | None:
        """`mask=` of an access by pointers."""
        called = self.called(source, access) or ""
        if called in self.methods.values() or called.endswith(THROUGH_DESCRIPTOR):
            return None
        if called in self.loads:
            return argument(access, 1, "mask")
        return argument(access, 2, "mask") if called in self.stores else None

    def padding(self, source: Source, load: cst.Call) -> cst.BaseExpression | float:  # noqa: ARG002
        """`other=` of a masked load."""
        return argument(load, 2, "other") or 0.0

    def autotuned(self, source: Source, function: Function) -> bool:
        """Whether Triton chooses the kernel's options itself, at run time."""
        return source.decorator(function, "triton.autotune") is not None


TRITON = Triton()
WRAPPERS = ("torch.library.wrap_triton", "torch._library.triton.wrap_triton")
"""What takes a kernel and returns one that PyTorch can trace."""
ROUNDING = (*TRITON.cdivs, "triton.next_power_of_2")
"""Functions of host code that round sizes, and have no side effects."""


def _on_descriptor(source: Source, call: cst.Call) -> bool:
    """Whether a method that tiles and descriptors share is called on a descriptor.

    One that the kernel makes; one that the host makes is a parameter, as no tile of a kernel is.
    Pointers are parameters too, but are told no list of offsets.
    """
    assert isinstance(call.func, cst.Attribute)
    receiver = source.resolve(call.func.value)
    if isinstance(receiver, cst.Call):
        return source.name(receiver.func) == MAKE_DESCRIPTOR
    first = argument(call, 0, "offsets")
    if first is not None and isinstance(source.resolve(first), cst.List | cst.Tuple):
        return True
    around = source.enclosing(call)
    names = {p.name.value for p in around.parameters} if around is not None else set()
    is_parameter = isinstance(receiver, cst.Name) and receiver.value in names
    return is_parameter and call.func.attr.value == "gather"


def _by_position(
    source: Source, kernel: Function, call: cst.Call, keywords: Collection[str]
) -> tuple[dict[str, cst.BaseExpression], frozenset[str] | None]:
    """Parameter -> what a launch gives it by its place, and the parameters behind a `*`.

    How many those are is known where `*`s side by side stand for all the lengths and strides that
    nothing else gives, as in `kernel[grid](x, y, *x.stride(), *y.stride(), n, BLOCK=64)`. None: it
    is not known.
    """
    names = [p.name.value for p in kernel.parameters]
    given = [a for a in call.args if a.keyword is None and a.star != "**"]
    stars = [place for place, a in enumerate(given) if a.star]
    if not stars:
        return dict(zip(names, (a.value for a in given), strict=False)), frozenset()
    first, end = stars[0], stars[-1] + 1
    computed = _computed(source, kernel)
    before = dict(zip(names, (a.value for a in given[:first]), strict=False))
    adjacent = stars == list(range(first, end)) and not any(a.star == "**" for a in call.args)
    if computed is None or not adjacent or not all(_are_sizes(a.value) for a in given[first:end]):
        return before, None
    left = [p for p in kernel.parameters if p.name.value not in {*keywords, *computed}]
    behind = len(given) - end
    last = len(left) - behind
    by_place = names[: len(left)] == [p.name.value for p in left]
    if not by_place or last < first or any(p.default is not None for p in left):
        return before, None
    after = zip(left[last:], given[end:], strict=True)
    return (
        before | {p.name.value: a.value for p, a in after},
        frozenset(p.name.value for p in left[first:last]),
    )


def _are_sizes(expression: cst.BaseExpression) -> bool:
    """Whether it is `x.stride()`, `x.size()` or `x.shape`: integers, and no tensors."""
    if isinstance(expression, cst.Call) and not expression.args:
        method = expression.func
        return isinstance(method, cst.Attribute) and method.attr.value in ("stride", "size")
    return isinstance(expression, cst.Attribute) and expression.attr.value == "shape"


def _computed(source: Source, kernel: Function) -> frozenset[str] | None:
    """The parameters that heuristics compute; None where a decorator does not show its own."""
    found: set[str] = set()
    for decorator in kernel.node.decorators:
        expression = decorator.decorator
        call = expression if isinstance(expression, cst.Call) else None
        named = source.name(call.func if call is not None else expression)
        if (table := computed_by(source, expression)) is not None:
            if None in table:
                return None
            found |= {name for name in table if name is not None}
        elif named != "triton.jit":
            return None
    return frozenset(found)


def _unwrapped(source: Source, expression: cst.BaseExpression) -> cst.BaseExpression:
    """The kernel inside `torch.library.wrap_triton(kernel)`."""
    wrapper = isinstance(expression, cst.Call) and source.name(expression.func)
    if wrapper in WRAPPERS:
        assert isinstance(expression, cst.Call)
        return (*positional(expression), expression)[0]
    return expression
