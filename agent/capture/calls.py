"""The calls of a kernel's file that a command made, of all its processes together.

The recorder's facts of arguments stay as it wrote them (`tile_agent_pytest.capture.described`):
nested mappings, told apart by `kind`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Fact = Mapping[str, Any]
"""One argument."""


@dataclass(frozen=True)
class CallTime:
    """How often, and how long."""

    count: int = 0
    first_ms: float = 0.0
    later_ms: float = 0.0

    def __add__(self, other: CallTime) -> CallTime:
        return CallTime(
            self.count + other.count,
            self.first_ms + other.first_ms,
            self.later_ms + other.later_ms,
        )

    def total_ms(self, processes: int) -> float:
        """Of all calls; each first one, which compiles, counts like a later one where there is any.

        Args:
            processes: that made calls, each of which had a first one.
        """
        later = self.count - processes
        return self.later_ms / later * self.count if later > 0 else self.first_ms


@dataclass(frozen=True)
class CapturedCall:
    """One kind of call: an entry point with the same facts of its arguments."""

    module: str
    """As the command imported the file, or another one that launches its kernels."""
    name: str
    """In the module: 'softmax', 'RMSNorm.apply'; a class, where its instances are called."""
    arguments: tuple[Fact, ...]
    keywords: Mapping[str, Fact]
    parameters: tuple[str, ...]
    """Names of the positional arguments; fewer where the function takes any number."""
    made_by: Mapping[str, Any] | None
    """`arguments` and `keywords` of the constructor, where `name` is a class or its method."""
    on_instance: bool
    state_dtype: str
    """Of the parameters of a layer; empty where there are none."""
    kernels: tuple[str, ...]
    forward: CallTime
    backward: CallTime
    processes: int
    autocast: str = ""
    """The type that `torch.autocast` casts to around the call; empty where there is none."""
    kernels_of: str = ""
    """What the kernel's file is called as a module, where `module` is another one that launches."""
    launching_file: str = ""
    """The path of `module` then."""
    held: tuple[tuple[str, str], ...] = ()
    """What `module` holds of the file then: (name there, name in the file, empty for all of it)."""

    @property
    def total_ms(self) -> float:
        """What it took altogether, without what was compiled as far as that can be told."""
        return self.forward.total_ms(self.processes) + self.backward.total_ms(self.processes)

    @property
    def facts(self) -> Iterator[Fact]:
        """Of all arguments, without those inside of others."""
        yield from self.arguments
        yield from self.keywords.values()

    def unknown(self) -> str:
        """The type of an argument that no text can make; empty where there is none."""
        given = [*self.facts]
        if self.on_instance:
            if self.made_by is None:
                return self.name
            given += [*self.made_by["arguments"], *self.made_by["keywords"].values()]
        return next((fact["type"] for fact in walk(given) if fact["kind"] == "unknown"), "")

    def not_made(self) -> tuple[str, str]:
        """An argument whose tensor carries an attribute that no text can make, and the attribute;
        empty where there is none."""
        given = [*zip(self.parameters, self.arguments, strict=False), *self.keywords.items()]
        for parameter, fact in given:
            for each in walk([fact]):
                if names := each.get("not_made"):
                    return parameter, names[0]
        return "", ""


@dataclass(frozen=True)
class SeenTests:
    """What became of the tests of a command."""

    ran: int = 0
    skipped: int = 0
    files: frozenset[str] = frozenset()
    """Those that skipped themselves before their tests were known."""
    why: str = ""
    """Of the first that was skipped."""
    no_fixture: tuple[str, str] = ("", "")
    """The first that takes what is no fixture, and that: pytest cannot call it."""

    def with_those_of(self, told: Mapping[str, Any]) -> SeenTests:
        """Together with those of another process."""
        return SeenTests(
            self.ran + told["ran"],
            self.skipped + told["skipped"],
            self.files | {*told["files"]},
            self.why or told["why"],
            self.no_fixture if self.no_fixture[0] else tuple(told["no_fixture"]),
        )

    @property
    def all_of_them(self) -> str:
        """What was skipped, in words, where nothing else ran; else empty."""
        if self.ran or not (self.skipped or self.files):
            return ""
        tests, files = _counted_words(self.skipped, "test"), _counted_words(len(self.files), "file")
        what = " and ".join(filter(None, [tests, files and f"{files} of tests"]))
        verb = "was" if self.skipped + len(self.files) == 1 else "were all"
        return f"{what} {verb} skipped"


def _counted_words(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}" if number else ""


