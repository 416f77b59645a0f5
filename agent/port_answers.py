"""What the answers of a check of a port say of calls that were compared, and of tests.

They come from `tile_agent_pytest.ported`; see `agent.ported`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.harness.processes.collection_errors import fault, missing_module

TOLD = 3
"""Differences that are told one by one."""


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes:
        calls: how many calls were compared, of those that give something to compare.
        tests: how many tests passed; with `replaced` on the port in the origin's place, and of
            those that launched one of its kernels.
        problems: what is wrong with the port, a line each.
        fault: what they come to, as a clause; empty where there is none.
        compiled: GPU -> how many signatures of its kernels compiled for it.
        relative: the largest relative difference of any result, where there was one.
        not_compared: kernels of the port that no call was compared of.
        not_compiled: kernels of the port that were compiled for no GPU.
        unchecked: why nothing was compared; empty where it was.
        remedy: what to do for tests that cannot be imported, before the check is made again.
        notes: what could not be done.
        elsewhere: kernels that no call was compared of, and tests launch otherwise: by a method, or
            in a backward pass.
    """

    calls: int = 0
    tests: int = 0
    problems: tuple[str, ...] = ()
    fault: str = ""
    compiled: Mapping[str, int] = field(default_factory=dict)
    relative: float | None = None
    unchecked: str = ""
    remedy: str = ""
    replaced: bool = False
    notes: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    not_compiled: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    def together(self, other: Checked) -> Checked:
        """With what tests said of the port in the origin's place.

        They judge what they launch by no function; the calls that were compared stay compared.
        """
        if other.problems:
            return other
        named = ", ".join(self.elsewhere)
        why = other.unchecked or "with the port in the origin's place the tests do not launch them"
        judged = {*self.elsewhere} - {*other.not_compared}
        if other.unchecked or not judged:
            note = f"not compared: {named}, which no function launches: {why}"
            return replace(self, notes=(*self.notes, note))
        passing = "1 test passes" if other.tests == 1 else f"{other.tests} tests pass"
        note = f"{passing} with the port in the origin's place, which judges {named}, too"
        return replace(
            self,
            notes=(*self.notes, note),
            compiled={**self.compiled, **other.compiled},  # it launches what the calls do
            not_compared=tuple(k for k in self.not_compared if k not in judged),
            not_compiled=tuple(k for k in self.not_compiled if k in other.not_compiled),
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "calls": self.calls,
            "tests": self.tests,
            "replaced": self.replaced,
            "problems": list(self.problems),
            "fault": self.fault,
            "compiled": dict(self.compiled),
            "not_compared": list(self.not_compared),
            "not_compiled": list(self.not_compiled),
            "largest_relative_difference": self.relative,
            "unchecked": self.unchecked,
            "notes": list(self.notes),
        }


