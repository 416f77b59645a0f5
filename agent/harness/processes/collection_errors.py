"""The line of pytest's output that says why tests cannot be collected, and what to do then."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby, takewhile
from pathlib import Path

LOG_BYTES = 2**20
"""As much of a log as a person would read."""
_PLACE = re.compile(
    r"^(?:(?!E |INTERNALERROR>)(\S.*?\.py):(\d+): "
    r'|(?:E|INTERNALERROR>)? +File "(.+?)", line (\d+))',
    re.MULTILINE,
)
_REFUSAL = re.compile(r"(?:^ERROR: |: error: )(?!usage:)(.+)", re.MULTILINE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'$")
_LACKING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_GPU = re.compile(
    r"RuntimeError: (?:0 active drivers|No CUDA GPUs are available|Found no NVIDIA driver)"
    r"|AssertionError: Torch not compiled with CUDA enabled"
)
_UNSET = re.compile(r"Error: .*?\b([A-Z][A-Z0-9_]+) environment variable\b.* not set")
"""What PyTorch says of CUDA_HOME, and other packages of theirs."""
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_IN_A_FILE = re.compile(r"[^\s:]+\.py\b")
_INTERNAL = "INTERNALERROR> "
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?: .*\n)+(\S.*)", re.MULTILINE)
"""Python's own: of what ends a worker before pytest has begun."""
_GAP = re.compile(
    r"Mismatched elements: |(?:Greatest|Max) absolute difference|Absolute difference: "
)
"""How the lines begin with which torch and NumPy say by how much results differ."""
_ONLY_PLACE = re.compile(r"(^|: )at \d+:\d+:$")
"""How a compiler's message begins that gives its reason below the source it is about."""


def fault(text: str, root: Path, nodeid: str = "") -> str:
    """The exception behind an account, or what pytest refuses, and where; empty where none is told.

    Args:
        text: the account, or the log of a session that ended before it had collected.
        root: of the checkout. The place is the last one in it: a test's or the kernel's own line,
            not the importer's.
        nodeid: what could not be collected, which then stands for the place, and whose account is
            its first line where it is no exception.
    """
    told = _COLOR.sub("", text).replace(f"{root}/", "")
    lines = told.splitlines()
    refusals = _REFUSAL.findall(told)
    said = _exception(lines) or (refusals or _TRACEBACK.findall(told) or [""])[-1]
    if nodeid and not said:
        said = next((line.strip() for line in lines if line.strip()), "no reason given")
    places = [f"{a or c}:{b or d}" for a, b, c, d in _PLACE.findall(told)]
    place = next((p for p in reversed(places) if not p.startswith(("/", "<"))), nodeid)
    return f"{place}: {said}" if place and said and not said.startswith(place) else said


def headline(text: str) -> str:
    """The line of an account that says why: the first `E` line, else the last line at all.

    A compiler's first line may be no more than a place, with source and the reason below it; of
    results that are not close, by how much is told below it, too.
    """
    lines = [line.strip() for line in _COLOR.sub("", text).splitlines() if line.strip()]
    begin = next((n for n, line in enumerate(lines) if line.startswith("E ")), None)
    if begin is None:
        return lines[-1] if lines else ""
    told = takewhile(lambda line: line == "E" or line.startswith("E "), lines[begin:])
    first, *more = (line[1:].strip() for line in told)
    if more and _ONLY_PLACE.search(first):
        return f"{first} {more[-1]}"
    return " ".join([first, "; ".join(line for line in more if _GAP.match(line))]).strip()


def missing_module(text: str) -> str:
    """The module that an account ends with the want of; empty where it ends otherwise."""
    found = _NO_MODULE.match(_exception(text.splitlines()))
    return found[1] if found else ""


def with_remedy(said: str, has_module: Callable[[str], bool]) -> str:
    """What was said of a fault, and how to mend it, where that is to be done in a file.

    Args:
        said: what `fault` found, and perhaps where the log is.
        has_module: whether the checkout has a module of that name: then it is not to be installed.
    """
    lacking = _LACKING.search(said)
    if lacking and not has_module(lacking[1]):
        what = f"install what provides {lacking[1]} for the tests' interpreter"
        return f"{said}: {what}, or name another with --python"
    if _NO_GPU.search(said):
        what = "it asks for a GPU when it is imported, and there is none"
        return f"{said}: {what}: ask when a kernel is launched, or run where there is one"
    if unset := _UNSET.search(said):
        return f"{said}: set it, and hand it on with --pass-env {unset[1]}"
    return f"{said}: mend and commit it" if _IN_A_FILE.match(said) else said


def fault_of_log(log: Path, root: Path) -> str:
    """The same of a session's log, if there is one; what a test prints may be a gigabyte."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_BYTES))
        return fault(file.read().decode("utf-8", "replace"), root)


def _exception(lines: Sequence[str]) -> str:
    """Its type and the first line of its message, of the last of several."""
    blocks = [list(found) for is_one, found in groupby(lines, _is_of_exception) if is_one]
    if blocks:
        return min((line[1:] for line in blocks[-1]), key=_indent).strip()
    internal = [line.removeprefix(_INTERNAL) for line in lines if line.startswith(_INTERNAL)]
    return internal[-1].strip() if internal else ""


def _is_of_exception(line: str) -> bool:
    return line.startswith("E ")


def _indent(line: str) -> int:
    """Of a syntax error the code is shown before the error itself, and further to the right."""
    return len(line) - len(line.lstrip())
