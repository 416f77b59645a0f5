"""The decision tree: which template, which dimensions, which configs."""

from __future__ import annotations

import pytest

from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import detect
from agent.playbook.cutile.autotune import kernel_named, plan_for
from agent.syntax import Source
from agent.tuning import TEMPLATES, SearchPlan
from agent.tuning.templates import CLUSTERS, MOST_ACCUMULATED, MOST_CONFIGS
from tests.tuning import sources

KINDS = {
    "T1": sources.ROWS,
    "T2": sources.IN_PLACE,
    "T3": sources.MATMUL,
    "T4": sources.PERSISTENT,
    "T5": sources.ATTENTION,
    "T6": sources.EIGHT_BIT,
    "T7": sources.GROUPED,
    "T8": sources.VARLEN,
    "T9": sources.TWO_PRODUCTS,
}
kinds = pytest.mark.parametrize("name", KINDS)


def plan(text: str, template: str | None = None) -> SearchPlan:
    source = Source(text)
    backend = detect(source)
    assert backend is not None
    subject = Subject(source, backend.classify(source).kernel_class, Hardware())
    return plan_for(subject, kernel_named(source, None), template)


def refusal(text: str, template: str | None = None) -> str:
    with pytest.raises(NotApplicable) as refused:
        plan(text, template)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# --- the tree -----------------------------------------------------------------------------------


@kinds
def test_every_kind_has_its_template(name: str) -> None:
    found = plan(KINDS[name])
    assert found.template.name == name
    assert found.why


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        ("T1", "occupancy"),
        ("T2", "occupancy"),
        ("T3", "M N K occupancy num_ctas"),
        ("T4", "TM TN TK occupancy num_ctas"),
        ("T5", "TILE_M TILE_N occupancy num_ctas"),
        ("T6", "M occupancy num_ctas"),
        ("T7", "occupancy"),
        ("T8", "TILE_M TILE_N occupancy num_ctas"),
        ("T9", "M N K occupancy"),
    ],
)
def test_what_each_kind_searches(name: str, dimensions: str) -> None:
    assert plan(KINDS[name]).dimensions == tuple(dimensions.split())


def test_tiles_that_cannot_change_leave_the_occupancy() -> None:
    tied = sources.MATMUL.replace("64, 64, 32", "64, 64, 64").replace(
        "tile_m, tile_n, tile_k)", "tile_m, tile_m, tile_k)"
    )
    found = plan(tied)
    assert found.dimensions == ("occupancy",)
    assert any("sets several of M, N, K" in line for line in found.why)


def test_tiles_that_a_caller_chooses_are_not_ours() -> None:
    text = sources.MATMUL.replace("(a, b):", "(a, b, tile_m=64):").replace(
        "tile_m, tile_n, tile_k = 64, 64, 32", "tile_n, tile_k = 64, 32"
    )
    found = plan(text)
    assert found.dimensions == ("occupancy",)
    assert any("a caller chooses it" in line for line in found.why)


def test_an_unguarded_access_lets_tiles_only_shrink() -> None:
    text = sources.MATMUL.replace(", padding_mode=ct.PaddingMode.ZERO", "")
    found = plan(text)
    assert found.tiles[-1] == "K"
    assert all(row[2] <= 32 for rows in found.space.values() for row in rows)
    assert plan(sources.MATMUL).space != found.space


def test_a_template_may_be_asked_for() -> None:
    assert plan(sources.MATMUL, "T1").dimensions == ("occupancy",)
    assert plan(sources.MATMUL, "T9").dimensions == ("M", "N", "K", "occupancy")
    assert "choose from T1, T2" in refusal(sources.MATMUL, "T10")
    assert "multiplies no tiles" in refusal(sources.ROWS, "T3")
    stuck = sources.MATMUL.replace("(a, b):", "(a, b, tile_m=64):").replace(
        "tile_m, tile_n, tile_k = 64, 64, 32", "tile_n, tile_k = 64, 32"
    )
    assert "cannot change: M must stay" in refusal(stuck, "T3")


# --- the configs --------------------------------------------------------------------------------


@kinds
def test_a_search_has_few_configs_and_the_fixed_one_first(name: str) -> None:
    found = plan(KINDS[name])
    assert found.configs <= MOST_CONFIGS
    for sm in (80, 86, 90, 100, 103, 120, 121):
        configs = found.configs_for(sm)
        assert 2 <= len(configs) <= found.configs
        assert tuple(configs[0].values()) == found.fixed
        assert len({tuple(c.values()) for c in configs}) == len(configs)


