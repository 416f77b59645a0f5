"""The text of a test file for captured calls, and the files that belong beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.capture.arguments import ArgumentWriter, as_safetensors
from agent.capture.calls import Capture, CapturedCall, walk
from agent.capture.case_ids import ids, unique
from agent.capture.cases import CapturedEntry
from agent.prompting import render

LEAST_SHARE = 1e-3
"""Of a timing: one that counts for nothing would be none."""
PREFIX = "test_"
MOST_SHOWN = 60
"""Characters of the command, in the tests."""


@dataclass(frozen=True)
class CapturedSource:
    """Where the calls came from, as the tests tell it."""

    kernel_name: str
    """Of the kernel's file, without its folder."""
    suffix: str
    """Behind the names of tests, as the project's own have it: '_triton', or none."""
    command: str
    day: str
    origin_name: str
    """Of the file that holds the origin."""
    module: str = ""
    """By which the tests import the kernel's file, where that is another than in the command."""
    folder: str = ""
    """What they put on `sys.path` for that, seen from their own; empty where nothing is needed."""
    file: str = ""
    """What they load by its path, as no statement imports it, seen from their folder; else empty.
    It is the kernel's file, or that which launches."""
    loads_kernel: bool = False
    """Whether what launches has loaded the kernel's file by a name that nobody else finds it by."""
    asks_for_gpu: bool = False
    """Whether the kernel's file, or what it calls, asks tensors for `is_cuda`: see `gpu_guards`."""
    renames_operators: bool = False
    """Whether torch custom ops of the origin have to get names of their own when it is loaded."""


@dataclass(frozen=True)
class WrittenTests:
    """What is to be written."""

    text: str
    kept: bytes
    """The file of safetensors; empty where none is needed."""
    drawn: int
    """Integer tensors whose values are drawn anew, since they could not be kept."""


def write_tests(
    source: CapturedSource, capture: Capture, entries: Sequence[CapturedEntry]
) -> WrittenTests:
    """Write tests for entry points of one module.

    Args:
        source: of the calls.
        capture: all of them, for the shares.
        entries: what becomes tests; not empty.
    """
    writer = ArgumentWriter()
    described = [
        _entry(entry, test.removeprefix(PREFIX), capture, writer)
        for entry, test in zip(entries, test_names(entries), strict=True)
    ]
    first = entries[0].calls[0]
    module, kernels = source.module or first.module, first.kernels_of
    package = (kernels or module).rpartition(".")[0]
    stem = source.origin_name.removesuffix(".py")
    names = sorted({entry.name.partition(".")[0] for entry in entries})
    text = render(
        "captured_test.py.j2",
        kernel_name=source.kernel_name,
        suffix=source.suffix,
        command=_quoted(source.command),
        day=source.day,
        clock=capture.clock,
        origin_name=source.origin_name,
        origin_module=f"{package}.{stem}" if package else stem,
        imports=sorted((writer.imports | writer.arrays) - {"torch"}),
        arrays=[f"{library}.ndarray" for library in sorted(writer.arrays)],
        folder=source.folder,
        asks_for_gpu=source.asks_for_gpu,
        renames_operators=source.renames_operators,
        file=source.file,
        module=module,
        names=names,
        kernel_imports=[] if source.file else list(_imports(module, names)),
        kernels=kernels,
        launching=module if kernels else "",
        kernels_loaded=source.loads_kernel,
        kernels_name=next((name for name, known in first.held if not known), ""),
        held=first.held,
        held_of_packages=any("." in name for name, _ in first.held),
        helpers=writer.helpers,
        kept=writer.kept_types,
        backward=any(entry.backward for entry in entries),
        instances=any(entry.on_instance for entry in entries),
        holders=any(map(_has_holders, entries)),
        entries=described,
    )
    return WrittenTests(text, as_safetensors(writer.kept) if writer.kept else b"", writer.drawn)


def test_names(entries: Sequence[CapturedEntry]) -> list[str]:
    """What the correctness test of each entry point is called, but for the suffix."""
    return [f"{PREFIX}{name}" for name in unique(map(_named_after, entries))]


def _named_after(entry: CapturedEntry) -> str:
    backward = "_and_backward" if entry.backward else ""
    cast = f"_cast_to_{entry.autocast}" if entry.autocast else ""
    return f"{_snake(entry.name)}{backward}{cast}"


def _entry(
    entry: CapturedEntry, test: str, capture: Capture, writer: ArgumentWriter
) -> Mapping[str, Any]:
    owner, _, method = entry.name.partition(".")
    constant = f"{test.upper()}_CASES"
    return {
        "name": entry.name,
        "owner": owner,
        "method": f".{method}" if method else "",
        "test": test,
        "constant": constant,
        "timed": f"{test.upper()}_TIMED",
        "shares": [_shares(call, capture) for call in entry.calls[: entry.timed]],
        "on_instance": entry.on_instance,
        "backward": entry.backward,
        "autocast": entry.autocast,
        "holders": _has_holders(entry),
        "cases": [
            {
                "id": name,
                "share": f"{capture.share(call):.1%}".replace("%", " %"),
                "count": _count(call),
                "arguments": _named(call, writer),
                "dtype": f"torch.{call.state_dtype}" if call.state_dtype else "None",
                "constructor": writer.call(call.made_by) if call.made_by else [],
            }
            for call, name in zip(entry.calls, ids(entry.calls), strict=True)
        ],
    }


def _has_holders(entry: CapturedEntry) -> bool:
    """Whether a list or a dictionary is handed over, which a call may empty: as a context."""
    facts = walk(fact for call in entry.calls for fact in call.facts)
    return any(fact["kind"] in ("list", "dict") for fact in facts)


def _shares(call: CapturedCall, capture: Capture) -> list[str]:
    """The parts that the passes of a call take of all time: forward, and backward where seen."""
    passes = (call.forward, call.backward) if call.backward.count else (call.forward,)
    parts = [time.total_ms(call.processes) / (capture.total_ms or 1.0) for time in passes]
    return [f"{max(part, LEAST_SHARE):.2g}" for part in parts]


def _quoted(command: str) -> str:
    """One line of a docstring."""
    line = " ".join(command.split())
    line = line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]} ..."
    return line.replace("\\", "/").replace('"', "'")


def _named(call: CapturedCall, writer: ArgumentWriter) -> list[dict[str, str]]:
    """Each argument's code, with the name of its parameter where the code does not give it."""
    codes = writer.call({"arguments": call.arguments, "keywords": call.keywords})
    names = (*call.parameters, *[""] * (len(codes) - len(call.parameters)))
    return [{"code": code, "name": name} for code, name in zip(codes, names, strict=True)]


def _count(call: CapturedCall) -> str:
    text = "1 call" if call.forward.count == 1 else f"{call.forward.count} calls"
    return f"{text}, {call.backward.count} backward" if call.backward.count else text


def _imports(module: str, names: Sequence[str]) -> Iterator[str]:
    """One line, or one name a line where that would be long, or no statement can name it."""
    if not all(map(str.isidentifier, module.split("."))):
        yield from (f'{name} = importlib.import_module("{module}").{name}' for name in names)
        return
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 88:
        yield line
        return
    yield f"from {module} import ("
    yield from (f"    {name}," for name in names)
    yield ")"


def _snake(name: str) -> str:
    """'RMSNorm.apply' -> 'rms_norm_apply', 'add_' -> 'add_in_place'."""
    if name.endswith("_"):
        name = f"{name}in_place"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return words.replace(".", "_").strip("_").lower()