@dataclass(frozen=True)
class Capture:
    """What was recorded while a command ran."""

    calls: tuple[CapturedCall, ...]
    """Those that launched kernels of the file, the most time first."""
    clock: str
    """What their times are."""
    left_out: int
    """Calls beyond the kinds that a process tells apart."""
    outside: tuple[str, ...]
    """Kernels that were launched by no call of a function of the file that was recorded."""
    as_script: bool
    """Whether one of these was by the file itself, which Python ran."""
    faults: tuple[str, ...]
    """Why calls could not be described."""
    tests: SeenTests | None = None
    """Of the tests that pytest ran in it; None where it ran none, nor skipped any."""
    operators: tuple[str, ...] = ()
    """Functions that PyTorch's dispatcher called, where these launched so."""
    registered: tuple[str, ...] = ()
    """`namespace::name` of the file's functions that are torch custom ops."""
    imported_s: float = 0.0
    """What its statements take that launch kernels whenever it is imported, as far as was seen."""
    failure: str = ""
    """The account of the first exception that ended a process, or failed a test."""

    @property
    def total_ms(self) -> float:
        """Of all calls."""
        return sum(call.total_ms for call in self.calls)

    def share(self, call: CapturedCall) -> float:
        """A kind's part of the time of all calls, from 0 to 1."""
        return call.total_ms / self.total_ms if self.total_ms else 0.0


def walk(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The facts and those inside of them."""
    for fact in facts:
        yield fact
        if fact["kind"] == "dict":
            yield from walk(part for _, part in fact["items"])
        elif fact["kind"] in ("tuple", "list"):
            yield from walk(fact["items"])
        elif fact["kind"] == "tensor":
            yield from walk(part for _, part in fact.get("attributes", ()))


def collected(records: Iterable[Iterable[Mapping[str, Any]]]) -> Capture:
    """Put the records of all processes together.

    Args:
        records: the messages of each process, in order.
    """
    calls: dict[str, CapturedCall] = {}
    clock, as_script, left_out = "", False, 0
    outside: dict[str, None] = {}
    operators: dict[str, None] = {}
    registered: dict[str, None] = {}
    faults: dict[str, None] = {}
    imported_s = 0.0
    failure = ""
    tests: SeenTests | None = None
    for process in records:
        here_s = 0.0
        known: dict[str, CapturedCall] = {}
        last: Mapping[str, Any] = {"tally": {}, "left_out": 0}
        for message in process:
            if "call" in message:
                known[message["call"]] = _call(message)
                clock = message["clock"]
            elif "tally" in message:
                last = message
            elif "tests" in message:
                tests = (tests or SeenTests()).with_those_of(message["tests"])
            elif "failure" in message:
                failure = failure or message["failure"]
            elif "fault" in message:
                faults[message["fault"]] = None
            elif "registered" in message:
                registered[message["registered"]] = None
            elif "imported_s" in message:
                here_s += message["imported_s"]
                imported_s = max(imported_s, here_s)
            else:
                by = message["operator"]
                (operators if by else outside)[by or message["outside"]] = None
                as_script |= message["as_script"]
        left_out += last["left_out"]
        for key, tally in last["tally"].items():
            if key not in known:  # a record that was cut off, as by a full disk
                left_out += tally["count"] + tally["backward_count"]
                continue
            counted = _counted(known[key], tally)
            calls[key] = _together(calls[key], counted) if key in calls else counted
    ordered = sorted(calls.values(), key=lambda call: -call.total_ms)
    return Capture(
        tuple(ordered),
        clock,
        left_out,
        tuple(outside),
        as_script,
        tuple(faults),
        tests,
        tuple(operators),
        tuple(registered),
        imported_s,
        failure,
    )


def _call(message: Mapping[str, Any]) -> CapturedCall:
    return CapturedCall(
        module=message["module"],
        name=message["name"],
        arguments=tuple(message["arguments"]),
        keywords=message["keywords"],
        parameters=tuple(message["parameters"]),
        made_by=message.get("made_by"),
        on_instance="made_by" in message,
        state_dtype=message.get("state_dtype", ""),
        kernels=(),
        forward=CallTime(),
        backward=CallTime(),
        processes=1,
        autocast=message.get("autocast", ""),
        kernels_of=message.get("kernels_of", ""),
        launching_file=message.get("launching_file", ""),
        held=tuple((name, known) for name, known in message.get("held", ())),
    )


def _counted(call: CapturedCall, tally: Mapping[str, Any]) -> CapturedCall:
    times = [
        CallTime(*(tally[f"{before}{name}"] for name in ("count", "first_ms", "later_ms")))
        for before in ("", "backward_")
    ]
    return replace(call, kernels=tuple(tally["kernels"]), forward=times[0], backward=times[1])


def _together(one: CapturedCall, other: CapturedCall) -> CapturedCall:
    return replace(
        one,
        kernels=tuple(dict.fromkeys((*one.kernels, *other.kernels))),
        forward=one.forward + other.forward,
        backward=one.backward + other.backward,
        processes=one.processes + other.processes,
    )
