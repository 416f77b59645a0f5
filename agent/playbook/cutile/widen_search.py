"""Give a search of the author's more configs to choose from.

When: a cuTile kernel with one matrix product in its loop that `cuda.tile.tune.exhaustive_search`
    tunes, over configs that this file lists or yields, each written out. Not where sizes never
    differ.
Do: behind those that are there, the sizes, occupancy and num_ctas that a search on this generation
    of GPUs was fastest with.
Risk: another tile size along the loop changes the order of the sum. The first call for a shape
    takes 0.2 to 2 s longer for each config.
Source: TileGym's cuTile playbook, item C, claims 10 to 20 % for a wider space. The rows are those
    of `agent.tuning.templates`: for sm_90 the fastest of 76 on an NVIDIA H200 with cuda-tile 1.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile import traits
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.searches import AuthorsSearch, search_of
from agent.analysis.cutile.uses import Uses
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.trial import F16, TileTrial
from agent.rewriting.common.elements import with_elements
from agent.rewriting.common.formatting import WIDTH
from agent.rewriting.common.tile_sizes import MOST_ELEMENTS
from agent.syntax import Edits, Source, descendants, keyword
from agent.tuning.templates import TEMPLATES, rows_for

PRODUCT = TEMPLATES["T3"]
CAPABILITY = "torch.cuda.get_device_capability"
ASSUMED_SM = 90
"""Where there is no GPU to ask."""


class WidenSearch(OfEachKernel):
    """`yield Config(...)` -> and others, for this generation of GPUs."""

    name = "widen-search"
    title = "more configs to search"
    backend = "cutile"
    family = "autotune"
    priority: ClassVar = {KernelClass.COMPUTE: 0, KernelClass.BALANCED: 0}
    expected = "10 to 20 % (TileGym) where the author listed a few"
    hypothesis = "The best config for this GPU is one that the author did not list."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = """\
from types import SimpleNamespace

import cuda.tile as ct
import torch
from cuda.tile.tune import exhaustive_search

ConstInt = ct.Constant[int]
best = {}


@ct.kernel
def matmul_kernel(a, b, c, M: ConstInt, N: ConstInt, K: ConstInt):
    row, column = ct.bid(0), ct.bid(1)
    sum = ct.zeros((M, N), dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, (row, k), (M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (k, column), (K, N), padding_mode=ct.PaddingMode.ZERO)
        sum = ct.mma(left, right, sum)
    ct.store(c, index=(row, column), tile=ct.astype(sum, c.dtype))


def configs():
    if torch.cuda.get_device_capability()[0] >= 10:
        yield SimpleNamespace(m=256, n=256, k=64, occupancy=1, num_ctas=2)
    else:
        yield SimpleNamespace(m=128, n=128, k=64, occupancy=1, num_ctas=1)
        yield SimpleNamespace(m=64, n=64, k=128, occupancy=1, num_ctas=1)


def matmul(a, b):
    m, n = a.shape[0], b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    stream = torch.cuda.current_stream()

    def grid(cfg):
        return ct.cdiv(m, cfg.m), ct.cdiv(n, cfg.n)

    if (m, n, a.shape[1]) not in best:
        result = exhaustive_search(
            list(configs()),
            stream,
            grid,
            matmul_kernel,
            lambda cfg: (a, b, c, cfg.m, cfg.n, cfg.k),
            lambda cfg: {"occupancy": cfg.occupancy, "num_ctas": cfg.num_ctas},
        )
        cfg = result.best.config
        hinted = matmul_kernel.replace_hints(occupancy=cfg.occupancy, num_ctas=cfg.num_ctas)
        best[m, n, a.shape[1]] = cfg, hinted
    cfg, kernel = best[m, n, a.shape[1]]
    ct.launch(stream, grid(cfg), kernel, (a, b, c, cfg.m, cfg.n, cfg.k))
    return c
"""
    after = before.replace(
        "m=64, n=64, k=128, occupancy=1, num_ctas=1)\n",
        """\
m=64, n=64, k=128, occupancy=1, num_ctas=1)
    if torch.cuda.get_device_capability()[0] == 9:
        yield SimpleNamespace(m=32, n=32, k=64, occupancy=2, num_ctas=1)
        yield SimpleNamespace(m=64, n=128, k=64, occupancy=2, num_ctas=1)
        yield SimpleNamespace(m=64, n=256, k=32, occupancy=2, num_ctas=1)
        yield SimpleNamespace(m=128, n=64, k=64, occupancy=2, num_ctas=1)
        yield SimpleNamespace(m=128, n=128, k=32, occupancy=2, num_ctas=1)
        yield SimpleNamespace(m=128, n=128, k=64, occupancy=2, num_ctas=1)
        yield SimpleNamespace(m=256, n=128, k=64, occupancy=2, num_ctas=2)
""",
    )

    trial = TileTrial(
        kernel="matmul_kernel", arguments=((F16, 2), (F16, 2), (F16, 2), 128, 128, 64)
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Widen the search of one kernel."""
        source = subject.source
        search = search_of(source, kernel)
        texts = _configs(source, search, _values(source, kernel, search, subject.hardware.sm))
        if not texts:
            raise NotApplicable(f"the search for {kernel.name} has every config worth trying")
        if search.listed is not None:
            return {search.listed: with_elements(texts)}
        assert search.generator is not None
        capability = _capability(source, search.generator.node)
        sm = subject.hardware.sm or ASSUMED_SM
        statement = _yielding(source, texts, f"{capability}[0] == {sm // 10}" if capability else "")

        def longer(body: cst.BaseSuite) -> cst.BaseSuite:
            assert isinstance(body, cst.IndentedBlock)
            return body.with_changes(body=[*body.body, *statement])

        return {search.generator.node.body: longer}


