"""Installing, upgrading and removing skills: what is ours follows, what is the user's stays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.skillbook import SHIPPED
from agent.skillbook import install as skills
from agent.skillbook.assistants import Scope, folders
from agent.skillbook.install import MANIFEST, State, install, remove, standing
from tests.support.project import Outcome, tile_agent
from tests.support.repo import isolate, make_repo, snapshot, write

NAME = "demo"
V1 = {
    f"{NAME}/SKILL.md": "one\n",
    f"{NAME}/references/a.md": "a\n",
    f"{NAME}/references/old.md": "old\n",
}
V2 = {
    f"{NAME}/SKILL.md": "two\n",
    f"{NAME}/references/a.md": "a\n",
    f"{NAME}/scripts/new.py": "1\n",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".claude" / "skills"


@pytest.fixture
def v1(tmp_path: Path) -> Path:
    write(tmp_path / "v1", V1)
    return tmp_path / "v1" / NAME


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    write(tmp_path / "v2", V2)
    return tmp_path / "v2" / NAME


def held(folder: Path) -> dict[str, str]:
    """Every file below a folder but manifests, and where links lead."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        for path in folder.rglob("*")
        if path.name != MANIFEST and (path.is_symlink() or path.is_file())
    }


def refused(source: Path, home: Path, message: str) -> None:
    """Refused in one line, and not a byte is touched."""
    before = held(home.parent)
    with pytest.raises(UsageError, match=message) as raised:
        install(source, home)
    assert "\n" not in str(raised.value)
    assert held(home.parent) == before


# --- what is ours -------------------------------------------------------------------------------


def test_install_twice_and_remove(home: Path, v1: Path) -> None:
    assert install(v1, home).action == "installed"
    assert held(home) == V1
    first = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    assert install(v1, home).action == "unchanged"
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == first
    assert remove(home, NAME).action == "removed"
    assert not home.parent.exists()


def test_remove_leaves_the_skills_of_others(home: Path, v1: Path) -> None:
    other = {"other/SKILL.md": "mine\n"}
    write(home, other)
    install(v1, home)
    remove(home, NAME)
    assert held(home) == other


def test_upgrade(home: Path, v1: Path, v2: Path) -> None:
    install(v1, home)
    assert standing(home, NAME, v2).state is State.OUTDATED
    assert install(v2, home).action == "upgraded"
    assert held(home) == V2
    assert standing(home, NAME, v2).state is State.CURRENT
    assert install(v1, home).action == "upgraded"  # and down again
    assert held(home) == V1


def test_a_deleted_file_comes_back(home: Path, v1: Path) -> None:
    install(v1, home)
    (home / NAME / "references" / "a.md").unlink()
    assert install(v1, home).action == "upgraded"
    assert held(home) == V1


