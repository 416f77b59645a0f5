"""Real runs with --remember, in the interpreter; what `memory` shows, exports and forgets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import COUNTED, KERNEL, tile_agent
from tests.support.repo import isolate, make_repo

SECRET = "correct-horse-battery"
ONCE = ("run", "--kernel", "double.py", "--max-iterations", "1")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("ACME_API_KEY", SECRET)


def store(tmp_path: Path) -> Path:
    return tmp_path / "state" / "memory.sqlite"


def with_secret() -> dict[str, str]:
    """The project with a secret beside the line that an optimization changes."""
    text = KERNEL.replace("BLOCK_SIZE = 256\n", f'BLOCK_SIZE = 256\nKEY = "{SECRET}"\n')
    assert text != KERNEL
    return COUNTED | {"double.py": text}


def test_a_run_is_remembered_in_another_repository_and_forgotten_on_request(
    tmp_path: Path,
) -> None:
    repo = make_repo(tmp_path, with_secret(), name="acme")
    (row,) = tile_agent(repo, *ONCE, "--json", "--remember").json["rows"][1:]
    content = store(tmp_path).read_bytes()
    for word in (SECRET, str(tmp_path), "acme", "double", "BLOCK_SIZE", "tile-agent/", "test_"):
        assert word.encode() not in content, word

    shown = tile_agent(repo, "memory", "show", "--json").json
    (kept,) = shown["judgements"]
    assert (kept["entry"], kept["status"]) == ("block-size", "keep")
    assert kept["dtypes"] == "float32"
    assert (kept["hypothesis"], kept["change"]) == ("", "")
    assert "| block-size |" in tile_agent(repo, "memory", "show").out
    known = f"block-size: kept 1 of 1 times on the same structure, {kept['gain']:+.1%}"
    known = known.replace("%", " %")
    nearer = known.replace("structure", "structure and shapes")
    assert nearer in tile_agent(repo, "history", "--kernel", "double.py").out
    assert row["optimization"].startswith("block size")

    other = make_repo(tmp_path, COUNTED | {"double.py": KERNEL.replace("y_ptr", "out")}, name="b")
    plan = tile_agent(other, "plan", "--kernel", "double.py", "--remember")
    assert f"known      {known}" in plan.out
    assert "before all that by what is remembered of kernels like this" in plan.out
    first = next(line for line in plan.out.splitlines() if line.startswith("[ 1]"))
    assert "block-size" in first
    assert "known " not in tile_agent(other, "plan", "--kernel", "double.py").out
    on_kernel = tile_agent(other, "memory", "show", "--kernel", "double.py")
    assert known in on_kernel.out

    tile_agent(other, "begin", "--kernel", "double.py", "--yes", "--remember")
    brief = tile_agent(other, "next", "--json").json["brief"]
    assert "## What is known of kernels like this one" in brief
    assert nearer in brief

    exported = tile_agent(repo, "memory", "export", "--output", "out.jsonl")
    assert exported.code == 0
    assert [json.loads(line) for line in (repo / "out.jsonl").read_text().splitlines()] == [kept]
    assert json.loads(tile_agent(repo, "memory", "export").out) == kept

    forgotten = tile_agent(repo, "memory", "forget", "--before", "2020-01-01", "--json")
    assert forgotten.json["forgotten"] == 0
    assert tile_agent(repo, "memory", "forget", "--only", "block-size").out.endswith(
        "1 judgements deleted\n"
    )
    assert tile_agent(repo, "memory", "show", "--json").json["judgements"] == []
    assert tile_agent(repo, "memory", "forget", "--all").out.endswith(": deleted\n")
    assert not store(tmp_path).exists()


def test_a_change_is_kept_without_its_secret_where_that_is_asked_for(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, with_secret())
    asked = {"TILE_AGENT_REMEMBER": "1", "TILE_AGENT_REMEMBER_SOURCE": "1"}
    assert tile_agent(repo, *ONCE, env=asked).code == ExitCode.STOPPED
    (kept,) = tile_agent(repo, "memory", "show", "--json").json["judgements"]
    assert "-BLOCK_SIZE = 256" in kept["change"]
    assert '"[secret removed]"' in kept["change"]
    assert SECRET.encode() not in store(tmp_path).read_bytes()


def test_a_broken_store_is_one_warning_and_ends_no_run(tmp_path: Path) -> None:
    files = COUNTED | {"pyproject.toml": "[tool.pytest]\n[tool.tile-agent]\nremember = true\n"}
    repo = make_repo(tmp_path, files)
    store(tmp_path).parent.mkdir()
    store(tmp_path).write_bytes(b"no database" * 1000)
    done = tile_agent(repo, *ONCE)
    assert done.code == ExitCode.STOPPED, done.err  # by its one iteration
    warnings = [line for line in done.err.splitlines() if "memory.sqlite" in line]
    (warning,) = warnings
    assert warning.startswith("warning    nothing of this run is remembered: the store ")
    assert warning.endswith("`tile-agent memory forget --all` begins a new one")
    shown = tile_agent(repo, "memory", "show")
    assert (shown.code, shown.out) == (ExitCode.USAGE, "")
    assert "is damaged" in shown.err
    plan = tile_agent(repo, "plan", "--kernel", "double.py")
    assert plan.code == 0
    assert "note       the store " in plan.out
    assert "is damaged" in tile_agent(repo, "history", "--kernel", "double.py").out
    assert tile_agent(repo, "memory", "forget", "--all").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("forget",), "say what to forget: --all, or some of --only, --gpu and --before"),
        (("forget", "--all", "--only", "exp2"), "say what to forget"),
        (("forget", "--before", "yesterday"), "write a day, as 2026-11-25"),
        (("forget", "--before", ""), "write a day, as 2026-11-25"),
        (("forget", "--only", ""), "names no optimization"),
        (("show", "--kernel", "double.py", "--only", "exp2"), "leave it out, or --kernel"),
        (("show", "--kernel", "nowhere.py"), "nowhere.py"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    refused = tile_agent(make_repo(tmp_path, COUNTED), "memory", *words)
    assert refused.code == ExitCode.USAGE
    assert said in refused.err
    assert len(refused.err.splitlines()) == 1


def test_without_a_store_there_is_nothing_to_show(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, COUNTED)
    assert tile_agent(repo, "memory", "show").out.endswith(": judged 0, kept 0\n")
    nothing = tile_agent(repo, "memory", "show", "--kernel", "double.py").out
    assert "nothing is remembered of such kernels" in nothing
    assert tile_agent(repo, "memory", "export").out == "\n"
    assert "there was none" in tile_agent(repo, "memory", "forget", "--all").out
    assert not store(tmp_path).exists()


def test_a_cloned_repository_cannot_have_source_kept(tmp_path: Path) -> None:
    setting = "[tool.tile-agent]\nremember-source = true\n"
    repo = make_repo(tmp_path, COUNTED | {"pyproject.toml": setting})
    refused = tile_agent(repo, "plan", "--kernel", "double.py")
    assert refused.code == ExitCode.USAGE
    assert "sets 'remember_source'" in refused.err
