"""Divide, take roots and exponentials as fast as the hardware can, not as exactly as IEEE asks.

When: a cuTile kernel that divides float32 tiles, or takes `rsqrt`, `sqrt`, `exp2`, `exp` or `tanh`
    of them. cuda-tile refuses these modes for any other type. What is computed once for a row,
    from its sum, stays exact: it costs nothing.
Do: `ct.truediv(a, b, rounding_mode=..., flush_to_zero=True)` for `a / b`, with `RoundingMode.FULL`
    (2 ulp) or `APPROX`; `flush_to_zero=True` for `ct.rsqrt` and `ct.exp2`; with `APPROX` also the
    approximate `ct.sqrt`, `ct.exp` and `ct.tanh`. Where an operand of the caller's may be float64,
    the operation stays as it is for such a type: `... if x.dtype != ct.float64 else None`.
Risk: changes rounding: numbers below 1.2e-38 become zero, but for exponentials that divide
    something, and the quotient of two of them is no number; the approximate tanh has 11 good bits.
Source: TileGym's cuTile playbook, item H, which names 1 to 5 %. It says that `ct.exp` takes no
    rounding mode; in cuda-tile 1.7 it takes `APPROX`. Compiled there for sm_80, a float32 softmax
    of 1024 columns falls from 424 to 221 instructions with FULL and to 185 with APPROX, for sm_90
    from 537 to 335 and 299: the exact division is a call. Sums, differences, products and maxima
    take `flush_to_zero` too, and are left alone: for sm_80, sm_90 and sm_100 the same instructions
    come out, one for one, with another mode; and a product that flushes is not fused with a sum
    that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.divisors import divided_by
from agent.analysis.cutile.element_types import ElementTypes
from agent.analysis.cutile.maybe_float64 import MaybeFloat64, unless_float64
from agent.analysis.cutile.spelling import tile_module
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import F16, TileTrial
from agent.syntax import Source, descendants, keyword, positional, with_keyword

FLUSHED = tuple(f"{CT}{name}" for name in ("exp2", "rsqrt", "sqrt", "truediv"))
"""What takes `flush_to_zero`, of the functions that get slower without."""
APPROXIMATE = tuple(f"{CT}{name}" for name in ("exp", "sqrt", "tanh"))
"""What has an approximate form and, but for `exp` and `tanh`, no other fast one."""
EXPONENTIALS = (f"{CT}exp", f"{CT}exp2")
"""What gives a tiny number for one that is not."""
FLUSH: Params = {"flush_to_zero": True}
"""What is left of a variant where nothing takes a rounding mode."""
Edit = Callable[[cst.CSTNode], cst.CSTNode]


class FastMath(Optimization):
    """`a / b` -> `ct.truediv(a, b, rounding_mode=ct.RoundingMode.FULL, flush_to_zero=True)`."""

    name = "fast-math"
    title = "fast float32 arithmetic"
    backend = "cutile"
    family = "arithmetic"
    priority: ClassVar = {KernelClass.MEMORY: 40, KernelClass.BALANCED: 30, KernelClass.COMPUTE: 40}
    expected = "1 to 5 % (TileGym); half of a softmax's instructions"
    hypothesis = "An exact division is a subroutine of some 20 instructions, a fast one is two."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"rounding": "FULL"}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def normalize_kernel(x, y, TILE: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
    tile = tile.astype(ct.float32)
    root = ct.sqrt(ct.sum(tile * tile, axis=1, keepdims=True))
    unit = tile / root
    ct.store(y, index=(row, 0), tile=unit.astype(y.dtype))


def normalize(x):
    y = torch.empty_like(x)
    tile = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), normalize_kernel, (x, y, tile))
    return y
"""
    after = before.replace(
        "tile / root",
        "ct.truediv(tile, root, rounding_mode=ct.RoundingMode.FULL, flush_to_zero=True)",
    )

    trial = TileTrial(kernel="normalize_kernel", arguments=((F16, 2), (F16, 2), 1024))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Within 2 ulp, and as fast as it goes; the faster one that passes the tests is taken.

        Where nothing is there that takes a rounding mode, both only flush, and are one.
        """
        source = subject.source
        found: list[Params] = []
        for rounding in ("FULL", "APPROX"):
            if not (edits := _edits(source, rounding)):
                continue
            mode = f"RoundingMode.{rounding}"
            if source.rewrite(edits).count(mode) > source.text.count(mode):
                found.append({"rounding": rounding})
            elif FLUSH not in found:
                found.append(FLUSH)
        if not found:
            raise NotApplicable(
                "no launched kernel divides a whole tile that is certainly float32, or takes a "
                "root or an exponential of one, and leaves the rounding open"
            )
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Every such operation of the launched kernels and of the helpers they call."""
        edits = _edits(subject.source, str(params.get("rounding", "FULL")))
        if not edits:
            raise NotApplicable(f"no float32 operation is left to compute with {params}")
        return subject.source.rewrite(edits)


