"""What `tuning-key` takes for a size: an integer at every launch, by what the file shows."""

from __future__ import annotations

import pytest

from agent.playbook.triton.tuning_key import TuningKey
from tests.playbook.test_triton_tuners import KEY, asked, refusal, text


@pytest.mark.parametrize(
    ("parameter", "given", "kept"),
    [
        ("m=0.5", "m", False),
        ("m=None", "m", False),
        ("m: float", "m", False),
        ("m: int | None", "2 * m", False),
        ("m", "m if x.is_cuda else None", False),
        ("m", "m / 2", False),
        ("m=None", "m.numel()", True),
        ("m=3", "m", True),
        ("m: int", "m", True),
        ("m", "m + 1", True),
    ],
)
def test_what_may_be_no_integer_has_no_power_of_two(parameter: str, given: str, kept: bool) -> None:
    source = text().replace("def run(x)", f"def run(x, {parameter})")
    source = source.replace("m, n = x.shape", "rows, n = x.shape").replace("n, m, ", "n, rows, ")
    source = source.replace("y, m, n)", f"y, {given}, n)").replace(", m)](", ", rows)](")
    if kept:
        assert f"m_bucket=triton.next_power_of_2({given})" in KEY.apply(asked(source), {})
    else:
        assert "tells all sizes apart" in refusal("tuning-key", source)


def test_a_none_that_is_filled_in_is_an_integer() -> None:
    source = text().replace("def run(x)", "def run(x, h=None)").replace("y, m, n)", "y, h, n)")
    assert "tells all sizes apart" in refusal("tuning-key", source)
    filled = source.replace("    y = torch", "    if h is None:\n        h = 3\n    y = torch")
    assert "m_bucket=triton.next_power_of_2(h)" in KEY.apply(asked(filled), {})


def test_a_number_that_chance_is_compared_with_is_no_size() -> None:
    source = text().replace("x_ptr, y_ptr, m, n", "x_ptr, y_ptr, p, m, n")
    source = source.replace("(x, y, m, n)", "(x, y, p, m, n)").replace("run(x)", "run(x, p)")
    source = source.replace("2 * x, ", "tl.where(tl.rand(3, cols) > p, x, 0), ")
    assert "p_bucket" not in KEY.apply(asked(source), {})


ONE = 'triton.Config({"ROWS": 1, "COLS": 1024}, num_warps=4)'
MADE = f"def made():\n    return [{ONE}]\n\n\n@triton.autotune("


@pytest.mark.parametrize(
    ("configs", "above"),
    [
        (f"[{ONE}]", "@triton.autotune("),
        ("ONE", f"ONE = [{ONE}]\n\n\n@triton.autotune("),
        ("made()", MADE),
    ],
)
def test_one_config_is_taken_whatever_the_key_is(configs: str, above: str) -> None:
    before = TuningKey.before
    begin, end = before.index("configs=[") + len("configs="), before.index(",\n    key=")
    source = f"{before[:begin]}{configs}{before[end:]}".replace("@triton.autotune(", above)
    assert "the tuner of cap_kernel has one config" in refusal("tuning-key", source)
