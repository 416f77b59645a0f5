"""What is kept of a run: facts, and no word of the user's."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.attempts import attempts
from agent.events import Baselined, Finished
from agent.journal import Journal, read
from agent.launches import ObservedLaunch, ObservedTensor
from agent.measuring.decision import Status
from agent.options import Options
from agent.playbook import PLAYBOOK
from agent.repository import Repository
from agent.store.database import store_path, stored
from agent.store.judgements import (
    FASTER,
    NOT_FASTER,
    OUTCOMES,
    OWN_IDEA,
    WRONG,
    judgements,
    machine,
    public,
)
from agent.store.recall import record
from tests.support.history import STARTED, comparison
from tests.support.repo import git, make_repo
from tests.support.scripted import KERNEL, ScriptedRun, Step, kernel

TRITON = """\
import triton
import triton.language as tl


@triton.jit
def acme_kernel(secret_pointer, ACME_TILE: tl.constexpr):
    tl.store(secret_pointer + tl.arange(0, ACME_TILE), 1.0)


def acme(x):
    acme_kernel[(1,)](x, ACME_TILE=64)


"""
REMEMBERED = Options(patience=100, keep_going=True, remember=True)
STEPS = (
    Step("block-size", (TRITON + kernel(0.8), TRITON + kernel(0.7))),
    Step("acme-idea", (TRITON + kernel(0.9),)),
    Step("exp2", (TRITON + kernel(0.1, "WRONG"),)),
)


def scripted(tmp_path: Path, options: Options = REMEMBERED) -> ScriptedRun:
    repo = make_repo(tmp_path, {KERNEL: TRITON + kernel(1.0)})
    return ScriptedRun(repo, STEPS, options)


def recorded(run: ScriptedRun) -> str:
    return record(run.folder / "journal.jsonl", run.repository)


def test_each_judged_optimization_is_a_row(tmp_path: Path) -> None:
    run = scripted(tmp_path)
    run.finish()
    assert recorded(run) == ""
    found = {each.entry: each for each in stored()}
    assert list(found) == ["block-size", OWN_IDEA, "exp2"]
    size = found["block-size"]
    assert (size.status, size.outcome) == ("keep", FASTER)
    assert size.gain == pytest.approx(0.3)
    assert size.low is not None and size.high is not None
    assert size.low <= size.gain <= size.high
    assert json.loads(size.params) == {"(name 1)": 1}
    assert (size.backend, size.kind, size.proposer) == ("triton", "element by element", "playbook")
    assert (size.gpu, size.sm, size.toolchain) == ("", 0, '{"torch": "2.0"}')
    assert size.began_at_s == run.began_at_s
    assert (found[OWN_IDEA].status, found[OWN_IDEA].outcome) == ("revert", NOT_FASTER)
    assert (found["exp2"].outcome, found["exp2"].gain) == (WRONG, None)
    assert {each.outcome for each in stored()} <= set(OUTCOMES)


def test_each_attempt_of_a_candidate_that_is_mended_has_its_own_figures(tmp_path: Path) -> None:
    texts = (kernel(0.5, "WRONG"), kernel(1.2), kernel(0.8))
    steps = [Step("exp2", tuple(TRITON + text for text in texts))]
    run = replace(scripted(tmp_path, replace(REMEMBERED, proposers=("assistant",))), steps=steps)
    run.finish()
    assert recorded(run) == ""
    found = [(each.outcome, each.gain and round(each.gain, 3)) for each in stored()]
    assert found == [(WRONG, None), (NOT_FASTER, -0.2), (FASTER, 0.2)]
    assert {each.proposer for each in stored()} == {"assistant"}


def test_a_run_is_kept_once_however_often_that_is_asked(tmp_path: Path) -> None:
    run = scripted(tmp_path)
    run.finish()
    for _ in range(3):
        assert recorded(run) == ""
    assert len(stored()) == len(STEPS)


def test_a_gain_that_the_end_of_a_run_did_not_find_is_none(tmp_path: Path) -> None:
    """It was stored as one when the step was kept."""
    run = scripted(tmp_path)
    run.finish()
    assert recorded(run) == ""
    assert stored()[0].outcome == FASTER
    path = run.folder / "journal.jsonl"
    events = [line.event for line in read(path)]
    path.unlink()
    journal = Journal(path)
    for event in events:
        lost = isinstance(event, Finished)
        journal.append(replace(event, comparison=comparison(-0.1)) if lost else event)
    journal.close()
    assert recorded(run) == ""
    assert [each.outcome for each in stored()] == [NOT_FASTER, NOT_FASTER, WRONG]


def test_what_an_earlier_run_measured_is_kept_once(tmp_path: Path) -> None:
    run = replace(scripted(tmp_path), began_at_s=int(time.time()))
    run.finish()
    again = replace(run, run_id="kernel-2", branch="tile-agent/kernel-2")
    done = again.finish()
    assert done.rows[1].reason.endswith("as run kernel-1 measured it")
    assert recorded(run) == recorded(again) == ""
    assert [each.entry for each in stored()].count("block-size") == 1


def test_nothing_is_kept_unless_that_is_asked_for(tmp_path: Path) -> None:
    run = scripted(tmp_path, replace(REMEMBERED, remember=False, remember_source=True))
    run.finish()
    assert recorded(run) == ""
    assert not store_path().exists()


@pytest.mark.parametrize("with_source", [False, True])
def test_no_name_text_or_path_of_the_users_is_in_any_byte(
    tmp_path: Path, with_source: bool
) -> None:
    run = scripted(tmp_path, replace(REMEMBERED, remember_source=with_source))
    run.finish()
    assert recorded(run) == ""
    content = store_path().read_bytes()
    words = [b"acme", b"ACME", b"secret_pointer", b"LATENCY", b"kernel.py", b"kernel-1"]
    words += [str(tmp_path).encode(), b"it should help", b"test_right", run.branch.encode()]
    words += [git(run.repo, "rev-parse", "HEAD").encode()]
    there = [word for word in words if word in content]
    if with_source:
        assert there == [b"acme", b"ACME", b"LATENCY", b"kernel.py", b"it should help"]
        assert all("+LATENCY_MS" in each.change for each in stored())
    else:
        assert there == []


def test_a_value_keeps_numbers_and_the_words_of_the_playbook() -> None:
    for entry in PLAYBOOK:
        assert public(entry.example) == entry.example
    given = {
        "kept": {"acme_kernel": [{"constants": {"ACME": 512}, "num_warps": 2}]},
        "loads": "/home/ada/x",
        "num_warps": 8,
        "factor": 0.5,
        "on": True,
        "none": None,
        "object": object(),
    }
    assert public(given) == {
        "kept": {"(name 1)": [{"constants": {"(name 1)": 512}, "num_warps": 2}]},
        "loads": "(a name)",
        "num_warps": 8,
        "factor": 0.5,
        "(name 5)": True,
        "(name 6)": None,
        "(name 7)": "(a value)",
    }


def test_a_version_is_that_of_its_maker() -> None:
    versions = {
        "torch": "2.11.0+cu130",
        "triton": "3.6.0+acme.internal",
        "cuda-tile": "acme",
        "acme": "1.0",
    }
    began = replace(STARTED, environment=STARTED.environment | {"versions": versions})
    name, sm, toolchain = machine(began)
    assert (name, sm) == ("NVIDIA H200", 90)
    assert json.loads(toolchain) == {"driver": "580.1", "torch": "2.11.0+cu130", "triton": "3.6.0"}


def test_dtypes_and_shapes_are_those_of_the_launch_that_takes_longest(tmp_path: Path) -> None:
    run = scripted(tmp_path)
    run.finish()
    events = [line.event for line in read(run.folder / "journal.jsonl")]
    tensors = {
        "acme": ObservedTensor("bfloat16", (1000, 4096), (4096, 1), aligned=True),
        "acme_too": ObservedTensor("float32", (), (), aligned=True),
        "odd": ObservedTensor("/home/ada", (7,), (1,), aligned=True),
    }
    launch = ObservedLaunch("acme_kernel", "tests::test_perf", (1,), {}, tensors, {})
    seen = [replace(e, launches=(launch,)) if isinstance(e, Baselined) else e for e in events]
    (first, *_) = judgements(seen, run.repository, with_source=False)
    assert first.dtypes == "bfloat16, float32"
    assert first.shapes == "1024x4096, scalar, 8"
    (unseen, *_) = judgements(events, run.repository, with_source=False)
    assert (unseen.dtypes, unseen.shapes) == ("", "")


def test_what_was_not_the_candidates_fault_is_told_as_not_measured(tmp_path: Path) -> None:
    run = replace(scripted(tmp_path), steps=[Step("exp2", (TRITON + kernel(0.5, "SICK"),))])
    run.finish()
    events = [line.event for line in read(run.folder / "journal.jsonl")]
    (attempt,) = attempts(events)
    assert attempt.status is Status.CRASH
    (row,) = judgements(events, run.repository, with_source=False)
    assert row.outcome == "not measured"


def test_a_run_goes_on_where_its_store_cannot_be_written(tmp_path: Path) -> None:
    run = scripted(tmp_path)
    store_path().parent.mkdir(exist_ok=True)
    store_path().write_bytes(b"no database" * 1000)
    run.finish()
    problem = recorded(run)
    assert "is damaged" in problem
    assert "\n" not in problem


def test_a_python_without_sqlite_is_said_to_be_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scripted(tmp_path)
    run.finish()
    monkeypatch.setitem(sys.modules, "agent.store.database", None)
    problem = recorded(run)
    assert problem.endswith("install Python's sqlite3, or leave --remember out")
    monkeypatch.undo()
    assert not (tmp_path / "state" / "memory.sqlite").exists()


def test_a_journal_or_a_kernel_that_is_gone_is_a_line_too(tmp_path: Path) -> None:
    run = scripted(tmp_path)
    run.finish()
    later = Repository.open(run.repo)  # what was read before is known still
    shutil.rmtree(run.repo / ".git" / "objects")
    journal = run.folder / "journal.jsonl"
    assert len(record(journal, later).splitlines()) == 1
    journal.unlink()
    assert len(record(journal, later).splitlines()) == 1
