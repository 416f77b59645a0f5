"""Which kernels a fleet works on, with which arguments, and which ones are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.fleet.home import FleetOutcome, Home, KernelStanding
from agent.fleet.jobs import KernelJob
from agent.fleet.order import known_lengths, ordered
from agent.fleet.targets import KernelRequest, ListedKernel, by_file, by_patterns, planned
from agent.options import Request
from agent.repository import Repository
from tests.fleet.project import files_of
from tests.support.repo import KERNEL, isolate, make_repo, write

FLEET = "fleet-20260102-030405"


@pytest.fixture(autouse=True)
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    made = make_repo(tmp_path, files_of("alpha", "beta") | {"src/a/ops/alpha.py": KERNEL})
    monkeypatch.chdir(made)
    return made


def kernels(found: list[ListedKernel]) -> list[str]:
    return [each.kernel.as_posix() for each in found]


def asked(*wanted: ListedKernel) -> list[KernelRequest]:
    return [
        KernelRequest(Request(each.kernel), (f"--kernel={each.kernel}",), each.by_pattern)
        for each in wanted
    ]


def test_patterns_find_python_files(repo: Path) -> None:
    write(repo, {"ops/notes.txt": ""})
    assert kernels([*by_patterns(["ops/*"])]) == ["ops/__init__.py", "ops/alpha.py", "ops/beta.py"]
    assert kernels([*by_patterns(["src/**/ops/*.py", "ops/beta.py"])]) == [
        "src/a/ops/alpha.py",
        "ops/beta.py",
    ]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [("nowhere/*.py", "names no Python file"), ("/usr/*.py", "from the current folder on")],
)
def test_a_pattern_that_finds_nothing_is_told(pattern: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        [*by_patterns([pattern])]


def test_a_toml_file_gives_kernels_options_of_their_own(repo: Path) -> None:
    text = """\
[[target]]
kernel = "ops/alpha.py"
tests = ["tests/test_alpha.py", "tests/more.py"]
max_iterations = 3
keep-going = true
counters = false

