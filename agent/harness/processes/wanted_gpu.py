"""Whether code ended because it insists on a GPU: no fault of it, where none is visible.

Most of what names device "cuda" goes on without one, on the CPU and in Triton's interpreter. What
asks first, and refuses, does not; and a test that asserts so looks like one that found a kernel
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent import environment as machine

REMEDY = (
    "it needs a GPU, and none is visible: run it where there is one, or leave out what asks for it "
    "(on the CPU, Triton's interpreter stands in)"
)
_DRIVER = re.compile(
    r"0 active drivers|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|Torch not compiled with CUDA enabled|\blibcuda\.so|has no attribute '_cuda_"
    r"|Could not run '[^'\n]+' with arguments from the 'CPU' backend"
)
"""What PyTorch, Triton and the system's loader say where there is no driver, and PyTorch of an
operator that is registered for a GPU alone."""
_GPU = r"\b(?:cuda|gpus?|nvidia)\b"
_WANTED = (
    r"\b(?:needs?|needed|requires?|required|must|only|expect(?:s|ed)?|no|not|without|unavailable)\b"
)
_REFUSAL = re.compile(
    rf"\b\w*(?:Error|Exception|Exit)\b: (?=[^\n]*{_GPU})(?=[^\n]*{_WANTED})", re.IGNORECASE
)
"""An exception of the project's own that speaks of a GPU as of what is lacking."""
_ASKS = re.compile(r"\b(?:is_available\(\)|is_cuda\b|cuda\.device_count\(\))")
_ASSERTION = re.compile(r"\bAssertionError(?:: assert (?:False|not True|\d.*))?$")
"""An assertion without a message."""
_NAMED = re.compile(r"[\w.]+(?:Error|Exception|Exit)\b")
_BEFORE_CODE = re.compile(r"^[>\s]+")


def with_question(said: str, lines: Sequence[str]) -> str:
    """An assertion without a message, with the code that asks for a GPU where that is what failed.

    Args:
        said: the exception in a line, perhaps behind its place.
        lines: the account that it is from, which shows the code.
    """
    if not (found := _ASSERTION.search(said)):
        return said
    code = [_BEFORE_CODE.sub("", line) for line in lines]
    asserts = [line for line in code if line.startswith("assert ")]
    if not asserts or not _ASKS.search(asserts[-1]):
        return said
    return f"{said[: found.start()]}AssertionError: {asserts[-1]}"


def shown_question(account: str) -> str:
    """The exception at the end of an account, pytest's or Python's, in a line."""
    lines = [line for line in account.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    named = [line for line in marked if _NAMED.match(line)]
    said = named[-1] if named else (marked or lines[-1:] or [""])[0]
    return with_question(said.strip(), lines)


def wants_gpu(said: str) -> bool:
    """Whether that is why code ended: by the line, or the account, of its exception."""
    asks = re.search(r"AssertionError: assert [^\n]*", said)
    found = _DRIVER.search(said) or _REFUSAL.search(said) or (asks and _ASKS.search(asks[0]))
    return bool(found) and machine.probe().gpu is None


def remedy(said: str) -> str:
    """What to do where code ended for want of a GPU, to stand behind the line; else empty."""
    return f": {REMEDY}" if wants_gpu(said) else ""
