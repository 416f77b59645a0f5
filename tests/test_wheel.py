"""The built wheel is complete: prompts, skills, the plugin, and a command that works without us."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from agent.skillbook import SHIPPED
from agent.skillbook.references import CONTENTS

ROOT = Path(__file__).parent.parent
USE = """
import sys
sys.path.insert(0, sys.argv[1])
import agent.prompting, agent.cli, tile_agent_pytest
assert agent.__file__.startswith(sys.argv[1]), agent.__file__
template = agent.prompting._environment().get_template("summary.md.j2")
assert template.filename.startswith(sys.argv[1]), template.filename
sys.argv = ["tile-agent", "playbook", "list"]
agent.cli.main()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_what_the_checkout_holds(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "agent", "tile_agent_pytest", "prompts"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    wanted = {f"agent/_{path}" if path.startswith("prompts/") else path for path in listed}
    assert wanted - held == set()
    skills = {path for path in held if path.startswith("agent/skills/")}
    assert {path.split("/")[2] for path in skills if path.endswith("/SKILL.md")} == set(CONTENTS)
    on_disk = {str(p.relative_to(ROOT)) for p in SHIPPED.rglob("*") if p.is_file()}
    assert skills == on_disk


def test_the_wheel_works_where_there_is_no_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    done = subprocess.run(
        [sys.executable, "-c", USE, str(site)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "occupancy-hint" in done.stdout


def test_hatch_is_told_to_pack_the_skills() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    assert "agent" in wheel["packages"]
    assert not {"exclude", "only-include"} & {*wheel, *build}
    assert "/agent" in build["targets"]["sdist"]["include"]
    ignored = subprocess.run(  # hatch leaves out what git ignores
        ["git", "check-ignore", "--quiet", "--no-index", *map(str, SHIPPED.rglob("*.md"))],
        cwd=ROOT,
        check=False,
    )
    assert ignored.returncode != 0