@pytest.mark.parametrize("writes", range(3))
def test_an_upgrade_that_was_cut_off_is_taken_up(
    home: Path, v1: Path, v2: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(v1, home)
    whole = skills._write
    left = [writes]

    def cut_off(path: Path, content: bytes) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        whole(path, content)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(skills, "_write", cut_off)
        install(v2, home)
    assert install(v2, home).action == "upgraded"
    assert held(home) == V2
    assert {p.name for p in home.iterdir()} == {NAME}


def test_an_installation_that_was_cut_off_leaves_nothing(
    home: Path, v1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(_path: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", cut_off)
        install(v1, home)
    assert list(home.iterdir()) == []


# --- what is the user's -------------------------------------------------------------------------


def test_a_file_that_was_changed(home: Path, v1: Path, v2: Path) -> None:
    install(v1, home)
    write(home, {f"{NAME}/SKILL.md": "mine\n"})
    refused(v2, home, r"SKILL\.md was changed there; it is left alone\. --force .*skills\.replaced")
    refused(v1, home, "was changed there")
    with pytest.raises(UsageError, match="was changed there"):
        remove(home, NAME)
    change = install(v2, home, force=True)
    assert change.kept == home.parent / "skills.replaced" / f"{NAME}-1"
    assert held(home) == V2
    assert held(change.kept) == {p.removeprefix(f"{NAME}/"): t for p, t in V1.items()} | {
        "SKILL.md": "mine\n"
    }


def test_a_change_that_the_new_version_makes_too_is_no_change(
    home: Path, v1: Path, v2: Path
) -> None:
    install(v1, home)
    write(home, {f"{NAME}/SKILL.md": "two\n"})
    assert install(v2, home).action == "upgraded"


def test_files_of_the_user_stay(home: Path, v1: Path, v2: Path) -> None:
    install(v1, home)
    mine = {f"{NAME}/notes.md": "mine\n", f"{NAME}/references/mine.md": "too\n"}
    write(home, mine)
    (home / NAME / "empty").mkdir()
    change = install(v2, home)
    assert (change.action, change.left) == ("upgraded", ("notes.md", "references/mine.md"))
    assert held(home) == V2 | mine
    change = remove(home, NAME)
    assert change.left == ("notes.md", "references/mine.md")
    assert held(home) == mine
    assert not (home / NAME / MANIFEST).exists()
    assert (home / NAME / "empty").is_dir()
    assert not (home / NAME / "scripts").exists()


def test_a_new_file_where_the_user_has_one(home: Path, v1: Path, v2: Path) -> None:
    install(v1, home)
    write(home, {f"{NAME}/scripts/new.py": "mine\n"})
    refused(v2, home, r"scripts/new\.py was changed there")


def test_a_foreign_folder_of_the_same_name(home: Path, v1: Path) -> None:
    write(home, {f"{NAME}/SKILL.md": "another\n"})
    refused(v1, home, "tile-agent did not install it; it is left alone")
    with pytest.raises(UsageError, match="did not install it; nothing removed"):
        remove(home, NAME, force=True)
    change = install(v1, home, force=True)
    assert change.kept is not None
    assert held(change.kept) == {"SKILL.md": "another\n"}
    write(home, {f"{NAME}/SKILL.md": "changed\n"})
    second = install(v1, home, force=True)
    assert second.kept == change.kept.with_name(f"{NAME}-2")


def test_a_link_in_place_of_the_folder(home: Path, v1: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, {"SKILL.md": "mine\n"})
    home.mkdir(parents=True)
    (home / NAME).symlink_to(elsewhere)
    refused(v1, home, f"it is a link to {elsewhere}")
    change = install(v1, home, force=True)
    assert change.kept is not None
    assert change.kept.readlink() == elsewhere
    assert held(elsewhere) == {"SKILL.md": "mine\n"}
    assert held(home) == V1


def test_a_link_that_leads_nowhere_and_a_file(home: Path, v1: Path, tmp_path: Path) -> None:
    home.mkdir(parents=True)
    (home / NAME).symlink_to(tmp_path / "nowhere")
    refused(v1, home, "it is a link to")
    (home / NAME).unlink()
    (home / NAME).write_text("x")
    refused(v1, home, "it is a file")


@pytest.mark.parametrize("inside", ["SKILL.md", "references"])
def test_links_inside_are_never_written_through(
    home: Path, v1: Path, v2: Path, tmp_path: Path, inside: str
) -> None:
    install(v1, home)
    moved = tmp_path / "moved"
    (home / NAME / inside).rename(moved)
    (home / NAME / inside).symlink_to(moved)
    if moved.is_dir():
        (moved / "a.md").unlink()  # missing: an upgrade would write it anew
    before = held(tmp_path)
    refused(v2, home, "changed there")
    with pytest.raises(UsageError, match="changed there"):
        remove(home, NAME)
    assert held(tmp_path) == before


def test_a_linked_skills_folder_is_the_users_arrangement(
    home: Path, v1: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    home.parent.mkdir(parents=True)
    home.symlink_to(shared)
    assert install(v1, home).action == "installed"
    assert held(shared) == V1
    assert home.is_symlink()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"files": []}', '{"files": {"../mine": "x"}}', '{"files": {"/etc/x": "x"}}'],
)
def test_a_manifest_that_cannot_be_ours(home: Path, v1: Path, text: str) -> None:
    install(v1, home)
    write(home, {f"{NAME}/{MANIFEST}": text, "mine": "mine\n"})
    refused(v1, home, "tile-agent did not install it")
    with pytest.raises(UsageError, match="nothing removed"):
        remove(home, NAME)
    assert held(home) == V1 | {"mine": "mine\n"}


def test_a_folder_that_cannot_be_written(home: Path, v1: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("a file where the folder should be")
    with pytest.raises(
        UsageError, match=r"cannot use .*: .*; mend that, or name another"
    ) as raised:
        install(v1, home)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(home: Path, v1: Path, v2: Path) -> None:
    install(v1, home)
    home.chmod(0o555)
    (home / NAME).chmod(0o555)
    try:
        for work in (lambda: install(v2, home), lambda: remove(home, NAME)):
            with pytest.raises(UsageError, match="Permission denied"):
                work()
        assert held(home) == V1
    finally:
        home.chmod(0o755)
        (home / NAME).chmod(0o755)


# --- the folders of assistants ------------------------------------------------------------------


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    found = folders(["all"], Scope.PROJECT, Path("/p"))
    assert {str(folder): names for folder, names in found.items()} == {
        "/p/.claude/skills": ("claude",),
        "/p/.agents/skills": ("codex", "gemini", "copilot", "opencode"),
        "/p/.cursor/skills": ("cursor",),
    }
    assert set(folders(["cursor", "codex", "cursor"], Scope.USER, Path("/p"))) == {
        tmp_path / ".cursor/skills",
        tmp_path / ".agents/skills",
    }
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "c"))
    assert set(folders(["claude"], Scope.USER, Path("/p"))) == {tmp_path / "c/skills"}
    assert set(folders(["claude"], Scope.PROJECT, Path("/p"))) == {Path("/p/.claude/skills")}
    with pytest.raises(UsageError, match="no assistant is called 'emacs': choose from claude"):
        folders(["emacs"], Scope.USER, Path("/p"))


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return make_repo(tmp_path)


def skill(folder: Path, *arguments: str) -> Outcome:
    return tile_agent(folder, "skill", *arguments, "--json")


def test_for_all_in_the_project_and_out_again(repo: Path) -> None:
    before = snapshot(repo)
    below = repo / "kernels"
    done = skill(below, "install", "--for", "all", "--project")
    assert done.code == 0
    assert {c["action"] for c in done.json["changes"]} == {"installed"}
    names = {path.parent.name for path in SHIPPED.glob("*/SKILL.md")}
    for folder in (".claude/skills", ".agents/skills", ".cursor/skills"):
        assert {path.name for path in (repo / folder).iterdir()} == names
    listed = skill(repo, "list", "--project").json["skills"]
    assert {s["skill"] for s in listed} == names
    assert {place["state"] for s in listed for place in s["installed"]} == {"current"}
    again = skill(repo, "install", "--for", "all", "--project")
    assert {c["action"] for c in again.json["changes"]} == {"unchanged"}
    assert skill(repo, "remove", "--project").code == 0
    assert snapshot(repo) == before


def test_a_list_names_the_places_of_the_user_and_of_the_project(repo: Path, tmp_path: Path) -> None:
    def states(folder: Path, *arguments: str) -> dict[str, str]:
        listed = skill(folder, "list", *arguments).json["skills"][0]["installed"]
        return {str(Path(s["folder"]).parent.relative_to(tmp_path)): s["state"] for s in listed}

    skill(repo, "install", "--for", "claude", "--project")
    users = {f"home/{kind}/skills": "absent" for kind in (".claude", ".agents", ".cursor")}
    projects = {f"repo/{kind}/skills": "absent" for kind in (".agents", ".cursor")}
    projects["repo/.claude/skills"] = "current"
    assert states(repo) == users | projects
    assert states(repo, "--user") == users
    assert states(repo, "--project") == projects
    assert states(tmp_path) == users  # no repository: no project


def test_nothing_is_written_anywhere_if_one_place_is_taken(repo: Path, tmp_path: Path) -> None:
    name = next(SHIPPED.glob("*/SKILL.md")).parent.name
    home = tmp_path / "home"
    write(home, {f".cursor/skills/{name}/SKILL.md": "mine\n"})
    done = skill(repo, "install", name, "--for", "claude", "--for", "cursor")
    assert (done.code, done.json["exit_code"]) == (2, 2)
    assert "tile-agent did not install it; it is left alone. --force" in done.json["error"]
    assert not (home / ".claude").exists()
    assert skill(repo, "remove").json == {"changes": []}  # what is foreign is passed by
    forced = skill(repo, "install", name, "--for", "cursor", "--force")
    (change,) = forced.json["changes"]
    assert Path(change["kept"], "SKILL.md").read_text() == "mine\n"


def test_one_skill_in_another_folder(repo: Path, tmp_path: Path) -> None:
    name = next(SHIPPED.glob("*/SKILL.md")).parent.name
    to = tmp_path / "other"
    assert skill(repo, "install", name, "--to", str(to)).code == 0
    assert {path.name for path in to.iterdir()} == {name}
    assert json.loads((to / name / MANIFEST).read_text())["files"].keys() == held(to / name).keys()
    assert skill(repo, "remove", name, "--to", str(to)).code == 0
    gone = skill(repo, "remove", name, "--to", str(to))
    assert gone.json["error"] == f"tile-agent has not installed {name} in {to}"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("install",), "for whom? --for claude"),
        (("install", "--for", "emacs"), "no assistant is called 'emacs'"),
        (("install", "nothing", "--for", "claude"), "no skill is called 'nothing': choose from"),
    ],
)
def test_wrong_calls(repo: Path, arguments: tuple[str, ...], error: str) -> None:
    done = skill(repo, *arguments)
    assert done.code == 2
    assert done.json["error"].startswith(error)
