"""Whether a kernel is launched as its decorator says, where other code is handed the kernel.

A tuner of a project's own takes a kernel, makes others of its function, as in
`ct.kernel(kernel._pyfunc, occupancy=...)`, and launches those: what the decorator in the file says
is lost, and nothing that is written there changes what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.hand_overs import hand_over, uses_of_parameter
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.syntax import Function, Source, descendants

FUNCTION = "_pyfunc"
"""What holds the function that a kernel was made of."""
REPLACE = "replace_hints"
LAUNCH, KERNEL = f"{CT}launch", f"{CT}kernel"


def not_decided(source: Source, kernel: Kernel, hint: str) -> str | None:
    """Why a hint in the decorator of a kernel may change nothing; None where it is used.

    It is used by a launch that names the kernel, and by one of a function of the file that is
    handed the kernel. Where it is seen neither launched nor handed on, nothing is known against it.
    """
    if kernel.launches:
        return None
    device = {each.function.node for each in CUTILE.kernels(source)}
    mentions = [
        name
        for name in source.mentions(kernel.function)
        if (around := source.enclosing(name)) is None or around.node not in device
    ]
    found = _Fates(source, kernel.name, hint)
    found.follow(mentions, "")
    return None if found.launched or not found.against else found.against[0]


class _Fates:
    """What becomes of a kernel, as far as the file shows."""

    def __init__(self, source: Source, kernel: str, hint: str) -> None:
        self._source = source
        self._kernel = kernel
        self._hint = hint
        self._seen: set[tuple[str, str]] = set()
        self.launched = False
        self.against: list[str] = []

    def follow(self, uses: Iterable[cst.Name], handed: str) -> None:
        """Look at each use of a name that stands for the kernel; `handed`: how it came there."""
        for use in uses:
            around = next(self._source.ancestors(use))
            if isinstance(around, cst.Attribute) and around.value is use:
                self._part(around, handed)
            elif isinstance(around, cst.Assign) and around.value is use:
                names = [t.target for t in around.targets if isinstance(t.target, cst.Name)]
                for name in names:
                    for assignment in self._source.assignments(name):
                        if (key := ("", name.value)) not in self._seen:
                            self._seen.add(key)
                            self.follow(self._source.uses(assignment), handed)
            else:
                self._handed(use, handed)

    def _part(self, taken: cst.Attribute, handed: str) -> None:
        """A method of the kernel, or the function that it was made of."""
        source, line = self._source, self._source.line(taken)
        around = next(source.ancestors(taken))
        where = handed or f"line {line} takes the function of {self._kernel} and"
        if taken.attr.value == FUNCTION and self._makes_kernels(source.enclosing(taken)):
            self.against.append(
                f"{where} makes kernels of its own of it (line {line}): "
                "what its decorator says is not used"
            )
        elif taken.attr.value == REPLACE and isinstance(around, cst.Call):
            self._replaced(around, line)

    def _replaced(self, call: cst.Call, line: int) -> None:
        """What gives the kernel other hints: those that it names, and keeps the rest."""
        given = _hints(self._source, call)
        if given is None or self._hint in given:
            self.against.append(f"line {line} gives {self._kernel} other hints")

    def _makes_kernels(self, function: Function | None) -> bool:
        scope = function.node.body if function is not None else self._source.module
        calls = descendants(scope, cst.Call)
        return any(self._source.name(call.func) == KERNEL for call in calls)

    def _handed(self, use: cst.Name, handed: str) -> None:
        source = self._source
        found = hand_over(source, use)
        if found is None:
            return
        called, line = source.name(found.call.func) or "", source.line(use)
        given = [source.name(each.value) for each in found.call.args]
        if called == LAUNCH or LAUNCH in given:  # by functools.partial, perhaps
            self.launched = True
        elif called.startswith(("builtins.", CT)):
            return
        elif (inside := found.parameter(source)) is not None:
            if (key := (inside[0].name, inside[1])) not in self._seen:
                self._seen.add(key)
                told = handed or (
                    f"line {line} hands {self._kernel} to `{source.code(found.call.func)}`, which"
                )
                self.follow(uses_of_parameter(source, *inside), told)
        elif source.code(found.call.func).endswith(REPLACE):  # TileGym's keeps what it made
            self._replaced(found.call, line)
        else:
            self.against.append(
                f"line {line} hands {self._kernel} to `{source.code(found.call.func)}`, which is "
                "not followed: what its decorator says may not be used"
            )


def _hints(source: Source, call: cst.Call) -> set[str] | None:
    """The names of what a call is given by keyword; None where they are not all seen."""
    found: set[str] = set()
    for argument in call.args:
        if argument.keyword is not None:
            found.add(argument.keyword.value)
        elif argument.star == "**":
            keys = _keys(source, argument.value)
            if keys is None:
                return None
            found |= keys
    return found


def _keys(source: Source, given: cst.BaseExpression) -> set[str] | None:
    """The keys of a dict that a function fills in by itself; None where they are not all seen."""
    if not isinstance(given, cst.Name) or (function := source.enclosing(given)) is None:
        return None
    found: set[str] = set()
    for name in descendants(function.node.body, cst.Name):
        if name.value != given.value:
            continue
        match next(source.ancestors(name)):
            case cst.AssignTarget() as target:
                assign = cst.ensure_type(next(source.ancestors(target)), cst.Assign)
                keys = _written(assign.value)
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=key))]):
                keys = _texts([key])
            case cst.Arg(star="**"):
                continue
            case _:
                keys = None
        if keys is None:
            return None
        found |= keys
    return found


def _written(value: cst.BaseExpression) -> set[str] | None:
    if not isinstance(value, cst.Dict):
        return None
    keys = [each.key for each in value.elements if isinstance(each, cst.DictElement)]
    return _texts(keys) if len(keys) == len(value.elements) else None


def _texts(keys: Sequence[cst.BaseExpression]) -> set[str] | None:
    texts = {str(key.raw_value) for key in keys if isinstance(key, cst.SimpleString)}
    return texts if len(texts) == len(keys) else None
