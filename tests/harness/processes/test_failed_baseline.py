"""What a run says when the tests fail on the code as it is."""

from __future__ import annotations

import pytest

from agent.harness.processes.confinement import failed_baseline
from agent.options import Options

UNLIKE = "AssertionError: Tensor-likes are not close!"


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
    told = str(failed_baseline("correctness", Options(), f"{test}: {reason}"))
    assert said in told
    assert "not test_k" in told