def read(
    answers: Sequence[Mapping[str, Any]],
    fate: str,
    log: str,
    root: Path = Path(),
    kernels: Sequence[str] = (),
    *,
    in_place: bool,
    failing: Collection[str] = (),
) -> Checked:
    """What the answers of a run say.

    Args:
        answers: of `tile_agent_pytest.ported`.
        fate: how the tests ended.
        log: what they printed.
        root: of their project.
        kernels: of the port.
        in_place: whether the port stood in the origin's place.
        failing: tests that do not pass on the origin itself.
    """
    made = [a for a in answers if a["event"] == "call"]
    calls = [a for a in made if a["problem"] or a.get("values", 1)]
    wrong = [f"{a['function']}: {a['problem']}" for a in calls if a["problem"]]
    gaps = [a["relative"] for a in calls if a["relative"] is not None]
    ends = [a for a in answers if a["event"] == "end"]
    compiled = Counter(a["target"] for a in answers if a["event"] == "compiled" and a["ok"])
    refused = [a for a in answers if a["event"] == "compiled" and not a["ok"]]
    works = {a["kernel"] for a in answers if a["event"] == "compiled" and a["ok"]}
    said = {
        a["kernel"]: f"{a['kernel']} does not compile for {a['target']}: {a['error']}"
        for a in reversed(refused)
    }
    uncompiled = [line for kernel, line in said.items() if kernel not in works]
    # A type that an older GPU lacks is nothing that the port could mend.
    notes = [line for kernel, line in said.items() if kernel in works]
    notes += [f"not compiled: {a['what']}" for a in answers if a["event"] == "missing"]
    notes += _not_compared(made, len(made) - len(calls))
    launched = {name for a in ends for name in a.get("kernels", ())}
    compared = launched if in_place else {k for c in calls for k in c.get("kernels", ())}
    not_compared = tuple(k for k in kernels if k not in compared)
    others = {k for a in ends for k in a.get("elsewhere", ())} if calls else set()
    elsewhere = tuple(k for k in not_compared if k in others)
    if calls or (in_place and launched):
        notes += _left_out([k for k in not_compared if k not in elsewhere], launched)
    passed = int(ends[0]["passed"]) if ends else 0
    launching = int(ends[0]["launching"]) if ends else 0
    failed = int(ends[0]["failed"]) if ends else 0
    anyway = bool(failing) and {*failing} >= {t for a in ends for t in a.get("failing", ())}
    unchecked = remedy = ""
    lost = [fault(a["account"], root, a["test"]) for a in answers if a["event"] == "uncollected"]
    if not ends:
        last = _said(log)
        why = "" if last in fate else f": {last}"
        unchecked = f"the tests did not run to their end ({fate}){why}"
    elif lost and not calls and not passed + failed:
        unchecked = f"the tests cannot be imported: {lost[0]}"
        account = next(a["account"] for a in answers if a["event"] == "uncollected")
        remedy = _remedy(missing_module(account))
    elif in_place and failed and not anyway:
        wrong.insert(0, f"{failed} of {failed + passed} tests fail on the port: {_said(log)}")
    elif in_place and failed and not launching:
        unchecked = (
            f"{failed} of {failed + passed} tests do not pass on the origin either, without a GPU: "
        )
        unchecked += _said(log)
    elif failed:
        notes.append(f"{failed} tests do not pass on the origin, without a GPU")
    if not unchecked:
        notes += [f"left out, as it cannot be imported: {each}" for each in _shortened(lost)]
    judged = calls or (in_place and launching)
    if not unchecked and not wrong and not uncompiled and not judged:
        unchecked = (
            f"the calls of the tests give nothing that can be compared{_why(made, len(made))}"
            if made
            else "the tests call none of its functions where there is no GPU"
        )
    wrongness = _fault(calls, wrong, uncompiled)
    problems = tuple(_shortened([*wrong, *uncompiled]))
    tests = launching if in_place else passed
    return Checked(
        len(calls), tests, problems, wrongness, compiled, max(gaps, default=None), unchecked,
        remedy, in_place, tuple(notes), not_compared, tuple(k for k in kernels if k not in works),
        elsewhere,
    )  # fmt: skip


def _fault(
    calls: Sequence[Mapping[str, Any]], wrong: Sequence[str], uncompiled: Sequence[str]
) -> str:
    """What is wrong with a port, in a clause: that it cannot be run says nothing of its results."""
    found = [call for call in calls if call["problem"]]
    if found and all(call.get("raised") for call in found):
        return "the port cannot be run as its origin can"
    if wrong:
        return "the port does not agree with its origin"
    return "the port does not compile" if uncompiled else ""


def _not_compared(calls: Sequence[Mapping[str, Any]], without: int) -> list[str]:
    """What calls gave that nobody looked at."""
    left = dict.fromkeys(
        f"{what} of {a['function']}" for a in calls for what in a.get("uncompared", ())
    )
    notes = [f"not compared: {'; '.join(_shortened([*left]))}"] if left else []
    if without:
        said = f"{without} of {len(calls)} calls give nothing that can be compared"
        notes.append(said + _why(calls, without))
    return notes


def _remedy(module: str) -> str:
    """What to do where tests cannot be imported, for want of a module or otherwise."""
    mend = f"install what provides {module} for the tests' interpreter" if module else "mend that"
    return f"{mend}, or name another with --python, or other tests with --tests"


def _why(calls: Sequence[Mapping[str, Any]], without: int) -> str:
    """Why so many of the calls give nothing to compare, as far as it can be told."""
    whys = Counter(call["silent"] for call in calls if call.get("silent"))
    if list(whys.values()) == [without]:
        return f": they {next(iter(whys))}"
    return f": {', '.join(f'{number} {why}' for why, number in whys.items())}" if whys else ""


def _left_out(kernels: Sequence[str], launched: Collection[str]) -> list[str]:
    """That no call was compared of kernels, and whether any launched them."""
    never = [kernel for kernel in kernels if kernel not in launched]
    others = [kernel for kernel in kernels if kernel in launched]
    notes = []
    if never:
        notes.append(f"no call launches {', '.join(never)}: neither compared nor compiled")
    if others:
        notes.append(f"not compared: {', '.join(others)}, of which no call gives a result")
    return notes


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    different = list(dict.fromkeys(lines))
    yield from different[:TOLD]
    if len(different) > TOLD:
        yield f"and {len(different) - TOLD} more"


def _said(log: str) -> str:
    """How the last error of a log begins; without one its last line that says something."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors: list[str] = re.findall(r"(?m)^E (.*)\n(?:E\b.*\n?)*", log)
    return [*errors[-1:], *lines[-1:], "it printed nothing"][0].strip()[:200]
