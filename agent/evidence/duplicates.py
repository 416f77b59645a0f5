"""Candidates that compile to the code of another one; what has been timed is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.evidence import advice
from agent.evidence.compare import unchanged
from agent.evidence.model import NotCompiled, Result, TimedWork


@dataclass(frozen=True)
class CompiledCommit:
    """All launches of one commit, compiled for the GPU of the run."""

    results: tuple[Result, ...]
    sequence: str
    """A digest of the launches in order, with their grids and values."""
    complete: bool
    """No launch was left out, and no test ended before its launches were seen."""
    work: tuple[TimedWork, ...] = ()
    """Of each timing."""
    of_best: bool = False
    """Of a tuner's configs those were compiled that did best for the origin; others may do here."""

    @property
    def problem(self) -> str | None:
        """Why it cannot run, in one line.

        Only where no launch of a kernel can: a tuner passes over the configs that fail. A compile
        that was not done in time, or cannot be read here, is no reason.
        """
        if self.of_best:
            return None
        for kernel in dict.fromkeys(result.launch.kernel for result in self.results):
            reasons = [_reason(r) for r in self.results if r.launch.kernel == kernel]
            if all(reasons):
                return reasons[0]
        return None

    @property
    def conclusive(self) -> bool:
        """Whether every launch was compiled and read, or cannot be."""
        return not any(isinstance(r, NotCompiled) and r.inconclusive for r in self.results)


def _reason(result: Result) -> str | None:
    if isinstance(result, NotCompiled):
        reason = None if result.inconclusive else result.reason
    else:
        reason = advice.problem(result)
    return None if reason is None else f"{result.launch} for {result.target}: {reason}"


@dataclass
class DuplicateFilter:
    """Remembers what has been timed in a run."""

    _timed: list[tuple[str, CompiledCommit]] = field(default_factory=list)
    """What it was called -> what it compiled to."""

    def filter_out(
        self,
        incumbent: CompiledCommit | None,
        candidates: Sequence[tuple[str, str, CompiledCommit | None]],
    ) -> Mapping[str, str]:
        """The candidates that need no timing, with the reason.

        Args:
            incumbent: what the code to beat compiles to; None when that is not known, and then
                nothing is filtered out.
            candidates: key, title, and what it compiles to, None when that is not known.
        """
        if incumbent is None or incumbent.problem is not None:
            return {}
        out: dict[str, str] = {}
        seen = list(self._timed)
        for key, title, compiled in candidates:
            if compiled is None:
                continue
            if (problem := compiled.problem) is not None:
                out[key] = problem
            elif _same(incumbent, compiled):
                out[key] = "the compiler makes the incumbent's code of it"
            elif (other := next((t for t, c in seen if _same(c, compiled)), None)) is not None:
                out[key] = f"the compiler makes the same code of it as of {other}"
            else:
                seen.append((title, compiled))
        return out

    def remember(self, title: str, compiled: CompiledCommit | None) -> None:
        """A candidate has been timed: the same code need not be again."""
        if compiled is not None:
            self._timed.append((title, compiled))


def _same(one: CompiledCommit, other: CompiledCommit) -> bool:
    return (
        one.complete
        and other.complete
        and one.sequence == other.sequence
        and unchanged(one.results, other.results)
    )
