"""Defaults from `[tool.tile-agent]` of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli.config import defaults
from agent.errors import ExitCode, UsageError
from tests.support.project import tile_agent
from tests.support.repo import write


def read(folder: Path, text: str) -> dict[str, dict[str, object]]:
    write(folder, {"pyproject.toml": text})
    return defaults(folder)


def test_options_of_both_commands_with_hyphens_or_underscores(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '[tool.tile-agent]\nproposer = "playbook,model"\nmax-iterations = 7\nkeep_going = true\n',
    )
    assert found == {
        "run": {"proposer": "playbook,model", "max_iterations": 7, "keep_going": True},
        "plan": {"proposer": "playbook,model", "max_iterations": 7, "keep_going": True},
        "begin": {"max_iterations": 7, "keep_going": True},
    }


def test_the_nearest_table_counts_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[tool.tile-agent]\npatience = 1\n"})
    inner = tmp_path / "repo" / "kernels"
    write(inner, {"pyproject.toml": "[tool.other]\n"})
    assert defaults(inner)["run"] == {"patience": 1}
    (tmp_path / "repo" / ".git").mkdir()
    assert defaults(inner) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.tile-agent]\nmodle = 'x'\n", "'modle'"),
        ("[tool.tile-agent]\nyes = true\n", "'yes'"),
        ("[tool.tile-agent]\ncapture = 'sh x'\n", "'capture'"),
        ("[tool]\ntile-agent = 3\n", "no table"),
        ("[tool.tile-agent\n", "cannot be read"),
    ],
)
def test_what_is_no_option_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as problem:
        read(tmp_path, text)
    assert "\n" not in str(problem.value)


def test_the_command_line_and_the_environment_go_first(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[tool.tile-agent]\nproposer = 'oracle'\n", "k.py": ""})
    from_file = tile_agent(tmp_path, "run", "--kernel", "k.py")
    assert (from_file.code, "oracle" in from_file.err) == (ExitCode.USAGE, True)
    by_name = {"TILE_AGENT_PROPOSER": "nobody"}
    assert "nobody" in tile_agent(tmp_path, "run", "--kernel", "k.py", env=by_name).err
    given = tile_agent(tmp_path, "run", "--kernel", "k.py", "--proposer", "playbook", env=by_name)
    assert "proposer" not in given.err
