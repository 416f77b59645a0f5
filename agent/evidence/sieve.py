"""Which candidates are worth a GPU's time, by what they compile to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.evidence import advice
from agent.evidence.compare import unchanged
from agent.evidence.model import NotCompiled, Result


@dataclass(frozen=True)
class Compiled:
    """All launches of one commit, compiled for the GPU of the run."""

    results: tuple[Result, ...]
    complete: bool
    """No launch was left out, and no test ended before its launches were seen."""

    @property
    def problem(self) -> str | None:
        """Why it cannot run, in one line."""
        for result in self.results:
            reason = result.reason if isinstance(result, NotCompiled) else advice.problem(result)
            if reason is not None:
                return f"{result.launch} for {result.target}: {reason}"
        return None


@dataclass
class Sieve:
    """Remembers what has been tried in a run."""

    _tried: list[tuple[str, Compiled]] = field(default_factory=list)
    """What it was called -> what it compiled to."""

    def sort_out(
        self,
        incumbent: Compiled | None,
        candidates: Sequence[tuple[str, str, Compiled | None]],
    ) -> Mapping[str, str]:
        """The candidates that need no timing, with the reason.

        Args:
            incumbent: what the code to beat compiles to; None when that is not known, and then
                nothing is sorted out.
            candidates: key, title, and what it compiles to, None when that is not known.
        """
        if incumbent is None or incumbent.problem is not None:
            return {}
        out: dict[str, str] = {}
        for key, title, compiled in candidates:
            if compiled is None:
                continue
            if (problem := compiled.problem) is not None:
                out[key] = problem
            elif _same(incumbent, compiled):
                out[key] = "the compiler makes the incumbent's code of it"
            elif (other := self._find(compiled)) is not None:
                out[key] = f"the compiler makes the same code of it as of {other}"
            else:
                self._tried.append((title, compiled))
        return out

    def _find(self, compiled: Compiled) -> str | None:
        return next((title for title, other in self._tried if _same(other, compiled)), None)


def _same(one: Compiled, other: Compiled) -> bool:
    return one.complete and other.complete and unchanged(one.results, other.results)
