"""Take the configs out of an author's search that cannot win.

When: a cuTile kernel with one matrix product in its loop that `cuda.tile.tune.exhaustive_search`
    tunes, over configs that this file lists or yields, each written out.
Do: take out a config that is there before; one whose sums or operands fit on no multiprocessor; and
    one that asks for more blocks than these sums leave room for, where the same config with fewer
    is there: the compiler ignores such a hint, and both are the same code.
Risk: none to results: the author's search may choose any of its configs.
Source: TileGym's cuTile autotuning, on searches that take too long. A multiprocessor has 256 KiB of
    registers, or of tensor memory on sm_100, for the sums in fp32, and less than 228 KiB of shared
    memory for the operands. Compiled with cuda-tile 1.7, a fp16 product of 512 x 256 x 64 takes
    39 s for sm_80, 9 s for sm_90 and 35 s for sm_100, one of 128 x 128 x 64 0.2 to 0.7 s; and
    occupancy 4 gives 256 x 128 x 64 the code of occupancy 1 for sm_90.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile import traits
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.searches import AuthorsSearch, search_of
from agent.analysis.cutile.uses import Uses
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.cutile.widen_search import WidenSearch
from agent.playbook.trial import TileTrial
from agent.rewriting.common.elements import with_only
from agent.syntax import Edits, Source, Untraceable, keyword

SUMS_BYTES = 256 * 1024
"""Of registers, or of tensor memory, on a multiprocessor of any generation."""
SHARED_BYTES = 228 * 1024
"""Of shared memory on the multiprocessor that has most."""
SUM_BYTES = 4
OPERAND_BYTES = 1
"""The smallest element: of what type the operands are, their arrays decide."""
HINTS = ("occupancy", "num_ctas")
_LARGE = "        yield SimpleNamespace(m=512, n=256, k=64, occupancy=1, num_ctas=1)\n"
_AGAIN = "        yield SimpleNamespace(m=128, n=128, k=64, occupancy=8, num_ctas=1)\n"


class PruneSearch(OfEachKernel):
    """`yield Config(...)` -> nothing, for what cannot win."""

    name = "prune-search"
    title = "fewer configs to search"
    backend = "cutile"
    family = "autotune"
    priority: ClassVar = {KernelClass.COMPUTE: 210, KernelClass.BALANCED: 270}
    expected = "no latency; the first call takes 0.2 to 40 s less for each config"
    hypothesis = "What fits on no multiprocessor need not be compiled and timed."
    saves = "the time to compile and time configs that cannot win"
    opt_in = "it saves the time of tuning and no latency"
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    after = WidenSearch.before
    before = after.replace("    else:\n", f"    else:\n{_LARGE}", 1).replace(
        "\n\ndef matmul(", f"{_AGAIN}\n\ndef matmul(", 1
    )
    trial: ClassVar[TileTrial] = WidenSearch.trial

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Prune the search of one kernel."""
        source = subject.source
        search = search_of(source, kernel)
        stay = search.configs[: search.counted]
        dropped = [config for config in _dropped(source, search, _sizes(source, kernel, search))
                   if config not in stay]  # fmt: skip
        if search.listed is not None:
            left = [e for e in search.listed.elements if e.value not in dropped] or [
                search.listed.elements[0]
            ]
            if len(left) < len(search.listed.elements):
                return {search.listed: with_only(search.listed, left)}
        elif lines := _lines(source, dropped):
            return dict.fromkeys(lines, _removed)
        raise NotApplicable(f"each of the {len(search.configs)} configs of {kernel.name} may win")


def _removed(_: cst.CSTNode) -> Any:
    return cst.RemoveFromParent()


def _sizes(source: Source, kernel: Kernel, search: AuthorsSearch) -> Mapping[str, str]:
    """Axis of the product, or hint -> the field of a config.

    Raises:
        NotApplicable: the kernel is no plain product with sums in fp32.
    """
    read = traits.read(source, kernel, Uses(source, kernel))
    fields = {constant: field for field, constant in search.constants.items()}
    if read.products != 1 or read.attends or read.grouped:
        raise NotApplicable(f"{kernel.name} is no plain matrix product")
    if any(read.axes.get(axis) not in fields for axis in "MNK"):
        raise NotApplicable(f"no config sets the sizes M, N and K of {kernel.name}")
    for function in CUTILE.reached(source, kernel):
        for call in CUTILE.find(source, function.node.body, CUTILE.accumulators):
            dtype = keyword(call, "dtype")
            if dtype is None or source.name(dtype) != f"{CT}float32":
                raise NotApplicable(f"line {source.line(call)} is not seen to sum in fp32")
    hints = {hint: field for field, hint in search.hints.items() if hint in HINTS}
    return {**{axis: fields[read.axes[axis]] for axis in "MNK"}, **hints}


def _dropped(
    source: Source, search: AuthorsSearch, sizes: Mapping[str, str]
) -> Iterator[cst.BaseExpression]:
    """The configs that cannot win."""
    known = [(config, _numbers(source, config)) for config in search.configs]
    for place, (config, numbers) in enumerate(known):
        row = {axis: numbers.get(field) for axis, field in sizes.items()}
        m, n, k = (row[axis] for axis in "MNK")
        if None in numbers.values() or not m or not n or not k:
            continue
        ctas, blocks = row.get("num_ctas") or 1, row.get("occupancy") or 1
        beside = [(c, other) for c, other in known if _together(source, c, config)]
        before = [other for c, other in known[:place] if _together(source, c, config)]
        sums = m * n * SUM_BYTES
        operands = (m + n) * k * OPERAND_BYTES
        if (
            numbers in before
            or sums > SUMS_BYTES * ctas
            or operands > SHARED_BYTES * ctas
            or (
                sums * blocks > SUMS_BYTES * ctas
                and any(
                    0 < (other[sizes["occupancy"]] or 0) < blocks
                    and {**other, sizes["occupancy"]: blocks} == numbers
                    for _, other in beside
                )
            )
        ):
            yield config


def _numbers(source: Source, config: cst.Call) -> dict[str, int | None]:
    """The fields of a config; None where the file does not tell."""
    found: dict[str, int | None] = {}
    for arg in config.args:
        assert arg.keyword is not None
        try:
            found[arg.keyword.value] = source.trace(arg.value).value
        except Untraceable:
            found[arg.keyword.value] = None
    return found


def _together(source: Source, one: cst.Call, other: cst.Call) -> bool:
    """Whether two configs are listed or yielded one with the other: in the same block."""
    return _block(source, one) is _block(source, other)


def _block(source: Source, config: cst.Call) -> cst.CSTNode | None:
    return next(
        (a for a in source.ancestors(config) if isinstance(a, cst.IndentedBlock | cst.Module)), None
    )


def _lines(source: Source, configs: list[cst.BaseExpression]) -> list[cst.CSTNode]:
    """The statements that yield them; a block keeps the first where nothing would be left."""
    lines: list[cst.CSTNode] = []
    for config in configs:
        line = next(a for a in source.ancestors(config) if isinstance(a, cst.SimpleStatementLine))
        block = next(source.ancestors(line))
        kept = [s for s in block.body if s not in lines] if hasattr(block, "body") else []
        if len(line.body) == 1 and len(kept) > 1:
            lines.append(line)
    return lines
