"""Find the row that is read a second time in the L2 cache.

When: a Triton kernel without `tl.dot` that passes over the same row twice or more, as a softmax or
    a cross entropy does: `for start in range(0, n_cols, BLOCK)`, each time from the same addresses.
Do: walk the last pass from the end of the row, which was read last and is still there; or have the
    caches keep what is read again (`evict_last`) before what is not (`evict_first`); or both. The
    number is turned round where it is used: with a negative step it took up to 1.6 times as long.
Risk: none to results: the pass hands nothing on from block to block, and writes its own elements.
Source: of the rows that are worked on at once the cache holds a part. From front to back it has
    dropped each block by the time it is read again; from the back, that part is found: FlagGems'
    softmax walks its second pass so. On an H100 (a cache of 50 MB) Liger's cross entropy of 8192 x
    128256 in float32, of which 132 rows are 68 MB, took 4.36 ms, 4.03 from the end, 3.93 with
    policies and 3.67 with both; of 4096 x 128256 in bfloat16 0.99, 0.94, 0.85 and 0.90.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.by_program import by_program, names_by_program
from agent.analysis.common.derived_names import is_no_variable
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.caching import DECIDED
from agent.analysis.triton.counting_loops import Counting, counting
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.free_rounds import check_free
from agent.analysis.triton.pointers import root
from agent.analysis.triton.round_memory import LOAD, STORE
from agent.launches import values_of
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.insertion import free_name
from agent.rewriting.triton.edits import Edit, giving
from agent.syntax import Source, argument, descendants, keyword

BACKWARDS, FORWARDS = "backwards", "forwards"
LOADS, ALL, NONE = "loads", "loads and stores", "as written"
POLICY = "eviction_policy"
COMMENT = "# From the end of the row: what was read last may still be in the cache."


class SecondReading(OfEachKernel):
    """`start` -> `(n - 1) // BLOCK * BLOCK - start` in the last pass, and eviction policies."""

    name = "second-reading"
    title = "second reading"
    backend = "triton"
    family = "reuse"
    priority: ClassVar = {KernelClass.MEMORY: 12, KernelClass.BALANCED: 24, KernelClass.COMPUTE: 70}
    expected = "14 to 17 % of a cross entropy whose rows exceed the L2 cache, by hand on an H100"
    hypothesis = "The last pass finds in the cache what the pass before it read last."
    idle_in_interpreter = "Triton's interpreter has no cache"
    example: ClassVar[Params] = {"last_pass": BACKWARDS, "policies": ALL}
    sweep: ClassVar[Sequence[Params]] = (
        {"last_pass": BACKWARDS, "policies": ALL},
        {"last_pass": FORWARDS, "policies": ALL},
        {"last_pass": BACKWARDS, "policies": LOADS},
        {"last_pass": FORWARDS, "policies": LOADS},
        {"last_pass": BACKWARDS, "policies": NONE},
    )
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def normalize_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
        largest = tl.maximum(largest, tl.abs(x))
    scale = tl.max(largest, axis=0) + 1e-6
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * stride + cols, x / scale, mask=cols < n_cols)


def normalize(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    normalize_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=1024)
    return y
"""
    after = """\
import torch
import triton
import triton.language as tl


@triton.jit
def normalize_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0,
            eviction_policy="evict_last"
        )
        largest = tl.maximum(largest, tl.abs(x))
    scale = tl.max(largest, axis=0) + 1e-6
    for start in range(0, n_cols, BLOCK):
        # From the end of the row: what was read last may still be in the cache.
        from_end = (n_cols - 1) // BLOCK * BLOCK - start
        cols = from_end + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + row * stride + cols,
            mask=cols < n_cols,
            other=0.0,
            eviction_policy="evict_first",
        )
        tl.store(
            y_ptr + row * stride + cols,
            x / scale,
            mask=cols < n_cols,
            eviction_policy="evict_first",
        )


def normalize(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    normalize_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=1024)
    return y
"""

    trial = TritonTrial(
        kernel="normalize_kernel",
        types=(P, P, "i32", "i32", 1024),
        function="normalize",
        calls=(((3, 1024),), ((5, 77),), ((1, 1),), ((4, 2500),)),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Those that can be written, each other text once."""
        found: dict[str, Params] = {}
        refusal: NotApplicable | None = None
        for params in self.sweep:
            try:
                found.setdefault(self.apply(subject, params), params)
            except NotApplicable as reason:
                refusal = refusal or reason
        if not found:
            assert refusal is not None
            raise refusal
        return list(found.values())

    def edits(self, subject: Subject, kernel: Kernel, params: Params) -> dict[cst.CSTNode, Edit]:
        """Turn the last pass round, or say what is read again, or both."""
        source = subject.source
        passes = _passes(source, kernel)
        _check_rounds(subject, kernel, passes.last)
        edits: dict[cst.CSTNode, Edit] = {}
        if params["policies"] != NONE:
            edits |= _policies(source, passes, stores=params["policies"] == ALL)
        if params["last_pass"] == BACKWARDS:
            check_free(source, kernel, passes.last)
            edits |= _backwards(source, passes.last)
        return edits


@dataclass(frozen=True)
class _Passes:
    """The loops that pass over one row."""

    last: Counting
    again: tuple[cst.Call, ...]
    """Loads of earlier passes, of what is read once more."""
    finally_read: tuple[cst.Call, ...]
    """Those of the last pass."""
    stores: tuple[cst.Call, ...]
    """Of the last pass."""


def _passes(source: Source, kernel: Kernel) -> _Passes:
    """The last loop over what an earlier one of the same bounds has read."""
    if TRITON.has_dot(source, kernel):
        raise NotApplicable(f"blocks of {kernel.name} that multiply tiles share what they load")
    body = kernel.function.node.body
    loops = [found for loop in descendants(body, cst.For) if (found := counting(source, loop))]
    for number in range(len(loops) - 1, 0, -1):
        last = loops[number]
        own = _loads(source, kernel, last)
        earlier = [
            (base, load)
            for other in loops[:number]
            if _are_alike(source, last, other)
            for base, load in _loads(source, kernel, other)
        ]
        shared = {base for base, _ in own} & {base for base, _ in earlier}
        if shared:
            return _Passes(
                last,
                tuple(load for base, load in earlier if base in shared),
                tuple(load for base, load in own if base in shared),
                tuple(TRITON.find(source, last.loop.body, (STORE,))),
            )
    raise NotApplicable(f"no two passes of {kernel.name} load from the same addresses")


def _check_rounds(subject: Subject, kernel: Kernel, last: Counting) -> None:
    """A row that a block holds is not walked through, whichever end it begins at."""
    bound, step = last.bound, last.step
    if not (isinstance(bound, cst.Name) and isinstance(step, cst.Name)):
        return
    lengths = values_of(subject.launches, kernel.name, bound.value)
    blocks = values_of(subject.launches, kernel.name, step.value)
    if lengths and blocks and max(lengths) <= min(blocks):
        raise NotApplicable(f"a block of {kernel.name} held the row in every launch seen")


def _are_alike(source: Source, one: Counting, other: Counting) -> bool:
    """Whether two loops go over the same numbers, one after the other."""
    if one.loop in source.ancestors(other.loop) or other.loop in source.ancestors(one.loop):
        return False
    bounds = [
        [source.code(part) for part in (each.bound, each.step) if part is not None]
        for each in (one, other)
    ]
    return bounds[0] == bounds[1]


def _loads(source: Source, kernel: Kernel, counted: Counting) -> list[tuple[str, cst.Call]]:
    """What a loop loads of the program's own, with the parameters that it begins at."""
    found = []
    names = names_by_program(TRITON, source, kernel.function)
    for load in TRITON.find(source, counted.loop.body, (LOAD,)):
        pointer = argument(load, 0, "pointer")
        if pointer is None or not by_program(TRITON, source, pointer, names):
            continue
        if (base := root(source, kernel, pointer)) is not None:
            found.append((base, load))
    return found


def _policies(source: Source, passes: _Passes, *, stores: bool) -> dict[cst.CSTNode, Edit]:
    chosen = [
        *((call, "evict_last") for call in passes.again),
        *((call, "evict_first") for call in passes.finally_read),
        *((call, "evict_first") for call in passes.stores if stores),
    ]
    edits: dict[cst.CSTNode, Edit] = {
        call: giving(source, call, {POLICY: f'"{policy}"'})
        for call, policy in chosen
        if all(keyword(call, name) is None for name in DECIDED)
    }
    if not edits:
        raise NotApplicable("every load has a policy already")
    return edits


def _backwards(source: Source, last: Counting) -> dict[cst.CSTNode, Edit]:
    """The edits that turn the numbers of a loop round, from the last one to 0."""
    name = free_name(source, "from_end")
    bound = source.code(last.bound)
    inner = last.bound if isinstance(last.bound, cst.Name | cst.Integer | cst.Call) else None
    bound = bound if inner is not None else f"({bound})"
    if last.step is None:
        text = f"{bound} - 1 - {last.name}"
    else:
        step = source.code(last.step)
        step = step if isinstance(last.step, cst.Name | cst.Integer) else f"({step})"
        text = f"({bound} - 1) // {step} * {step} - {last.name}"
    line = cst.parse_statement(f"{COMMENT}\n{name} = {text}\n")
    edits: dict[cst.CSTNode, Edit] = {
        each: lambda _: cst.Name(name)
        for each in descendants(last.loop.body, cst.Name)
        if each.value == last.name and not is_no_variable(source, each)
    }
    edits[last.loop.body] = lambda body: body.with_changes(body=[line, *body.body])
    return edits
