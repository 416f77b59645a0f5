"""Which of the captured calls become tests, and which are timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agent.capture.calls import Capture, CapturedCall, Fact, walk

MOST_CASES = 16
"""Of an entry point, for correctness."""
MOST_TIMED = 4
"""Of an entry point, for speed."""
TIMED_SHARE = 0.9
"""Of the time of an entry point: cases are timed until they hold so much of it."""


@dataclass(frozen=True)
class CapturedEntry:
    """An entry point with the calls that become its cases: all with a backward pass, or none, and
    all within one `torch.autocast`, or none."""

    name: str
    calls: tuple[CapturedCall, ...]
    """The most time first."""
    timed: int
    """How many of them are timed, from the first on."""
    left_out: int

    @property
    def on_instance(self) -> bool:
        """Whether what is called belongs to an instance of a class."""
        return self.calls[0].on_instance

    @property
    def backward(self) -> bool:
        """Whether gradients were asked for."""
        return self.calls[0].backward.count > 0

    @property
    def autocast(self) -> str:
        """The type that is cast to; empty where none is."""
        return self.calls[0].autocast


def entries(capture: Capture) -> tuple[CapturedEntry, ...]:
    """What can be written down, the most time first: an entry point may be one without and one with
    a backward pass, and one for each type of `torch.autocast`.

    All are of one module: the file itself where it is called, else that whose calls took most.
    """
    module = entered(capture)
    by_use: dict[tuple[str, bool, str], list[CapturedCall]] = {}
    for call in capture.calls:
        if call.module == module and not call.unknown():
            use = (call.name, call.backward.count > 0, call.autocast)
            by_use.setdefault(use, []).append(call)
    found = [_entry(name, calls) for (name, *_), calls in by_use.items()]
    return tuple(sorted(found, key=lambda e: -sum(call.total_ms for call in e.calls)))


def entered(capture: Capture) -> str:
    """The module whose calls are written down; empty where there is none."""
    known = [call for call in capture.calls if call.module != "__main__" and not call.unknown()]
    of_file = [call for call in known if not call.kernels_of]
    time_ms: dict[str, float] = {}
    for call in of_file or known:
        time_ms[call.module] = time_ms.get(call.module, 0.0) + call.total_ms
    return max(time_ms, key=time_ms.__getitem__, default="")


def passed_over(capture: Capture) -> tuple[str, ...]:
    """Modules that launch kernels of the file, too, and of whose calls none is written down."""
    module = entered(capture)
    others = {c.module for c in capture.calls if c.kernels_of and c.module != module}
    return tuple(sorted(others))


def unwritable(capture: Capture) -> tuple[str, ...]:
    """What stands in the way of calls that no text can make, a line each."""
    counts = Counter((call.name, kind) for call in capture.calls if (kind := call.unknown()))
    return tuple(
        f"{name}: {count} kind{'s' if count > 1 else ''} of calls left out, for a value of type "
        f"{kind} cannot be written down"
        for (name, kind), count in counts.items()
    )


def _entry(name: str, calls: Sequence[CapturedCall]) -> CapturedEntry:
    chosen = tuple(_chosen(calls))
    return CapturedEntry(name, chosen, timed_of(chosen), len(calls) - len(chosen))


def timed_of(calls: Sequence[CapturedCall]) -> int:
    """How many of the calls of an entry point are timed, from the first on; one at least."""
    total_ms = sum(call.total_ms for call in calls)
    timed, held_ms = 0, 0.0
    while timed < min(MOST_TIMED, len(calls)) and held_ms < TIMED_SHARE * total_ms:
        held_ms += calls[timed].total_ms
        timed += 1
    return max(timed, 1)


def _chosen(calls: Sequence[CapturedCall]) -> Iterable[CapturedCall]:
    """The first call of each form, then what took the most time; in the order they are in."""
    forms: dict[str, CapturedCall] = {}
    for call in calls:
        forms.setdefault(_form(call), call)
    first = {id(call) for call in list(forms.values())[:MOST_CASES]}
    others = [id(call) for call in calls if id(call) not in first]
    kept = first | {*others[: MOST_CASES - len(first)]}
    return (call for call in calls if id(call) in kept)


def _form(call: CapturedCall) -> str:
    """What may take another way through the code: types, layouts and options, but no sizes."""
    return repr([*_features(walk(call.facts))])


def _features(facts: Iterable[Fact]) -> Iterator[object]:
    for fact in facts:
        if fact["kind"] == "tensor":
            yield fact["dtype"], len(fact["shape"]), fact["requires_grad"], fact["memory"]
        elif fact["kind"] == "value" and not fact["code"].lstrip("-")[:1].isdigit():
            yield fact["code"]
        else:
            yield fact["kind"]