[[target]]
kernel = "ops/b*.py"
share = 0.25
"""
    write(repo, {"targets.toml": text})
    first, second = by_file(Path("targets.toml"))
    assert first.words == (
        "--tests=tests/test_alpha.py",
        "--tests=tests/more.py",
        "--max-iterations=3",
        "--keep-going",
        "--no-counters",
    )
    assert second == ListedKernel(Path("ops/beta.py"), (), by_pattern=True, share=0.25)


def test_any_other_file_has_a_kernel_a_line(repo: Path) -> None:
    text = "# two\nops/alpha.py --perf-k 'a and b'  # short\n\nops/beta.py\n"
    write(repo, {"targets.txt": text})
    assert by_file(Path("targets.txt")) == [
        ListedKernel(Path("ops/alpha.py"), ("--perf-k", "a and b")),
        ListedKernel(Path("ops/beta.py")),
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("t.toml", "[[target]]\ntests = ['a']\n", "needs its kernel"),
        ("t.toml", "[[target]\n", "cannot be read"),
        ("t.toml", "[[target]]\nkernel = 'ops/beta.py'\nshare = '40%'\n", "from 0 to 1"),
        ("t.toml", "target = 3\n", "names no target"),
        ("t.txt", "ops/alpha.py 'open\n", "No closing quotation"),
        ("t.txt", "# nothing\n", "names no target"),
    ],
)
def test_a_file_that_says_nothing_is_told(repo: Path, name: str, text: str, why: str) -> None:
    write(repo, {name: text})
    with pytest.raises(UsageError, match=why):
        by_file(Path(name))


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match="No such file"):
        by_file(Path("targets.toml"))


def test_each_kernel_becomes_a_job_with_a_branch_of_its_own(repo: Path) -> None:
    wanted = [*by_patterns(["ops/*.py"])]
    jobs, standings = planned(Repository.open(repo), FLEET, asked(*wanted), 1, "")
    assert [(job.name, job.kernel, job.backend) for job in jobs] == [
        ("alpha", "ops/alpha.py", "triton"),
        ("beta", "ops/beta.py", "triton"),
    ]
    assert jobs[0].words == ("--kernel=ops/alpha.py", f"--branch=tile-agent/{FLEET}/alpha")
    assert [each.outcome for each in standings] == [FleetOutcome.WAITING, FleetOutcome.WAITING]


def test_what_takes_most_of_the_workload_begins_first(repo: Path) -> None:
    (alpha, beta) = asked(*by_patterns(["ops/*a.py"]))
    jobs, _ = planned(Repository.open(repo), FLEET, [alpha, replace(beta, share=0.2)], 1, "")
    assert [job.name for job in jobs] == ["beta", "alpha"]


def test_of_equal_shares_the_longest_run_begins_first(repo: Path) -> None:
    """In the latest fleet that ended it; one that nobody knows may be the longest."""
    jobs = [KernelJob(n, f"ops/{n}.py", "triton", "b", (), ".", "", 1) for n in ("a", "b", "c")]
    for fleet_id, seconds in (("fleet-1", 9.0), ("fleet-2", 1.0)):
        home = Home(Repository.open(repo), fleet_id)
        for job, held_s in ((jobs[0], seconds), (jobs[1], 5.0)):
            home.write(KernelStanding(job.name, job.kernel, FleetOutcome.ENDED, held_s=held_s))
    home.write(KernelStanding("c", "ops/c.py", FleetOutcome.LOST, held_s=3.0))
    known = known_lengths(Repository.open(repo))
    assert known == {"ops/a.py": 1.0, "ops/b.py": 5.0}
    assert [job.name for job in ordered(jobs, {}, known)] == ["c", "b", "a"]
    assert [job.name for job in ordered(jobs, {"ops/a.py": 0.1}, known)] == ["a", "c", "b"]


def test_jobs_start_where_the_user_stands(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "ops")
    jobs, _ = planned(Repository.open(repo), FLEET, asked(ListedKernel(Path("beta.py"))), 0, "")
    assert (jobs[0].kernel, jobs[0].folder) == ("ops/beta.py", "ops")


def test_kernels_of_one_name_are_told_apart(repo: Path) -> None:
    wanted = [*by_patterns(["ops/alpha.py", "src/a/ops/alpha.py", "ops/beta.py"])]
    _, standings = planned(Repository.open(repo), FLEET, asked(*wanted), 1, "")
    assert [each.name for each in standings] == ["ops-alpha", "src-a-ops-alpha", "beta"]


def test_what_cannot_begin_is_a_row_and_the_others_go_on(repo: Path) -> None:
    write(repo, {"ops/alpha.py": "changed = 1\n", "ops/new.py": KERNEL})
    wanted = [*by_patterns(["ops/*.py"])]
    jobs, standings = planned(Repository.open(repo), FLEET, asked(*wanted), 1, "")
    assert [job.name for job in jobs] == ["beta"]
    reasons = {s.name: s.reason for s in standings if s.outcome is FleetOutcome.REFUSED}
    assert "uncommitted changes" in reasons["alpha"]
    assert "is not committed" in reasons["new"]


def test_a_file_without_a_kernel_is_told_where_it_was_named(repo: Path) -> None:
    _, standings = planned(
        Repository.open(repo), FLEET, asked(ListedKernel(Path("ops/__init__.py"))), 1, ""
    )
    assert [each.outcome for each in standings] == [FleetOutcome.REFUSED]


def test_a_kernel_that_is_named_twice_is_told(repo: Path) -> None:
    wanted = [*by_patterns(["ops/beta.py", "ops/b*.py"])]
    with pytest.raises(UsageError, match=r"ops/beta.py is named 2 times"):
        planned(Repository.open(repo), FLEET, asked(*wanted), 1, "")
