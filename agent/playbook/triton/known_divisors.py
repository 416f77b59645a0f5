"""Let the compiler see that strides and lengths are multiples of 2, 4 or 8.

When: a Triton kernel that was launched with strides or lengths that 8, 4 or 2 divides and 16 does
    not, such as rows of 1000 or heads of 72. Of an argument Triton knows whether 16 divides it, and
    nothing else: such rows are loaded and stored element by element.
Do: `stride = stride // 8 * 8` at the top of the kernel, where a heuristic has found that each of
    these arguments is such a multiple, which changes none of them.
Risk: none to results: the heuristic asks at every launch; others are compiled as before.
Source: Triton's axis analysis, which takes a product's divisor from its factors; `tl.multiple_of`
    says nothing of a kernel's argument. Compiled with Triton 3.9 for sm_90, a softmax of float16
    rows has 8 loads of 2 bytes a thread, with a divisor of 8 one of 16. TritonBench's
    `cross_entropy1`, rows of 1000, moves 2.1 TB/s on an NVIDIA H200 with loads of 2 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import ClassVar

import libcst as cst

from agent.analysis.common.derived_names import reaches
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import run_time
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.heuristics import check_heuristics
from agent.analysis.triton.host import language
from agent.launches import ObservedLaunch, values_of
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.edits import Edit, begun, with_heuristics, with_parameters
from agent.syntax import Source, argument, assigned, descendants

MOST = 8
"""Elements of 16 bytes, where each has two; of a number that 16 divides Triton knows it."""
KNOWN = 16
FLAG = "DIVISIBLE"


def _seen(rows: int, columns: int) -> ObservedLaunch:
    given = {"stride": columns, "n_cols": columns, "BLOCK": 1024}
    return ObservedLaunch("double_kernel", "test_double.py::test_perf", (rows,), given, {}, {})


class KnownDivisors(OfEachKernel):
    """`stride` -> `stride // 8 * 8`, where 8 divides it."""

    name = "known-divisors"
    title = "known divisors"
    backend = "triton"
    family = "alignment"
    priority: ClassVar = {
        KernelClass.MEMORY: 24,
        KernelClass.BALANCED: 46,
        KernelClass.COMPUTE: 90,
    }
    expected = "34 % of a cross entropy over rows of 1000 halves on an H200"
    hypothesis = "Addresses that are known to be aligned are loaded 16 bytes at a time."
    idle_in_interpreter = "Triton's interpreter has no loads of 16 bytes"
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * stride + cols, 2 * x, mask=cols < n_cols)


def double(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    double_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=block)
    return y
"""
    after = before.replace(
        "@triton.jit\n",
        """\
@triton.heuristics(
    {"DIVISIBLE": lambda args: args["stride"] % 8 == 0 and args["n_cols"] % 8 == 0}
)
@triton.jit
""",
    ).replace(
        "BLOCK: tl.constexpr):\n",
        """\
BLOCK: tl.constexpr, DIVISIBLE: tl.constexpr):
    if DIVISIBLE:
        stride = stride // 8 * 8
        n_cols = n_cols // 8 * 8
""",
    )
    observed: ClassVar[tuple[ObservedLaunch, ...]] = (_seen(4096, 1000), _seen(8, 2000))

    trial = TritonTrial(
        kernel="double_kernel",
        types=(P, P, "i32", "i32", 1024),
        types_after=(P, P, "i32", "i32", 1024, True),
        function="double",
        calls=(((3, 1000),), ((5, 77),), ((1, 1),), ((4, 72),)),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Say at the top of a kernel what divides its strides and lengths."""
        source = subject.source
        check_heuristics(source, kernel)
        divisors = _divisors(subject, kernel)
        body = kernel.function.node.body
        if not isinstance(body, cst.IndentedBlock):
            raise NotApplicable(f"{kernel.name} is written on one line")
        flag = unused(kernel, FLAG)
        constexpr = f"{language(source, kernel)}.constexpr"
        lines = [
            f"    {name} = {name} // {divisor} * {divisor}" for name, divisor in divisors.items()
        ]
        divisible = " and ".join(f'args["{n}"] % {d} == 0' for n, d in divisors.items())
        return {
            **with_parameters(source, kernel, [f"{flag}: {constexpr}"], default="None"),
            **with_heuristics(source, kernel, {flag: f"lambda args: {divisible}"}),
            body: begun(kernel, ["\n".join([f"if {flag}:", *lines])]),
        }


def _divisors(subject: Subject, kernel: Kernel) -> Mapping[str, int]:
    """Parameter -> what divides it at every launch that was seen, where Triton knows of nothing.

    Raises:
        NotApplicable: there is none that places elements or bounds them.
    """
    source, found = subject.source, dict[str, int]()
    if not any(launch.kernel == kernel.name for launch in subject.launches):
        raise NotApplicable(f"nobody saw which strides and lengths {kernel.name} is launched with")
    written = [
        (target.value, value)
        for target, value in assigned(kernel.function.node.body)
        if isinstance(target, cst.Name)
    ]
    placing = [*_placing(source, kernel)]
    others = {  # than what the launch gives, from some line on
        name.value
        for target, _ in assigned(kernel.function.node.body)
        for name in descendants(target, cst.Name)
    }
    for name in run_time(kernel):
        values = values_of(subject.launches, kernel.name, name)
        divisor = gcd(*values, MOST) if values else 1
        if divisor == 1 or name in others or all(value % KNOWN == 0 for value in values):
            continue
        if reaches(name, placing, written) and not _may_be_missing(source, kernel, name):
            found[name] = divisor
    if not found:
        raise NotApplicable(
            f"looks for strides and lengths that 2, 4 or 8 divides and 16 does not, and no launch "
            f"of {kernel.name} was seen with one"
        )
    return found


def _placing(source: Source, kernel: Kernel) -> Iterator[cst.BaseExpression]:
    """What says where a kernel loads and stores, and what it leaves to helpers."""
    for call in descendants(kernel.function.node.body, cst.Call):
        called = TRITON.called(source, call) or ""
        if called in TRITON.loads:
            places = [argument(call, 0, "pointer"), argument(call, 1, "mask")]
        elif called in TRITON.stores:
            places = [argument(call, 0, "pointer"), argument(call, 2, "mask")]
        elif source.function_of(call.func) is not None:
            places = [given.value for given in call.args]
        else:
            continue
        yield from (place for place in places if place is not None)


def _may_be_missing(source: Source, kernel: Kernel, name: str) -> bool:
    """Whether some launch may leave a parameter out, or give None: neither can be divided."""
    if any(p.default is not None for p in kernel.function.parameters if p.name.value == name):
        return True
    given = [launch.arguments.get(name) for launch in kernel.launches]
    return any(
        each.value == "None"
        for value in given
        if value is not None
        for each in descendants(source.resolve(value), cst.Name)
    )
