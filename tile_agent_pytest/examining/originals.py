"""What judges a result or a time, taken before anything of the user's is imported.

A candidate may put something of its own in place of what compares, what times and what reports.
It cannot put it back without being seen by who looks at each end of a test; and what is looked at
is decided here, before it runs.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

WATCHED = {
    "torch": "allclose isclose equal all any eq ne sub isnan isfinite compile as_tensor from_numpy",
    "torch.testing": "assert_close assert_allclose",
    "torch.testing._comparison": "assert_close assert_equal not_close_error_metas",
    "torch.Tensor": "__eq__ __ne__ __sub__ __bool__ abs all allclose any equal isclose isnan item "
    "max mean sum tolist float double cpu",
    "torch.cuda": "Event Stream synchronize current_stream is_available CUDAGraph graph _sleep",
    "torch.cuda.Event": "elapsed_time record synchronize",
    "torch.cuda.CUDAGraph": "replay capture_begin capture_end",
    "numpy": "allclose isclose array_equal",
    "numpy.testing": "assert_allclose assert_array_equal assert_array_almost_equal",
    "triton.testing": "do_bench assert_close do_bench_cudagraph",
    "time": "perf_counter perf_counter_ns monotonic monotonic_ns time time_ns process_time sleep",
    "statistics": "median mean fmean",
    "math": "isclose isfinite isnan",
    "builtins": "abs all any isinstance len max min print round sum zip __import__ __build_class__",
    "os": "_exit",
    "json": "dumps loads",
    "pytest": "raises skip fail approx importorskip main",
    "_pytest.runner": "call_and_report runtestprotocol pytest_runtest_protocol check_interactive_"
    "exception pytest_runtest_makereport pytest_runtest_call",
    "_pytest.reports.TestReport": "from_item_and_call",
    "_pytest.python.Function": "runtest setup",
    "_pytest.python": "pytest_pyfunc_call",
    "_pytest.assertion.rewrite": "_call_reprcompare",
    "tile_agent_pytest.bench.OnCpu": "sample burst",
    "tile_agent_pytest.bench.OnGpu": "sample burst _host_ms _cycles_per_ms",
    "tile_agent_pytest.graphs.AsGraph": "__init__ sample burst _launch",
    "tile_agent_pytest.graphs.AsColdGraph": "__init__ sample burst _launch",
    "tile_agent_pytest.bench.TileBench": "__call__",
    "tile_agent_pytest.bench": "open_sampler sampled count_for can_be_captured _estimate "
    "perf_counter SHORT_MS l2_bytes open_graph reachable",
    "tile_agent_pytest.graphs": "GRAPH_LAUNCHES InputSets Turns _sets can_be_captured "
    "count_of_sets l2_bytes that_can_lie_elsewhere within",
    "tile_agent_pytest.input_sets.InputSets": "__init__ __len__ spread use",
    "tile_agent_pytest.input_sets.Turns": "__init__ end look_at spread take",
    "tile_agent_pytest.input_sets": "OVERFLOW _is_plain _memories _placed _spans span_bytes",
    "tile_agent_pytest.compiled_ahead_cutile": "compile_search_first compile_side_by_side "
    "_compilations ending_at_once",
    "tile_agent_pytest.forked_work": "done_in_forks forks _fork",
    "tile_agent_pytest.compiled_ahead": "compile_configs_first _compile _begin",
    "tile_agent_pytest.compiled_apart": "asking for_another_process is_plain",
    "tile_agent_pytest.tuning_effort": (
        "_roughly only best_of_first _timed_ms _rough_ms _launched_ms _events leave_uncompiled"
    ),
    "tile_agent_pytest.tuning_effort.TuningInLess": (
        "begin undecided around _choose _tune _roughly_among _best_of_first _rank"
    ),
    "tile_agent_pytest.observed_tunings.TuningLog": "watched tuning take_s",
    "tile_agent_pytest.compiled_ahead_cutile.PendingCompilation": "into_cache",
    "tile_agent_pytest.stepper": "open_sampler perf_counter thinned seed_generators",
    "tile_agent_pytest.stepper.Stepper": "serve _answer _first _prepare",
    "tile_agent_pytest.worker.PytestSession": "_run _step pytest_runtest_logreport",
    "tile_agent_pytest.timing_takeover.TimingTakeover": "time serves _is_of_a_test",
    "tile_agent_pytest.launch_detector.LaunchDetector": "watching _watched",
    "tile_agent_pytest.launch_functions": "wrapped unwrapped launch_functions",
    "tile_agent_pytest.wire.Channel": "send receive",
    "tile_agent_pytest.examining.examination.Examination": "call first examine pick show _unseen",
    "tile_agent_pytest.examining.tensors": "reachable within digest as_fixed as_tensor is_fixed "
    "library_of",
    "tile_agent_pytest.examining.inputs.Inputs": "refresh restore save",
    "tile_agent_pytest.examining.exchange": "hand_out",
}
"""Module or class -> the names in it."""


class Originals:
    """The objects behind the watched names, as they were when this was made."""

    def __init__(self, others: Iterable[tuple[Any, str]] = ()) -> None:
        """Take owners and names that are watched besides."""
        self._kept = [(owner, name, value, _inside(value)) for owner, name, value in _present()]
        for owner, name in others:
            self.watch(owner, name)

    def watch(self, owner: Any, name: str) -> None:
        """Look at what stands behind a name from now on."""
        if not any(owner is known and name == held for known, held, _, _ in self._kept):
            value = _held(owner, name)
            self._kept.append((owner, name, value, _inside(value)))

    def replaced(self) -> list[str]:
        """The dotted names that stand for something else by now."""
        return [
            f"{_called(owner)}.{name}"
            for owner, name, value, inside in self._kept
            if _held(owner, name) is not value or not _same(_inside(value), inside)
        ]


def _present() -> Iterator[tuple[Any, str, Any]]:
    for dotted, names in WATCHED.items():
        owner = _owner(dotted)
        if owner is None:
            continue
        for name in names.split():
            if (value := _held(owner, name)) is not None:
                yield owner, name, value


def _owner(dotted: str) -> Any:
    """A module that is loaded, or ours; a class of one."""
    if dotted == "builtins":
        return builtins
    if dotted.startswith("tile_agent_pytest."):
        module, _, name = dotted.rpartition(".")
        if name[0].isupper():
            return getattr(importlib.import_module(module), name)
        return importlib.import_module(dotted)
    if dotted in sys.modules:
        return sys.modules[dotted]
    module, _, name = dotted.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _held(owner: Any, name: str) -> Any:
    """What a name stands for: in a class, what is in it, for methods are bound anew each time."""
    if isinstance(owner, type):
        for base in owner.__mro__:
            if name in vars(base):
                return vars(base)[name]
        return None
    return vars(owner).get(name)


def _inside(value: Any) -> tuple[Any, ...]:
    """What a function runs, and what it closes over: both can be replaced in the function."""
    function = getattr(value, "__func__", value)
    cells = getattr(function, "__closure__", None) or ()
    return (getattr(function, "__code__", None), *(_content(cell) for cell in cells))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _same(now: tuple[Any, ...], then: tuple[Any, ...]) -> bool:
    return len(now) == len(then) and all(one is other for one, other in zip(now, then, strict=True))


def _called(owner: Any) -> str:
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}"
    return str(owner.__name__)
