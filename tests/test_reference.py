"""The pages of `docs/reference/` tell what the code, cuda.tile and Triton do."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda.tile as ct
import pytest
import torch
import triton
import triton.language as tl
from typer.testing import CliRunner

from agent.analysis.common.kernels import KernelClass, class_of
from agent.cli.main import app
from agent.evidence import advice
from agent.evidence.occupancy import (
    LIMITS,
    MOST_THREADS,
    REGISTER_UNIT,
    REGISTERS,
    RESERVED_BYTES,
    occupancy,
)
from agent.evidence.sass import count
from agent.lint import Severity, api, lint
from agent.measuring.decision import Rules
from agent.playbook import ADVICE, PLAYBOOK, for_backend
from agent.playbook.base import Entry
from agent.skillbook.playbook_page import as_markdown
from agent.syntax import Source
from tests.support.pages import ROOT, blocks, prose, rows
from tests.support.tile_cpu import result_of

PAGES = ROOT / "docs" / "reference"
OWN = ("README", "knobs", "performance_model", "compiler_output", "patterns")
ENTRIES: tuple[Entry, ...] = (*PLAYBOOK, *ADVICE)
KIB = 1024

_SPAN = re.compile(r"`([^`\n]+)`")
_FIGURE = re.compile(r"\d (?:%|ms|s|us|GB|MB|TB/s|TFLOP/s|bytes)(?![\w/])")
_MEASURED = re.compile(
    r"\w+, (?:cuda-tile|Triton) \d+\.\d+: "
    r"(?:(?:in a search: |on public code: )?[\w -]+ [+-]\d+\.\d %"
    r"(?: \((?:noise|refused)\))?(?:, |; |$))+"
)


def page(name: str) -> Path:
    return PAGES / f"{name}.md"


def flat(name: str) -> str:
    """A page without its line ends."""
    return " ".join(page(name).read_text(encoding="utf-8").split())


# --- the playbook -------------------------------------------------------------------------------


def test_the_playbook_is_what_the_command_prints() -> None:
    done = CliRunner().invoke(app, ["playbook", "reference"])
    assert done.exit_code == 0, done.output
    assert page("playbook").read_text(encoding="utf-8") == done.output == as_markdown(), (
        "run `tile-agent playbook reference > docs/reference/playbook.md`"
    )


def test_one_language_is_a_part_of_the_page() -> None:
    found = CliRunner().invoke(app, ["playbook", "reference", "--backend", "triton"]).output
    named = {entry.name for entry in ENTRIES if f"\n### {entry.name}\n" in found}
    assert named == {entry.name for entry in ENTRIES if entry.backend == "triton"}


def test_the_page_gives_the_share_that_puts_a_family_last() -> None:
    assert f"a gain under {100 * Rules().major:.0f} % puts" in flat("playbook")


def test_the_order_on_the_page_is_that_of_a_run() -> None:
    for backend in ("cutile", "triton"):
        for column, kernel_class in enumerate(KernelClass, 1):
            listed = [row for row in rows(page("playbook"), "entry") if row[column] != "-"]
            mine = {f"[{e.name}](#{e.name})": e for e in PLAYBOOK if e.backend == backend}
            places = sorted((int(r[column]), r[0]) for r in listed if r[0] in mine)
            priorities = [mine[name].priority[kernel_class] for _, name in places]
            assert priorities == sorted(priorities)
            assert len(places) == sum(kernel_class in e.priority for e in mine.values())


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.measured], ids=lambda entry: entry.name)
def test_what_was_measured_names_gpu_version_and_kernels(entry: Entry) -> None:
    assert _MEASURED.fullmatch(entry.measured)
    done = CliRunner().invoke(app, ["playbook", "show", entry.name, "--json"])
    assert json.loads(done.output)["measured"] == entry.measured


def test_the_performance_model_tells_what_the_entries_tell() -> None:
    """The table of ten kernels has the figures of the entries, and no others."""
    titles = {entry.title.partition(" (")[0]: entry for entry in for_backend("cutile")}
    listed = [row for row in rows(page("performance_model"), "optimization") if len(row) == 3]
    assert len(listed) > 5
    for title, gained, lost in listed:
        told = re.findall(r"([a-z][a-z -]+?) (-?\d+\.\d) %", f"{gained}, {lost}")
        known = re.findall(r"([a-z][a-z -]+?) ([+-]\d+\.\d) %", titles[title].measured)
        assert {(k, float(v)) for k, v in told} <= {(k, float(v)) for k, v in known}
        assert told


# --- knobs --------------------------------------------------------------------------------------

TAKERS: dict[str, Callable[..., Any]] = {
    "ct.ArrayAnnotation": ct.ArrayAnnotation,
    "triton.Config": triton.Config,
    "tl.range": tl.range,
    "tl.load": tl.load,
    "tl.dot": tl.dot,
}


def parameters(function: str) -> set[str]:
    """The names of the parameters of a function of cuda.tile or Triton."""
    if function in TAKERS:
        return set(inspect.signature(TAKERS[function]).parameters)
    return set(api.signatures()[function.removeprefix("ct.")].parameters)


KNOBS = [row for row in rows(page("knobs"), "knob") if row[0].startswith("`")]
CALLS = [call for row in KNOBS for call in re.findall(r"`([\w.]+)\((\w+)=?\)`", row[0])]


def test_there_are_knobs_of_both_languages() -> None:
    assert len(CALLS) > 20
    assert {function.partition(".")[0] for function, _ in CALLS} == {"ct", "tl", "triton"}


@pytest.mark.parametrize(("function", "keyword"), CALLS)
def test_a_knob_exists(function: str, keyword: str) -> None:
    assert keyword in parameters(function)


def test_every_hint_of_a_kernel_is_a_knob() -> None:
    assert {keyword for function, keyword in CALLS if function == "ct.kernel"} == set(api.HINTS)


def listed_values(text: str) -> list[int]:
    """'1 to 32' or '1, 2, 4' as integers."""
    if bounds := re.fullmatch(r"(\d+) to (\d+)", text):
        return list(range(int(bounds[1]), int(bounds[2]) + 1))
    return [int(value) for value in text.split(", ")]


@pytest.mark.parametrize("hint", api.HINTS)
def test_cuda_tile_takes_the_values_of_a_hint_and_no_others(hint: str) -> None:
    (row,) = [row for row in KNOBS if row[0] == f"`ct.kernel({hint}=)`"]
    allowed = listed_values(row[1])

    def empty() -> None:
        """A kernel that does nothing."""

    for value in range(-1, 65):
        if value in allowed:
            ct.kernel(empty, **{hint: value})
        else:
            with pytest.raises(ValueError, match=hint):
                ct.kernel(empty, **{hint: value})


@pytest.mark.parametrize(
    ("knob", "module"),
    [
        ("`ct.kernel(num_worker_warps=)`", "worker_warps"),
        ("`ct.kernel(opt_level=)`", "opt_level"),
        ("`ct.load(latency=)`", "load_latency"),
        ("`ct.gather(latency=)`", "load_latency"),
        ("`ct.store(latency=)`", "store_latency"),
        ("`ct.scatter(latency=)`", "store_latency"),
        ("rows a block", "rows_per_block"),
        ("group of tiles", "grouped_order"),
    ],
)
def test_the_values_tried_are_those_of_the_entry(knob: str, module: str) -> None:
    (row,) = [row for row in rows(page("knobs"), "knob") if row[0] == knob]
    tried = row[1] if len(row) == 4 else row[2]
    sweep = importlib.import_module(f"agent.playbook.cutile.{module}").SWEEP
    assert listed_values(tried) == list(sweep)


def test_the_occupancies_tried_are_those_of_the_entry() -> None:
    from agent.playbook.cutile.occupancy_hint import SWEEP

    (row,) = [row for row in KNOBS if row[0] == "`ct.kernel(occupancy=)`"]
    tried = row[2].removesuffix(" where memory is the limit")
    assert listed_values(tried) == list(SWEEP[KernelClass.MEMORY])


def test_the_blocks_a_multiprocessor_are_those_of_the_entry() -> None:
    from agent.playbook.cutile.persistent_blocks import SWEEP, SWEEP_DOT

    (row,) = [row for row in rows(page("knobs"), "knob") if row[0] == "blocks a multiprocessor"]
    plain, _, product = row[1].removesuffix(" with a product").partition("; ")
    assert [listed_values(plain), listed_values(product)] == [list(SWEEP), list(SWEEP_DOT)]


def test_the_padding_modes_are_those_of_cuda_tile() -> None:
    (row,) = [row for row in KNOBS if row[0] == "`ct.load(padding_mode=)`"]
    assert set(row[1].split(", ")) == set(ct.PaddingMode.__members__)


def test_every_entry_that_a_page_links_is_an_entry() -> None:
    names = {entry.name for entry in ENTRIES}
    for name in OWN:
        linked = re.findall(r"\[([\w-]+)\]\(playbook\.md#([\w-]+)\)", page(name).read_text())
        assert {n for pair in linked for n in pair} <= names


# --- the performance model ----------------------------------------------------------------------


def test_the_limits_are_those_of_the_code() -> None:
    listed = {int(r[0]): [int(c) for c in r[1:]] for r in rows(page("performance_model"), "sm")}
    assert listed == {
        sm: [x.warps, x.blocks, x.shared_bytes // KIB, x.block_shared_bytes // KIB]
        for sm, x in LIMITS.items()
    }
    text = flat("performance_model")
    for phrase in (
        f"All have {REGISTERS} registers",
        f"in units of {REGISTER_UNIT}",
        f"A block has {MOST_THREADS} threads at most",
        f"takes {RESERVED_BYTES} bytes of shared memory from each block",
    ):
        assert phrase in text


def test_the_worked_occupancies_are_those_of_the_code() -> None:
    worked = rows(page("performance_model"), "registers")
    assert len(worked) > 3
    for registers, threads, shared, said in worked:
        assert str(occupancy(90, int(registers), int(threads), int(shared))) == said


def test_the_thresholds_are_those_of_the_classes() -> None:
    listed = {r[0]: r[1] for r in rows(page("performance_model"), "class")}
    assert listed == {
        "memory-bound": "below 10",
        "balanced": "10 to 50",
        "compute-bound": "above 50",
    }
    assert [class_of(x) for x in (9.9, 10, 50, 50.1)] == [
        KernelClass.MEMORY,
        KernelClass.BALANCED,
        KernelClass.BALANCED,
        KernelClass.COMPUTE,
    ]
    assert set(listed) == {c.value for c in KernelClass}


def test_the_throughputs_follow_from_the_latencies() -> None:
    listed = rows(page("performance_model"), "tiles of a bf16 product, 4096^3")
    assert len(listed) == 5
    for _, latency_ms, tflops in listed:
        assert float(tflops) == pytest.approx(2 * 4096**3 / float(latency_ms) / 1e9, abs=0.6)


# --- what the compiler says ---------------------------------------------------------------------


def test_the_reasons_and_mends_are_those_that_explain_gives() -> None:
    listed = rows(page("compiler_output"), "the reason begins")
    assert [tuple(row) for row in listed] == list(advice._TMA_MENDS)


def test_the_instructions_are_those_that_are_counted() -> None:
    names = [n for r in rows(page("compiler_output"), "instruction") for n in _SPAN.findall(r[0])]
    assert len(names) > 10
    for name in names:
        mix = count(f"        /*0010*/                   {name} R0, R1 ;\n").to_json()
        counted = {k for k, value in mix.items() if value and k != "total"}
        assert counted, name


def test_the_quoted_output_agrees_with_the_code() -> None:
    (quoted,) = blocks(page("compiler_output"), "text")
    match = re.search(r"sm_(\d+): (\d+) registers, .*?(\d+) bytes of shared .*?(\d+) thr", quoted)
    assert match
    sm, registers, shared, threads = map(int, match.groups())
    assert f"\n  {occupancy(sm, registers, threads, shared)}\n" in quoted


def test_the_variables_are_those_of_cuda_tile() -> None:
    package = Path(inspect.getfile(ct)).parent
    text = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    named = [row[0].strip("`") for row in rows(page("compiler_output"), "variable")]
    assert len(named) > 5
    assert [name for name in named if name not in text] == []


# --- patterns -----------------------------------------------------------------------------------


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[1],), weight, 1e-6)


CASES: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "softmax": (lambda x: x.softmax(1), lambda: (torch.randn(3, 37),)),
    "rms_norm": (_rms_norm, lambda: (torch.randn(2, 1500), torch.randn(1500))),
    "log_sum_exp": (lambda x: x.logsumexp(1), lambda: (torch.randn(3, 700),)),
    "matmul": (torch.matmul, lambda: (torch.randn(150, 70).half(), torch.randn(70, 200).half())),
    "lookup": (
        lambda table, rows: table[rows.long()],
        lambda: (torch.randn(9, 300), torch.tensor([4, 0, 8, 4], dtype=torch.int32)),
    ),
    "add": (torch.add, lambda: (torch.randn(1300), torch.randn(1300))),
}
LISTINGS = blocks(page("patterns"), "python")


def functions(listing: str) -> list[str]:
    """The function of a listing that launches: the last."""
    return re.findall(r"^def (\w+)", listing, re.MULTILINE)[-1:]


def test_every_pattern_is_run() -> None:
    assert [name for listing in LISTINGS for name in functions(listing)] == list(CASES)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: functions(listing)[0])
def test_a_pattern_agrees_with_torch(listing: str, tmp_path: Path) -> None:
    (name,) = functions(listing)
    reference, inputs = CASES[name]
    torch.manual_seed(0)
    given = inputs()
    found = result_of(listing, name, given, tmp_path)
    torch.testing.assert_close(found, reference(*given), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: functions(listing)[0])
def test_a_pattern_has_no_findings(listing: str) -> None:
    found = [f for f in lint(Source(listing)).findings if f.severity is not Severity.NOTE]
    assert found == []


# --- every page ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OWN)
def test_names_of_cuda_tile_and_triton_exist(name: str) -> None:
    spans = _SPAN.findall(prose(page(name)))
    for found in (re.match(r"ct\.([\w.]*\w)", span) for span in spans):
        assert found is None or found[1] in api.names(), found[0]
    for found in (re.match(r"tl\.(\w+)", span) for span in spans):
        assert found is None or hasattr(tl, found[1]), found[0]


def sections(name: str) -> Iterator[tuple[str, str]]:
    """The title of each section of a page, and its text; first what comes before them."""
    for section in re.split(r"^##? ", prose(page(name)), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        yield title, text


@pytest.mark.parametrize("name", OWN)
def test_figures_have_a_source(name: str) -> None:
    unsourced = [
        title
        for title, text in sections(name)
        if _FIGURE.search(text) and not re.search(r"^Source: ", text, re.MULTILINE)
    ]
    assert unsourced == []


def test_the_index_lists_every_page() -> None:
    listed = {row[0].partition("(")[2].rstrip(")") for row in rows(page("README"), "page")}
    assert listed == {path.name for path in PAGES.glob("*.md")} - {"README.md"}