def _values(
    source: Source, kernel: Kernel, search: AuthorsSearch, sm: int
) -> Iterator[Mapping[str, int]]:
    """The fields of each row, as far as a row sets them.

    Raises:
        NotApplicable: the sizes of the product are not fields, or one is the same in every config,
            so that nothing says it may change.
    """
    read = traits.read(source, kernel, Uses(source, kernel))
    if read.products != 1 or read.attends or read.grouped or read.eight_bit:
        raise NotApplicable(f"{kernel.name} is no plain matrix product")
    fields = {constant: field for field, constant in search.constants.items()}
    if any(read.axes.get(axis) not in fields for axis in PRODUCT.axes):
        raise NotApplicable(f"no config sets the sizes M, N and K of {kernel.name}")
    sizes = [fields[read.axes[axis]] for axis in PRODUCT.axes]
    for field in sizes:
        given = search.values(source, field)
        if len(given) == 1 and given[0].isdigit():  # a name is a loop's over several
            raise NotApplicable(f"`{field}` is the same in every config of {kernel.name}")
    bounds = {
        field: _bounds(source, kernel, read.axes[axis], search.values(source, field))
        for axis, field in zip(PRODUCT.axes, sizes, strict=True)
    }
    hints = {hint: field for field, hint in search.hints.items()}
    assert PRODUCT.rows is not None
    for *edges, occupancy, num_ctas in rows_for(PRODUCT.rows, sm or ASSUMED_SM):
        row = dict(zip(sizes, edges, strict=True))
        if not all(row[field] in bounds[field] for field in sizes):
            continue
        if "occupancy" in hints:
            row[hints["occupancy"]] = occupancy
        if "num_ctas" in hints:
            row[hints["num_ctas"]] = num_ctas
        elif num_ctas != 1:
            continue
        yield row


def _bounds(source: Source, kernel: Kernel, constant: str, given: Sequence[str]) -> range:
    """The sizes that are right, beside those in the configs.

    Raises:
        NotApplicable: the kernel needs the size to be what it is, or what it is, is not told.
    """
    flow = Flow(CUTILE, source, kernel, constant)
    if (refusal := needed_size(flow)) is not None:
        raise NotApplicable(f"{constant} of {kernel.name}: {refusal}")
    may = SizeChanges.of(flow)
    if may.may_grow and may.may_shrink:
        return range(1, MOST_ELEMENTS + 1)
    if not all(text.isdigit() for text in given):
        what = "shrink" if may.may_grow else "grow"
        raise NotApplicable(f"{constant} of {kernel.name} may not {what}, and is computed")
    known = [*map(int, given)]
    return range(
        1 if may.may_shrink else min(known), 1 + (MOST_ELEMENTS if may.may_grow else max(known))
    )


def _configs(source: Source, search: AuthorsSearch, rows: Iterator[Mapping[str, int]]) -> list[str]:
    """The texts of configs that are not there yet; what a row leaves open is as in every config.

    Raises:
        NotApplicable: a field is left open that differs from config to config.
    """
    known = [
        {field: source.code(keyword(config, field) or config) for field in search.fields}
        for config in search.configs
    ]
    found: dict[str, None] = {}
    called = source.code(search.configs[0].func)
    for row in rows:
        values = {field: str(row[field]) for field in search.fields if field in row}
        for field in search.fields:
            if field in row:
                continue
            given = search.values(source, field)
            if len(given) != 1:
                raise NotApplicable(f"configs differ in `{field}`, and nothing says what it is")
            values[field] = given[0]
        if values not in known:
            given_all = ", ".join(f"{field}={values[field]}" for field in search.fields)
            found[f"{called}({given_all})"] = None
    return list(found)


def _capability(source: Source, generator: cst.FunctionDef) -> str:
    """How the generator asks for the GPU's generation; empty where it does not."""
    for call in descendants(generator.body, cst.Call):
        if source.name(call.func) == CAPABILITY:
            return source.code(call)
    return ""


def _yielding(source: Source, texts: list[str], condition: str) -> list[cst.BaseStatement]:
    """Statements that yield them, behind a condition where there is one."""
    indent = source.module.default_indent
    room = WIDTH - len(indent) * (2 if condition else 1)
    lines: list[str] = []
    for text in texts:
        whole = f"yield {text}"
        if len(whole) > room:
            call = cst.ensure_type(cst.parse_expression(text), cst.Call)
            bare = (arg.with_changes(comma=cst.MaybeSentinel.DEFAULT) for arg in call.args)
            fields = [source.module.code_for_node(arg) for arg in bare]
            if len(indent + ", ".join(fields)) <= room:
                fields = [", ".join(fields)]
            else:
                fields = [f"{field}," for field in fields]
            called = source.module.code_for_node(call.func)
            lines += [f"yield {called}(", *(indent + field for field in fields), ")"]
        else:
            lines.append(whole)
    if condition:
        lines = [f"if {condition}:", *(f"{indent}{line}" for line in lines)]
    text = source.module.default_newline.join(lines) + source.module.default_newline
    parsed = cst.parse_module(text, config=source.module.config_for_parsing)
    return [s for s in parsed.body if isinstance(s, cst.BaseStatement | cst.SimpleStatementLine)]
