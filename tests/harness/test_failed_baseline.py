"""What a run says when the tests fail on the code as it is."""

from __future__ import annotations

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.failed_baseline import failed_baseline
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.options import Options

UNLIKE = "AssertionError: Tensor-likes are not close!"


def told(
    reason: str, detail: str = "", files: tuple[str, ...] = ("tests/t.py",), k: str = ""
) -> str:
    failure = Failure(Status.REVERT, correct=False, reason=reason, detail=detail)
    plan = TestPlan(files, (), (), correctness_k=k)
    return str(failed_baseline("correctness", Options(), failure, plan))


@pytest.mark.parametrize(
    ("test", "reason", "said"),
    [
        ("tests/test_k_captured.py::test_k[8]", UNLIKE, "two calls with the same arguments differ"),
        ("tests/test_k_captured.py::test_k[8]", "MemoryError", "mend it, or leave it out"),
        ("tests/test_k.py::test_k[8]", UNLIKE, "mend it, or leave it out"),
    ],
)
def test_a_captured_test_that_fails_compares_the_file_with_itself(
    test: str, reason: str, said: str
) -> None:
    assert said in told(f"{test}: {reason}")
    assert "not test_k" in told(f"{test}: {reason}")


def test_all_that_fail_are_left_out_of_what_was_asked_for() -> None:
    names = ("test_norm[1-80]", "test_norm[2-80]", "test_fused[1-80]")
    detail = "\n".join(
        [*(f"tests/t.py::{name}: {UNLIKE}" for name in names), "    def test_norm():"]
    )
    reason = f"tests/t.py::{names[0]} (and 2 more): {UNLIKE}"
    assert told(reason, detail).endswith("-k 'not (test_norm or test_fused) and not perf'")
    asked = "--correctness-k '(80 or 90) and not (test_norm or test_fused)'"
    assert told(reason, detail, k="80 or 90").endswith(asked)


def test_no_expression_is_offered_that_leaves_whole_files_out() -> None:
    files = ("tests/t.py", "tests/test_norm_captured.py")
    said = told(f"tests/t.py::test_norm[1]: {UNLIKE}", files=files)
    assert said.endswith("mend it, or name the others with --tests FILE::TEST")
