"""Which file of tests to propose for a kernel, where several reach it. Read, not run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from agent.harness.processes.worker_session import Checkout


def most_about(checkout: Checkout, files: Iterable[str]) -> str:
    """The first file with the kernel's name in its own, or that names most of the kernel's file.

    Args:
        checkout: where they are.
        files: of tests, at least one.
    """
    distinct = list(dict.fromkeys(files))
    kernel = PurePosixPath(checkout.kernel).stem
    if alike := [file for file in distinct if kernel in PurePosixPath(file).stem]:
        return alike[0]
    text = _text(checkout, checkout.kernel)
    defined = re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE)

    def mentions(file: str) -> int:
        words = Counter(re.findall(r"\w+", _text(checkout, file)))
        return sum(words[name] for name in defined)

    return max(distinct, key=mentions)


def _text(checkout: Checkout, file: str) -> str:
    return (checkout.root / file).read_text(encoding="utf-8", errors="replace")
