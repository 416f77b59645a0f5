"""What was compiled for one purpose serves the others, as far as it is conclusive."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.events import Candidate
from agent.evidence.duplicates import CompiledCommit
from agent.evidence.model import CompiledLaunch, NotCompiled
from agent.harness.compiling.candidate_filter import CandidateFilter
from agent.harness.processes.worker_session import Checkout
from tests.support.scripted import KERNEL, ScriptedCompiler, kernel

CUT_OFF = CompiledCommit(
    (NotCompiled(CompiledLaunch("kernel", ()), 90, "not done after 3 s", inconclusive=True),),
    "once",
    complete=True,
)


@dataclass
class Counting(ScriptedCompiler):
    """Notes what it is asked for; with a limit it gets nowhere."""

    asked: list[list[str]] = field(default_factory=list)

    def compile(
        self,
        checkouts: Sequence[Checkout],
        tests: Sequence[str],
        until: float = math.inf,
        given_up: threading.Event | None = None,
    ) -> tuple[CompiledCommit | None, ...]:
        self.asked.append([checkout.root.name for checkout in checkouts])
        if until < math.inf:
            return (CUT_OFF,) * len(checkouts)
        return super().compile(checkouts, tests)


class Commits:
    """Commits on disk, by their names."""

    def __init__(self, folder: Path, **texts: str) -> None:
        self.folder = folder
        for sha, text in texts.items():
            (folder / sha).mkdir()
            (folder / sha / KERNEL).write_text(text)

    def __call__(self, sha: str) -> Checkout:
        return Checkout(self.folder / sha, (self.folder / sha,), KERNEL)

    def several(self, shas: Sequence[str]) -> list[Checkout]:
        return [self(sha) for sha in shas]


def test_the_incumbent_of_a_diagnosis_is_compiled_once(tmp_path: Path) -> None:
    commits = Commits(tmp_path, old=kernel(2.0), same=f"# better\n{kernel(2.0)}", new=kernel(1.0))
    compiler = Counting()
    candidates = CandidateFilter(compiler)
    found = candidates.compiled("old", commits, (), math.inf)
    assert found is not None and found is candidates.compiled("old", commits, (), math.inf)
    tried = [Candidate("same", {}, "same"), Candidate("new", {}, "new")]
    out = candidates.filter_out("old", tried, commits.several, ())
    assert out == {"same": "the compiler makes the incumbent's code of it"}
    assert compiler.asked == [["old"], ["same", "new"]]
    again = [Candidate("old", {}, "as it was")]
    assert candidates.filter_out("new", again, commits.several, ()) == {
        "old": "the compiler makes the same code of it as of an earlier incumbent"
    }
    assert len(compiler.asked) == 2


def test_what_was_cut_off_is_told_and_compiled_again(tmp_path: Path) -> None:
    commits = Commits(tmp_path, old=kernel(2.0), new=f"# better\n{kernel(2.0)}")
    compiler = Counting()
    candidates = CandidateFilter(compiler)
    assert candidates.compiled("old", commits, (), 3.0) is CUT_OFF
    assert candidates.filter_out("old", [Candidate("new", {}, "new")], commits.several, ())
    assert compiler.asked == [["old"], ["old", "new"]]


def test_without_a_compiler_nothing_is_known(tmp_path: Path) -> None:
    assert CandidateFilter(None).compiled("old", Commits(tmp_path), (), math.inf) is None