def test_the_fixed_config_is_the_one_of_the_file() -> None:
    assert plan(sources.IN_PLACE).fixed == (4,)
    assert plan(sources.ROWS).fixed == (None,)
    assert plan(sources.PERSISTENT).fixed == (128, 128, 64, 2, 1)
    assert plan(sources.MATMUL).fixed == (64, 64, 32, None, None)


@pytest.mark.parametrize("name", TEMPLATES)
def test_clusters_only_where_the_gpu_has_them(name: str) -> None:
    template = TEMPLATES[name]
    if not template.clusters or template.rows is None:
        pytest.skip("num_ctas is not searched")
    for sm, rows in template.rows.items():
        assert sm in CLUSTERS or {row[-1] for row in rows} == {1}
    assert any(row[-1] > 1 for row in template.rows[90])


@pytest.mark.parametrize("name", TEMPLATES)
def test_rows_are_well_formed(name: str) -> None:
    template = TEMPLATES[name]
    width = len(template.axes) + (2 if template.clusters else 1)
    for rows in (template.rows or {}).values():
        assert 1 < len(rows) < MOST_CONFIGS
        assert len(set(rows)) == len(rows)
        for row in rows:
            assert len(row) == width
            assert all(n & (n - 1) == 0 and n >= 1 for n in row)
            assert all(size >= 16 for size in row[: len(template.axes)])


def test_two_accumulators_get_smaller_tiles() -> None:
    searched = plan(sources.TWO_PRODUCTS, "T3").space
    assert all(2 * r[0] * r[1] <= MOST_ACCUMULATED for rows in searched.values() for r in rows)
    assert any(2 * r[0] * r[1] > MOST_ACCUMULATED for r in TEMPLATES["T3"].rows[100])  # type: ignore[index]


# --- what trial runs may write ------------------------------------------------------------------


def test_a_fresh_output_needs_no_scratch() -> None:
    assert plan(sources.ROWS).form.scratch == ()


@pytest.mark.parametrize(
    "made",
    [
        "y = out if out is not None else torch.empty_like(x)",
        "y = torch.zeros_like(x)",
        "y = x",
        "y = out",
        "y = torch.empty_like(x); y.copy_(x)",
        "y = torch.empty_like(x); view = y.view(x.shape)",
    ],
)
def test_any_other_output_does(made: str) -> None:
    text = sources.ROWS.replace("y = torch.empty_like(x)", made)
    text = text.replace("(x, factor: float)", "(x, factor: float, out=None)")
    assert plan(text).form.scratch == ("y",)


def test_what_is_written_is_found_through_helpers() -> None:
    text = sources.IN_PLACE.replace(
        "    ct.store(x, index=(row, 0), tile=(tile * factor).astype(x.dtype))\n",
        "    put(x, row, tile * factor)\n\n\n"
        "def put(target, row, tile):\n"
        "    ct.store(target, index=(row, 0), tile=tile.astype(target.dtype))\n",
    )
    assert plan(text).form.in_place == ("x",)


# --- refusals -----------------------------------------------------------------------------------

TWICE = sources.ROWS.replace(
    "    return y", "    ct.launch(None, (1,), scale_kernel, (y, y, 1.0, n))\n    return y"
)
OUTSIDE = sources.ROWS.replace("def scale(x, factor: float):", "if x := torch.ones(4, 4):")
STARRED = sources.ROWS.replace("(x, y, factor, n))", "(*arrays, factor, n))")
HINTED = sources.ROWS.replace("scale_kernel, (x", "scale_kernel.replace_hints(occupancy=4), (x")
ELSEWHERE = sources.ROWS + "\n\nKERNELS = [scale_kernel]\n"
OPTIONS = sources.ROWS.replace("factor, n))", "factor, n), programmatic_dependent_launch=True)")
NESTED = sources.ROWS.replace("\n\ndef scale(", "\n\ndef made(factor):\n  def scale(")
NOWHERE = sources.ROWS[: sources.ROWS.index("\n\ndef scale")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TWICE, "is launched 2 times (lines 17, 18)"),
        (OUTSIDE, "launches scale_kernel outside any function"),
        (STARRED, "does not show what scale_kernel is given"),
        (HINTED, "is named elsewhere than in its launch"),
        (ELSEWHERE, "is named elsewhere than in its launch"),
        (OPTIONS, "options that the search does not know"),
        (NESTED, "from a function inside made"),
        (NOWHERE, "this file does not launch scale_kernel"),
    ],
)
def test_other_forms_are_refused(text: str, reason: str) -> None:
    assert reason in refusal(text)
