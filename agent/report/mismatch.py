"""How far a result is from what a test expects, as far as the test's own words tell. Pure."""

from __future__ import annotations

import re
from typing import Any

_COUNTS = re.compile(r"Mismatched elements: (\d+) / (\d+)")
_LARGEST = {
    name: re.compile(
        rf"(?:Greatest|Max) {kind} difference(?: among violations)?: (\S+)"
        r"(?: at index (\([^)]*\)))?(?: \(up to (\S+) allowed\))?"
    )
    for name, kind in {"largest_error": "absolute", "largest_relative_error": "relative"}.items()
}
_UNLIKE = {
    "shapes": re.compile(
        r"attribute 'shape' do not match: torch\.Size\((\[[^]]*\])\) != torch\.Size\((\[[^]]*\])\)"
    ),
    "dtypes": re.compile(r"attribute 'dtype' do not match: ([\w.]+) != ([\w.]*\w)"),
}
_TEST = re.compile(r"^([^\s:]+\.py::.+?)(?: \(and \d+ more\))?: ")


def mismatch(reason: str, account: str) -> dict[str, Any] | None:
    """What a failed test says of its result; None where it says nothing that is understood.

    The words are those of `torch.testing.assert_close` and of `numpy.testing`; of several
    mismatches the first is read. Node ids name shapes and types where a test is parametrized.

    Args:
        reason: the line that says why.
        account: all of it.

    Returns:
        'test'; 'mismatched' of 'elements'; 'largest_error' and 'largest_relative_error', each with
        its 'value', where it is ('at') and what is 'allowed', as the test writes them; 'shapes' and
        'dtypes', the candidate's and the expected one, as they are handed to the test's comparison.
    """
    found: dict[str, Any] = {}
    if counts := _COUNTS.search(account):
        found |= {"mismatched": int(counts[1]), "elements": int(counts[2])}
    for name, pattern in _LARGEST.items():
        if told := pattern.search(account):
            value, at, allowed = told.groups(default="")
            found[name] = {"value": value.rstrip("."), "at": at, "allowed": allowed}
    for name, pattern in _UNLIKE.items():
        if told := pattern.search(account):
            found[name] = list(told.groups())
    if not found:
        return None
    test = _TEST.match(reason)
    return {"test": test[1] if test else ""} | found


def in_brief(reason: str) -> str:
    """A reason for which tests failed, as short as the words of their comparisons allow."""
    found, test = mismatch(reason, reason), _TEST.match(reason)
    if found is None or test is None:
        return reason
    if "mismatched" in found:
        found = {name: found[name] for name in ("mismatched", "elements")}
    return test[0] + in_words(found)


def in_words(found: dict[str, Any]) -> str:
    """The same in a line."""
    parts = []
    if "mismatched" in found:
        parts.append(f"{found['mismatched']} of {found['elements']} elements differ")
    for name in _LARGEST:
        if told := found.get(name):
            at = f" at {told['at']}" if told["at"] else ""
            allowed = f", {told['allowed']} allowed" if told["allowed"] else ""
            parts.append(f"{name.replace('_', ' ')} {told['value']}{at}{allowed}")
    parts += [f"{n} {' and '.join(found[n])} do not match" for n in _UNLIKE if n in found]
    return "; ".join(parts)