def _edits(source: Source, rounding: str) -> dict[cst.CSTNode, Edit]:
    found: dict[cst.CSTNode, Edit] = {}
    for kernel in CUTILE.chosen(source):
        for function in CUTILE.reached(source, kernel):
            types, larger = ElementTypes(source, function), MaybeFloat64(source, function)

            def unless(
                operation: cst.BaseExpression,
                types: ElementTypes = types,
                larger: MaybeFloat64 = larger,
            ) -> str:
                """When it is one of whole float32 tiles; empty for never."""
                if not types.is_float32(operation) or types.is_reduced(operation):
                    return ""
                names = larger.names(operation)
                return "" if names is None else unless_float64(tile_module(source), names)

            calls = list(_calls(source, function.node.body))
            small = [call for call in calls if source.name(call.func) in EXPONENTIALS]
            tiny = {d for call in small for d in divided_by(source, function, call)}
            for division in _divisions(function.node.body):
                if division.right not in tiny and (when := unless(division)):
                    found.setdefault(division, _division(tile_module(source), rounding, when))
            for call in calls:
                missing = _missing(source, call, rounding)
                if tiny & {*positional(call)} or (
                    call in small and divided_by(source, function, call)
                ):
                    missing.pop("flush_to_zero", None)  # by zero, in place of a tiny number
                if missing and (when := unless(call)):
                    found.setdefault(call, _setting(_only(missing, when)))
    return found


def _only(keywords: dict[str, str], when: str) -> dict[str, str]:
    """Keywords that are given under a condition; else what leaves them open."""
    if when == "True":
        return keywords
    return {
        name: when if value == "True" else f"{value} if {when} else None"
        for name, value in keywords.items()
    }


def _divisions(body: cst.CSTNode) -> Iterator[cst.BinaryOperation]:
    return (b for b in descendants(body, cst.BinaryOperation) if isinstance(b.operator, cst.Divide))


def _calls(source: Source, body: cst.CSTNode) -> Iterator[cst.Call]:
    """Calls that name no rounding of their own."""
    calls = CUTILE.find(source, body, {*FLUSHED, *APPROXIMATE})
    return (call for call in calls if keyword(call, "rounding_mode") is None)


def _missing(source: Source, call: cst.Call, rounding: str) -> dict[str, str]:
    """The keywords that a call lacks."""
    called = source.name(call.func) or ""
    mode = f"{tile_module(source)}.RoundingMode.{rounding}"
    wanted: dict[str, str] = {}
    if called == f"{CT}truediv" or (rounding == "APPROX" and called in APPROXIMATE):
        wanted["rounding_mode"] = mode
    if called in FLUSHED and keyword(call, "flush_to_zero") is None:
        wanted["flush_to_zero"] = "True"
    return wanted if len(positional(call)) in (1, 2) else {}


def _setting(keywords: dict[str, str]) -> Edit:
    def edit(node: cst.CSTNode) -> cst.CSTNode:
        call = cst.ensure_type(node, cst.Call)
        for name, value in keywords.items():
            call = with_keyword(call, name, value)
        return call

    return edit


def _division(tile: str, rounding: str, when: str) -> Edit:
    mode = f"{tile}.RoundingMode.{rounding}"
    keywords = _only({"rounding_mode": mode, "flush_to_zero": "True"}, when)

    def edit(node: cst.CSTNode) -> cst.CSTNode:
        division = cst.ensure_type(node, cst.BinaryOperation)
        call = cst.ensure_type(cst.parse_expression(f"{tile}.truediv()"), cst.Call)
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        left, right = (s.with_changes(lpar=[], rpar=[]) for s in (division.left, division.right))
        sides = [cst.Arg(left, comma=comma), cst.Arg(right)]
        call = call.with_changes(args=sides)
        for name, value in keywords.items():
            call = with_keyword(call, name, value)
        return call

    return edit
