"""Load whole tiles of a page where a kernel gathers rows at pages that it looks up in a table.

When: a cuTile kernel that gathers from a cache in pages, at a page that a table names, and all rows
    of a tile lie in one page: paged attention, or embeddings in blocks.
Do: look the page up once, `page = ct.gather(table, ...).item()`, and load `ct.load(cache,
    index=(page, ...), shape=...)`. A gather answers a page outside the cache with its padding,
    where a load is undefined: a branch keeps that, `if 0 <= page and page < cache.shape[0]`, and
    fills the tile otherwise. What the host code says to be inside is not asked for. A mask of the
    gather chooses between the loaded tile and the padding.
Risk: none to results. That a page holds whole tiles is read from the constants of every launch, or
    from an assertion.
Source: TileGym's cuTile playbook, item A, its third way, which claims 2x to 78x for all of A.
    Compiled for sm_90 with cuda-tile 1.7, a product of 16 queries with fp16 pages of 64 x 128 has
    1544 instructions with gathers of a page a tile, 3464 with a page a row, and no TMA for the
    pages; with loads in a branch 576, and TMA. Choosing by `ct.where` with a clamped page instead
    takes 2424.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.lookups import Lookups, PageAccess
from agent.analysis.cutile.spelling import tile_module
from agent.analysis.cutile.summands import GATHER, Lookup
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.formatting import STEP, WIDTH, NewCall, Place, laid_out
from agent.rewriting.common.insertion import unused
from agent.rewriting.cutile.paddings import padding_mode
from agent.syntax import Source, argument, keyword

FIRST_TMA = 90
Edit = Callable[[Any], Any]


class PagedLoads(Optimization):
    """`ct.gather(cache, (page, rows, columns))` -> `ct.load(cache, index=(page, 0, 0), ...)`."""

    name = "paged-loads"
    title = "tile loads of pages"
    backend = "cutile"
    family = "tma"
    priority: ClassVar = {
        KernelClass.MEMORY: 10,
        KernelClass.BALANCED: -10,
        KernelClass.COMPUTE: -10,
    }
    expected = "TileGym claims 2x to 78x; 1.00x for pages of 64 rows on an H200"
    hypothesis = "A page is fetched as one request with one address and one check of its bounds."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch

PAGE = 16


@ct.kernel
def sum_kernel(cache, table, y):
    sequence, i = ct.bid(0), ct.bid(1)
    positions = i * PAGE + ct.arange(PAGE, dtype=ct.int32)
    columns = ct.arange(64, dtype=ct.int32)
    pages = ct.gather(table, (sequence, positions // PAGE))
    slots = positions % PAGE
    tile = ct.gather(cache, (pages[:, None], slots[:, None], columns[None, :]))
    ct.store(y, index=(sequence, i), tile=ct.sum(tile).reshape((1, 1)))


def sums(x):
    cache = x.reshape(-1)[: x.numel() // (PAGE * 64) * PAGE * 64].reshape(-1, PAGE, 64)
    n_pages = cache.shape[0]
    table = torch.arange(n_pages, dtype=torch.int32, device=x.device).flip(0).reshape(1, n_pages)
    table = torch.cat((table, table - 2, table + 1))
    y = torch.empty((3, n_pages), dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (3, n_pages), sum_kernel, (cache, table, y))
    return y
"""
    after = before.replace(
        """\
    positions = i * PAGE + ct.arange(PAGE, dtype=ct.int32)
    columns = ct.arange(64, dtype=ct.int32)
    pages = ct.gather(table, (sequence, positions // PAGE))
    slots = positions % PAGE
    tile = ct.gather(cache, (pages[:, None], slots[:, None], columns[None, :]))
""",
        """\
    page = ct.gather(table, (sequence, (i * PAGE) // PAGE)).item()
    if 0 <= page and page < cache.shape[0]:
        tile = ct.reshape(
            ct.load(
                cache, index=(page, 0, 0), shape=(1, PAGE, 64), padding_mode=ct.PaddingMode.ZERO
            ),
            (PAGE, 64),
        )
    else:
        tile = ct.full((PAGE, 64), 0, dtype=cache.dtype)
""",
    )

    trial = TileTrial(kernel="sum_kernel", arguments=((F32, 3), ("int32", 2), (F32, 2)), rows_of=16)

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Rewrite them in all launched kernels, and drop the indices that nothing uses any more."""
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(
                f"sm_{subject.hardware.sm} has no TMA, so that a tile load costs more than a gather"
            )
        edits: dict[cst.CSTNode, Edit] = {}
        reasons: list[str] = []
        for kernel in CUTILE.chosen(subject.source):
            edits |= _Rewriting(subject.source, kernel, reasons).edits()
        if not edits:
            raise all_refuse(reasons, "no launched kernel gathers")
        return subject.source.rewrite(edits)


class _Rewriting:
    """The gathers of one kernel."""

    def __init__(self, source: Source, kernel: Kernel, reasons: list[str]) -> None:
        self._source, self._kernel, self._reasons = source, kernel, reasons
        self._names: dict[cst.BaseExpression, str] = {}
        self._taken: set[str] = set()
        self._ct = tile_module(source)

    def edits(self) -> dict[cst.CSTNode, Edit]:
        """All of them; why a gather stays is added to the reasons."""
        source, body = self._source, self._kernel.function.node.body
        lookups = Lookups(source, self._kernel, self._name_of)
        before: dict[cst.SimpleStatementLine, list[str]] = {}
        """Line -> the statements that go in front of it, or that stand for it."""
        replaced: dict[cst.CSTNode, Edit] = {}
        instead: set[cst.SimpleStatementLine] = set()
        for call in CUTILE.find(source, body, (GATHER,)):
            try:
                access = lookups.access(call)
                line = self._statement(call)
                named = _is_whole_value(line, call)
                name = self._target(line) if named else self._fresh("tile")
                text = self._text(access, name)
                places = [(found, self._statement(found.call)) for found in access.lookups]
            except NotRegular as reason:
                self._reasons.append(f"line {source.line(call)}: {reason}")
                continue
            for found, place in places:
                lookup = self._lookup(found)
                if lookup not in before.setdefault(place, []):
                    before[place].append(lookup)
            before.setdefault(line, []).append(text)
            if named:
                instead.add(line)
            else:
                replaced[call] = _named(name)
        for line, texts in before.items():
            replaced[line] = _written(texts, alone=line in instead)
        return replaced

    def _name_of(self, call: cst.BaseExpression) -> str:
        if call not in self._names:
            self._names[call] = self._fresh("page")
        return self._names[call]

    def _fresh(self, wanted: str) -> str:
        name = unused(self._kernel, wanted, self._taken)
        self._taken.add(name)
        return name

    def _statement(self, node: cst.CSTNode) -> cst.SimpleStatementLine:
        """The line of its own that holds an access, in front of which others may go."""
        for around in self._source.ancestors(node):
            if isinstance(around, cst.SimpleStatementLine):
                writes = CUTILE.find(self._source, around, CUTILE.stores)
                if len(around.body) == 1 and all(
                    any(a is write for a in self._source.ancestors(node)) for write in writes
                ):
                    return around
                break
            if isinstance(around, cst.Lambda | cst.BaseComp | cst.BaseCompoundStatement):
                break
        raise NotRegular("it stands in no statement of its own")

    def _target(self, line: cst.SimpleStatementLine) -> str:
        assign = cst.ensure_type(line.body[0], cst.Assign)
        return cst.ensure_type(assign.targets[0].target, cst.Name).value

    def _lookup(self, found: Lookup) -> str:
        code = self._source.code
        if found.element is None:
            text = code(found.call)
            return f"{found.name} = {text if text.endswith('.item()') else text + '.item()'}"
        call = cst.ensure_type(found.call, cst.Call)
        table = argument(call, 0, "array")
        options = [
            code(a.with_changes(comma=cst.MaybeSentinel.DEFAULT))
            for a in call.args
            if a.keyword is not None and a.keyword.value not in ("array", "indices")
        ]
        given = ", ".join([code(table or call), _tuple(found.element), *options])
        return f"{found.name} = {code(call.func)}({given}).item()"

    def _text(self, access: PageAccess, name: str) -> str:
        """The statement that loads the tile of an access into a name."""
        source, ct = self._source, self._ct
        array = access.array.value
        edges = _tuple([source.code(a.length) if a.length else "1" for a in access.axes])
        shape = _tuple([source.code(e) if e else "1" for e in access.shape])
        given = keyword(access.call, "padding_value")
        padding = source.code(given) if given is not None else "0"
        conditions = [a.inside for a in access.axes if a.inside]
        where = [array, f"index={_tuple([a.index for a in access.axes])}", f"shape={edges}"]
        unchecked = keyword(access.call, "check_bounds")
        if unchecked is None or source.code(unchecked) != "False" or access.mask is not None:
            where.append(padding_mode(source, access.call, ct))
        if (latency := keyword(access.call, "latency")) is not None:
            where.append(f"latency={source.code(latency)}")
        tile: NewCall = NewCall(f"{ct}.load", where)
        if shape != edges:
            tile = NewCall(f"{ct}.reshape", [tile, shape])
        filled = f"{ct}.full({shape}, {padding}, dtype={array}.dtype)"
        if access.mask is not None:
            tile = NewCall(f"{ct}.where", [source.code(access.mask), tile, filled])
        indent = Place.of(source, access.call).block
        if not conditions:
            return f"{name} = {laid_out(tile, Place(indent, indent, indent + len(name) + 3, 0))}"
        condition = f"if {' and '.join(conditions)}:"
        if indent + len(condition) > WIDTH:
            listed = "\n    and ".join(conditions)
            condition = f"if (\n    {listed}\n):"
        place = Place(indent, indent + STEP, indent + STEP + len(name) + 3, 0)
        loaded = laid_out(tile, place)
        return f"{condition}\n    {name} = {loaded}\nelse:\n    {name} = {filled}\n"


def _is_whole_value(line: cst.SimpleStatementLine, call: cst.Call) -> bool:
    """Whether a line is `name = <call>`."""
    match line.body[0]:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value):
            return value is call
    return False


def _named(name: str) -> Edit:
    return lambda _: cst.Name(name)


def _written(texts: Sequence[str], *, alone: bool) -> Edit:
    """Statements in front of a line, or in its place; its comments stay in front of them."""

    def edit(line: cst.SimpleStatementLine) -> Any:
        first, *rest = map(cst.parse_statement, texts)
        first = first.with_changes(leading_lines=line.leading_lines)
        last = [] if alone else [line.with_changes(leading_lines=[])]
        return cst.FlattenSentinel([first, *rest, *last])

    return edit


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
