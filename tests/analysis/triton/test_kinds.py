"""The kinds of kernels, by what their stored values are computed from."""

from __future__ import annotations

import pytest

from agent.analysis.triton.kinds import Kind, classify
from agent.errors import UsageError
from agent.syntax import Source
from tests.tileir.kernels import HEAD, KINDS, MORE, TRAPS, rows


def only(text: str) -> str:
    """The kind of the file's only kernel; a helper that it calls is none."""
    (found,) = classify(Source(text))
    return found.kind


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind: str) -> None:
    assert only(KINDS[kind]) == kind


@pytest.mark.parametrize("name", TRAPS)
def test_what_words_get_wrong(name: str) -> None:
    text, kind = TRAPS[name]
    assert only(text) == kind


@pytest.mark.parametrize("name", MORE)
def test_attention_and_data_movement(name: str) -> None:
    text, kind = MORE[name]
    assert only(text) == kind


def test_the_evidence_names_lines() -> None:
    (found,) = classify(Source(KINDS["norm-like"]))
    lines = KINDS["norm-like"].splitlines()
    assert len(found.indicators) == 2
    for indicator in found.indicators:
        number = int(indicator.removeprefix("line ").partition(":")[0])
        assert indicator.rpartition("`")[0].rpartition("`")[2][:20] in lines[number - 1]


def test_every_kernel_has_its_kind_and_the_most_work_comes_first() -> None:
    text = KINDS["element-wise"] + KINDS["norm-like"].removeprefix(HEAD)
    found = classify(Source(text))
    assert [(each.kernel, each.kind) for each in found] == [
        ("softmax_kernel", Kind.NORM),
        ("add_kernel", Kind.ELEMENT_WISE),
    ]


def test_a_file_of_functions_that_kernels_call_has_no_kind() -> None:
    text = """
import triton
import triton.language as tl


@triton.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@triton.jit
def twice(x):
    return 2 * relu(x)


ACTIVATIONS = {"relu": relu, "twice": twice}
"""
    with pytest.raises(UsageError, match="only functions that kernels call, such as relu: name"):
        classify(Source(text))
    with pytest.raises(UsageError, match=r"holds no @triton\.jit kernel"):
        classify(Source("import triton\n"))


LOOPED = """
import triton
import triton.language as tl


@triton.jit
def picked(x, y, n, K: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    values = tl.load(x + at)
    for j in range(K):
        tl.store(y + j * B + at, values)
        values = STEP
"""


@pytest.mark.parametrize(
    ("step", "adds"),
    [
        ("tl.where(at == j, 0.0, values)", False),
        ("tl.where(at == j, 0.0, values).to(tl.float32)", False),
        ("tl.reshape(values, (B,))", False),
        ("tl.multiple_of(values, B)", False),
        ("values if j else values.to(tl.float32)", False),
        ("values + tl.load(x + j * B + at)", True),
        ("tl.maximum(values, tl.load(x + j * B + at))", True),
        ("tl.where(at == j, values, values + tl.load(x + j * B + at))", True),
        ("tl.where(tl.load(x + j * B + at) > values, tl.load(x + j * B + at), values)", True),
    ],
)
def test_what_is_masked_in_a_loop_is_no_sum(step: str, adds: bool) -> None:
    (found,) = classify(Source(LOOPED.replace("STEP", step)))
    assert any("gathered over a loop" in line for line in found.indicators) == adds
    assert (found.kind == Kind.REDUCTION) == adds


def test_confidence_is_the_share_of_known_calls() -> None:
    known = rows("tl.store(y_ptr + row, tl.sum(x, axis=0))")
    assert classify(Source(known))[0].confidence == 1.0
    for spelled, line in (
        ("mystery", "from elsewhere import mystery"),
        ("elsewhere.mystery", "import elsewhere"),
    ):
        strange = f"{line}\n" + rows(f"tl.store(y_ptr + row, {spelled}(tl.sum(x, axis=0)))")
        assert classify(Source(strange))[0].confidence == round(5 / 6, 2)


def test_a_kernel_that_stores_nothing_in_sight_is_unknown() -> None:
    text = "from elsewhere import save\n" + rows("save(y_ptr, x)")
    (found,) = classify(Source(text))
    assert found.kind is Kind.UNKNOWN
    assert found.kind.strategy == "none"


def test_no_kernel() -> None:
    with pytest.raises(UsageError, match=r"empty\.py holds no @triton\.jit kernel"):
        classify(Source("x = 1\n", "empty.py"))


@pytest.mark.parametrize(
    ("kind", "family"),
    [(Kind.ATTENTION, "dot-related"), (Kind.MOVEMENT, "element-wise"), (Kind.NORM, "norm-like")],
)
def test_the_families_are_the_four_of_the_skill(kind: Kind, family: str) -> None:
    assert kind.family == family


def test_a_name_that_is_defined_nowhere_may_be_anything() -> None:
    """A placeholder: another text is put in its place before the kernel is compiled."""
    text = f"""{HEAD}
@triton.jit
def median_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    LOAD_ROWS_HERE
    tl.store(y_ptr + cols, MIDDLE_HERE, mask=cols < n)
"""
    (found,) = classify(Source(text))
    assert found.kind is Kind.UNKNOWN
    (why,) = found.indicators
    assert why.endswith(": stored, and defined nowhere: `MIDDLE_HERE`")
    (known,) = classify(Source(text.replace("LOAD_ROWS", "MIDDLE_HERE = tl.load(x_ptr)#")))
    assert known.kind is Kind.MOVEMENT
    (constant,) = classify(Source(f"MIDDLE_HERE = 2\n{text}"))
    assert constant.kind is Kind.MOVEMENT
