"""Code that insists on a GPU is told from code that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness.processes.collection_errors import fault, headline
from agent.harness.processes.wanted_gpu import REMEDY, remedy, shown_question, wants_gpu

PYTEST = """\
    def test_scale():
>       assert torch.cuda.is_available(){message}
{said}
E        +  where False = <function is_available at 0x7f>()

test_scale.py:5: AssertionError
"""
BARE = PYTEST.format(message="", said="E       AssertionError: assert False")
SPOKEN = PYTEST.format(message=", 'no GPU here'", said="E       AssertionError: no GPU here")
SCRIPT = """\
Traceback (most recent call last):
  File "/home/someone/demo.py", line 4, in <module>
    assert torch.cuda.is_available()
           ^^^^^^^^^^^^^^^^^^^^^^^^^
AssertionError
"""
ASKED = "AssertionError: assert torch.cuda.is_available()"


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: needs CUDA",
        "demo.py:3: RuntimeError: no CUDA device found",
        "AssertionError: this benchmark requires a GPU",
        "scale.py:9: ValueError: x must be a CUDA tensor",
        "SystemExit: CUDA is not available",
        "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "AttributeError: module 'torch._C' has no attribute '_cuda_getDeviceCount'",
        "NotImplementedError: Could not run 'mine::scale' with arguments from the 'CPU' backend.",
        "AssertionError: Torch not compiled with CUDA enabled",
        ASKED,
        "AssertionError: assert x.is_cuda and y.is_cuda",
    ],
)
def test_what_insists_on_a_gpu(said: str) -> None:
    assert wants_gpu(said)
    assert remedy(said) == f": {REMEDY}"


@pytest.mark.parametrize(
    "said",
    [
        "AssertionError: Tensor-likes are not close!",
        "AssertionError: assert False",
        "RuntimeError: expected a contiguous tensor",
        "ValueError: the cuda graph was captured twice",
        "AssertionError: assert cache.is_valid()",
        "the tests need a GPU",
    ],
)
def test_what_does_not(said: str) -> None:
    assert not wants_gpu(said)
    assert remedy(said) == ""


def test_an_assertion_without_a_message_shows_what_it_asks(tmp_path: Path) -> None:
    assert headline(BARE) == ASKED
    assert headline(SPOKEN) == "AssertionError: no GPU here"
    assert fault(BARE, tmp_path) == f"test_scale.py:5: {ASKED}"
    assert shown_question(BARE) == shown_question(SCRIPT) == ASKED


def test_other_assertions_stay_as_they_are() -> None:
    other = BARE.replace("torch.cuda.is_available()", "cache.is_warm()")
    assert headline(other) == "AssertionError: assert False"
    compared = BARE.replace("assert torch.cuda.is_available()", "assert total(x) == 3")
    assert headline(compared) == "AssertionError: assert False"
