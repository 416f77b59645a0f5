"""cuTile: kernels under `@cuda.tile.kernel`, launched by `cuda.tile.launch`.

This file may not import cuda.tile: it has to answer on a machine that lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from agent.backends.base import Classification, KernelFunction
from agent.backends.dialect import Dialect, Kernel, Launch, Parameter
from agent.backends.intensity import classify
from agent.environment import Environment
from agent.syntax import Source, argument, keyword

CT = "cuda.tile."
ATOMICS = tuple(f"{CT}atomic_{name}" for name in ("add", "and", "max", "min", "or", "xchg", "xor"))
OLDEST_DRIVER = 580
OLDEST_SM = 80
WITHOUT_GPU = "`tile-agent verify`, `tile-agent explain` and `pytest --tile-cpu` work without"


class CuTile(Dialect):
    """The names of cuTile, and how it is launched."""

    decorator = f"{CT}kernel"
    constant = f"{CT}Constant"
    loads = (f"{CT}load", f"{CT}gather", f"{CT}load_advanced_indexing")
    stores: ClassVar[Mapping[str, Parameter]] = {
        f"{CT}store": Parameter(2, "tile"),
        f"{CT}scatter": Parameter(2, "value"),
        f"{CT}store_advanced_indexing": Parameter(2, "tile"),
        f"{CT}atomic_cas": Parameter(3, "desired"),
        **{name: Parameter(2, "update") for name in ATOMICS},
    }
    dots = (f"{CT}mma", f"{CT}mma_scaled", f"{CT}matmul")
    shapes: ClassVar[Mapping[str, Parameter]] = {
        f"{CT}load": Parameter(2, "shape"),
        f"{CT}full": Parameter(0, "shape"),
        f"{CT}zeros": Parameter(0, "shape"),
        f"{CT}ones": Parameter(0, "shape"),
        f"{CT}arange": Parameter(0, "size"),
        f"{CT}reshape": Parameter(1, "shape"),
        f"{CT}broadcast_to": Parameter(1, "shape"),
    }
    shape_queries: ClassVar[Mapping[str, tuple[Parameter, Parameter]]] = {
        f"{CT}num_tiles": (Parameter(1, "axis"), Parameter(2, "shape"))
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

    def launch(self, source: Source, call: cst.Call) -> Launch | None:
        """`ct.launch(stream, grid, kernel, args)`, the kernel possibly with other hints."""
        if source.name(call.func) != f"{CT}launch":
            return None
        grid = argument(call, 1, "grid")
        expression = argument(call, 2, "kernel")
        given = argument(call, 3, "kernel_args")
        if grid is None or expression is None:
            return None
        hints: dict[str, cst.BaseExpression] = {}
        expression = source.resolve(expression)
        if (
            isinstance(expression, cst.Call)
            and isinstance(expression.func, cst.Attribute)
            and expression.func.attr.value == "replace_hints"
        ):
            hints = {a.keyword.value: a.value for a in expression.args if a.keyword is not None}
            expression = expression.func.value
        kernel = source.function_of(expression)
        if kernel is None or source.decorator(kernel, self.decorator) is None:
            return None
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

    def guarded(self, source: Source, access: cst.Call, *, in_loop: bool) -> bool:
        """Bounds are checked unless told not to; what a load pads with is undetermined, though.

        Of `check_bounds=NAME` the launches decide, which `agent.playbook.provenance` looks at.
        """
        unchecked = keyword(access, "check_bounds")
        by_launch = isinstance(unchecked, cst.Name) and unchecked.value != "True"
        if unchecked is not None and not by_launch and source.code(unchecked) != "True":
            return False
        padded = keyword(access, "padding_mode") is not None
        return padded or not in_loop or source.name(access.func) != f"{CT}load"

    def tuned(self, source: Source, kernel: Kernel) -> cst.Call | None:
        """The call that tunes the kernel at run time, if there is one."""
        for call in source.calls:
            if (source.name(call.func) or "").startswith((f"{CT}tune.", "cuda.tile_experimental.")):
                given = (source.function_of(a.value) for a in call.args)
                if kernel.function in given:
                    return call
        return None


CUTILE = CuTile()


class CuTileBackend:
    """cuTile on an NVIDIA GPU; there is no interpreter."""

    name = "cutile"

    def kernels(self, source: Source) -> tuple[KernelFunction, ...]:
        """Every `@cuda.tile.kernel` function."""
        return CUTILE.functions(source)

    def classify(self, source: Source) -> Classification:
        """Estimate what bounds the launched kernel with the most work."""
        return classify(CUTILE, source)

    def refusal(self, environment: Environment) -> str | None:
        """The first thing missing of a GPU, its driver, cuda-tile and tileiras."""
        if refusal := lacks_gpu(environment):
            return refusal
        if environment.versions.get("cuda-tile") is None:
            return "cuda-tile is not installed: pip install 'tile-agent[cutile]'"
        if environment.tileiras is None:
            return "tileiras, cuTile's compiler, is missing: pip install 'tile-agent[cutile]'"
        return None

    def latency_meaning(self, environment: Environment) -> str:
        """Kernel time on the GPU."""
        where = environment.gpu.name if environment.gpu else "the GPU that will run it"
        return f"the kernel's time on {where}"

    def worker_environment(self, environment: Environment) -> dict[str, str]:  # noqa: ARG002
        """Nothing."""
        return {}


def lacks_gpu(environment: Environment) -> str | None:
    """Why this machine's hardware and driver cannot run a kernel, with the mend; None if they can.

    Compiling needs neither.
    """
    gpu = environment.gpu
    if gpu is None:
        return f"cuTile runs on an NVIDIA GPU only, and none is visible; {WITHOUT_GPU}"
    if gpu.sm < OLDEST_SM:
        return f"cuTile needs compute capability 8.0; {gpu.name} has {gpu.sm / 10:.1f}"
    if _release(gpu.driver) < OLDEST_DRIVER:
        return (
            f"cuTile needs driver r{OLDEST_DRIVER} or later, this is {gpu.driver}: update it; "
            f"{WITHOUT_GPU}"
        )
    return None


def _release(driver: str) -> int:
    """The branch of a driver version: 580 of '580.159.04'; 0 when it cannot be read."""
    head = driver.partition(".")[0]
    return int(head) if head.isdigit() else 0
