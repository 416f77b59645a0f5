"""The Triton entries of the playbook over kernels that other people wrote.

A part of the corpus, to keep it short; `python -m tests.corpus.survey` takes all of it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agent.playbook import ADVICE, for_backend
from benchmarks.corpus import DEPENDENCIES, PROJECTS, Unavailable, cache, fetch, files
from tests.corpus.compiling import compile_jobs, jobs
from tests.corpus.survey import Survey, survey

FILES_A_PROJECT = 18
MAX_BYTES = 8_000
REPEATS_AN_ENTRY = 2
COMPILES_AN_ENTRY = 1
COMPILE_TIMEOUT_S = 90
ENTRIES = {e.name for e in (*for_backend("triton"), *ADVICE) if e.backend == "triton"}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def projects() -> dict[Path, list[Path]]:
    """The folder of each project with some of its smaller files, spread over all of it."""
    try:
        folders = [fetch(*project, cache()) for project in (*PROJECTS, *DEPENDENCIES)]
    except Unavailable as problem:
        pytest.skip(f"the corpus cannot be fetched: {problem}")
    return {folder: _spread(folder) for folder in folders[: len(PROJECTS)]}


@pytest.fixture(scope="module")
def surveys(projects: dict[Path, list[Path]]) -> list[Survey]:
    found: list[Survey] = []
    times = Counter[str]()
    for path in (path for paths in projects.values() for path in paths):
        settled = {entry for entry, number in times.items() if number >= REPEATS_AN_ENTRY}
        found.append(survey(path, settled))
        times.update(found[-1].applied.keys())
    return found


def _spread(folder: Path) -> list[Path]:
    small = [
        path
        for path in files(folder)
        if path.stat().st_size <= MAX_BYTES and b"triton.jit" in path.read_bytes()
    ]
    step = -(-len(small) // FILES_A_PROJECT) or 1
    return small[::step]


def test_there_are_enough(surveys: list[Survey], projects: dict[Path, list[Path]]) -> None:
    assert sum(one.kernels for one in surveys) >= 100
    assert len([paths for paths in projects.values() if paths]) >= 5


def test_entries_keep_their_promises(surveys: list[Survey]) -> None:
    faults = [f"{one.path}: {fault}" for one in surveys for fault in one.faults]
    assert not faults, "\n".join(faults)


def test_every_entry_answers(surveys: list[Survey]) -> None:
    for one in surveys:
        if one.kernels:
            assert {*one.applied, *one.fits, *one.refused} == ENTRIES


def test_changed_kernels_compile(
    surveys: list[Survey], projects: dict[Path, list[Path]], tmp_path: Path
) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    folders = {path: folder for folder, paths in projects.items() for path in paths}
    wanted = [job for one in surveys for job in jobs(folders[one.path], one)]
    results = compile_jobs(wanted, tmp_path, COMPILE_TIMEOUT_S, COMPILES_AN_ENTRY)
    assert [r for r in results if r["outcome"] == "broken"] == []
    assert len(results) == len(wanted)
    compiled = {r["entry"] for r in results if r["outcome"] == "compiled"}
    assert len(compiled) >= 10
