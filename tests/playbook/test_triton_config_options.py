"""Numbers that would make of each config of a tuner one that it has already."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

ENTRY = playbook.get("config-options")
MADE = 'return [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 1024)]'
A, B = '{"BLOCK": 512}', '{"BLOCK": 1024}'


def warps(made: str) -> list[int]:
    text = ENTRY.before.replace(MADE, made)
    assert text != ENTRY.before or made == MADE
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90))
    return [params["num_warps"] for params in ENTRY.variants(subject)]


@pytest.mark.parametrize(
    ("made", "tried"),
    [
        (MADE, [2, 8, 16]),
        (MADE.replace(", num_warps=4", ""), [2, 8, 16]),
        (f"return [triton.Config({A}, num_warps=w) for w in [2, 4]]", [8, 16]),
        (
            f"return [triton.Config({A}, num_warps=w, num_stages=s) for b in sizes() "
            "for s, w in [(3, 4), (3, 8), (4, 4)] if b < 2]",
            [2, 8, 16],
        ),
        (
            f"return [triton.Config({A}, num_warps=w, num_stages=s) "
            "for s, w in [(3, 4), (3, 8), (4, 4)] if s + w < 9]",
            [2, 4, 8, 16],
        ),
        (f"return [triton.Config({A}, num_warps=w) for w in [2, 4] if w > 2]", [2, 4, 8, 16]),
        ('return [triton.Config({"BLOCK": 64 * w}, num_warps=w) for w in [2, 4]]', [2, 4, 8, 16]),
        (f"return [triton.Config({A}, num_warps=2), triton.Config({A}, num_warps=4)]", [8, 16]),
        (f"return [triton.Config({A}, num_warps=2), triton.Config({B})]", [2, 4, 8, 16]),
        (
            f"made = [triton.Config({A}, num_warps=2)]\n    if FEW:\n"
            f"        made = [triton.Config({B}, num_warps=2)]\n    return made",
            [4, 8, 16],
        ),
        (
            f"made = [triton.Config({A}, num_warps=2)]\n"
            f"    made += [triton.Config({B})]\n    return made",
            [2, 4, 8, 16],
        ),
        ("return other()", [2, 4, 8, 16]),
        (f"return [triton.Config({A}, num_warps=2**i) for i in range(4)]", [16]),
        (f"return [triton.Config({A}, num_warps=4 * i) for i in range(1, 5, 3)]", [2, 8]),
        (f"return [triton.Config({A}, num_warps=2**i) for i in range(n())]", [2, 4, 8, 16]),
        (
            f"return [triton.Config({A}, num_warps=i * j) for i in (1, 2) for j in (1, 2)]",
            [2, 4, 8, 16],
        ),
    ],
)
def test_numbers_that_all_configs_have_are_not_tried(made: str, tried: list[int]) -> None:
    assert warps(made) == tried


def test_stages_of_a_product_are_counted_too() -> None:
    stages = "for block in (512, 1024) for num_stages in [3, 4, 5]"
    made = MADE.replace("4) for block in (512, 1024)", f"4, num_stages=num_stages) {stages}")
    text = ENTRY.before.replace(MADE, made).replace(
        "tl.minimum(x, 1.0)", "tl.sum(tl.dot(x[:, None], x[None, :]), 1)"
    )
    subject = Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=90))
    assert ENTRY.variants(subject) == [{"num_warps": 8}, {"num_stages": 2}]


def test_where_all_are_there_it_says_so() -> None:
    made = f"return [triton.Config({A}, num_warps=w) for w in (2, 4, 8, 16)]"
    with pytest.raises(NotApplicable, match="every number worth trying is among the configs"):
        warps(made)


def test_a_decorator_on_one_line_gets_its_arguments_on_lines_of_their_own() -> None:
    text = playbook.get("config-options").before
    assert '@triton.autotune(configs=configs(), key=["n"])\n' in text
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
    changed = playbook.get("config-options").apply(subject, {"num_warps": 8})
    assert "@triton.autotune(\n    configs=[\n        triton.Config(\n" in changed
    assert 'sorted({made.num_warps, 8})\n    ],\n    key=["n"],\n)\n@triton.jit\n' in changed


def test_a_number_joins_those_that_a_comprehension_goes_through() -> None:
    listed = "[triton.Config({'BLOCK': b}, num_warps=w) for b in (512, 1024) for w in (2, 4)]"
    text = ENTRY.before.replace("configs=configs()", f"configs={listed}")
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90))
    assert ENTRY.apply(subject, {"num_warps": 8}) == text.replace("(2, 4)", "(2, 4, 8)")


def written(made: str, imports: str = "") -> str:
    text = imports + ENTRY.before.replace("configs=configs()", f"configs={made}")
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90))
    changed = ENTRY.apply(subject, {"num_warps": 8})
    compile(changed, "kernel.py", "exec")
    again = Subject(Source(changed), KernelClass.MEMORY, Hardware(sm=90))
    assert {"num_warps": 8} not in ENTRY.variants(again)
    assert "sorted({made.num_warps, 8, 16})" in ENTRY.apply(again, {"num_warps": 16})
    return changed


@pytest.mark.parametrize(
    "made",
    [
        "elsewhere()",
        f"[triton.Config({A}, num_warps=2**i) for i in range(3)]",
        f"[triton.Config({A}, num_warps=2), triton.Config({A}, num_warps=4)]",
        "list(filter(keep, listed))",
    ],
)
def test_configs_that_differ_in_the_number_alone_are_made_once(made: str) -> None:
    """Of `num_warps=2**i` in another file came 11 configs, 6 of them the same."""
    changed = written(made, "from utils import elsewhere, keep, listed\n")
    assert "configs=list(dict.fromkeys(\n" in changed
    assert "sorted({made.num_warps, 8})\n    )),\n" in changed


@pytest.mark.parametrize(
    "made",
    [
        f"[triton.Config({A}, num_warps=2), triton.Config({B}, num_warps=4)]",
        '[triton.Config({"BLOCK": b}, num_warps=4) for b in sizes()]',
    ],
)
def test_configs_that_differ_in_more_stay_a_list(made: str) -> None:
    assert "dict" not in written(made, "from utils import sizes\n")


def test_what_a_filter_leaves_out_is_not_brought_back() -> None:
    listed = f"listed = [triton.Config({A}, num_warps=w) for w in [2, 4, 8, 16]]\n"
    with pytest.raises(NotApplicable, match="every number worth trying is among the configs"):
        text = ENTRY.before.replace("configs=configs()", "configs=list(filter(keep, listed))")
        text = text.replace("@triton.autotune", f"{listed}\n\n@triton.autotune")
        ENTRY.variants(Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90)))
