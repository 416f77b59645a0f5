"""Real git repositories for tests, and a record of every byte in one."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets))


def softmax(x):
    softmax_kernel[(1,)](x, BLOCK=128)
    return x
"""
TEST = "from kernels.softmax import softmax\n\n\ndef test_softmax():\n    assert softmax\n"
FILES = {"kernels/__init__.py": "", "kernels/softmax.py": KERNEL, "tests/test_softmax.py": TEST}


def isolate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep this machine's git configuration out of a test, and the test out of its home."""
    for name, value in isolated(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONPATH", raising=False)


def isolated(folder: Path) -> dict[str, str]:
    """The variables that do so."""
    return {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(folder / "home"),
        "TILE_AGENT_STATE_DIR": str(folder / "state"),
    }


def git(repo: Path, *args: str) -> str:
    """Run git as the user would, and give its output."""
    command = ["git", "-C", str(repo), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(repo: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files under the repository, byte for byte."""
    for name, content in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_repo(
    tmp_path: Path,
    files: Mapping[str, str | bytes] = FILES,
    *,
    name: str = "repo",
    config: Mapping[str, str] | None = None,
    executable: Collection[str] = (),
) -> Path:
    """A repository with one commit of `files`; `config` is set before the commit is made."""
    repo = tmp_path / name
    repo.mkdir(parents=True)
    git(repo, "init", "--quiet", "--initial-branch=main")
    settings = {"user.name": "Ada", "user.email": "ada@example.com", **(config or {})}
    with (repo / ".git" / "config").open("a", encoding="utf-8") as file:
        file.writelines(_setting(key, value) for key, value in settings.items())
    write(repo, files)
    for path in executable:
        (repo / path).chmod(0o755)
    git(repo, "add", "--all", "--force")
    quick = ("-c", "maintenance.auto=false")  # which is a process of its own, with nothing to do
    git(repo, *quick, "commit", "--quiet", "--no-gpg-sign", "--message", "First")
    return repo


def _setting(key: str, value: str) -> str:
    """As `git config` writes it, without a process of its own: 'remote.origin.url' has a middle."""
    section, _, name = key.rpartition(".")
    top, _, middle = section.partition(".")
    head = f'{top} "{middle}"' if middle else top
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'[{head}]\n\t{name} = "{escaped}"\n'


def snapshot(repo: Path) -> dict[str, Any]:
    """Every byte of the user's: the checkout with ignored files, and what git keeps for them."""
    found: dict[str, Any] = {}
    for folder, folders, names in os.walk(repo):
        if ".git" in folders:
            folders.remove(".git")
        for path in (Path(folder) / name for name in (*folders, *names)):
            key = str(path.relative_to(repo))
            info = path.lstat()
            if stat.S_ISDIR(info.st_mode):
                found[key] = (info.st_mode,)
            elif stat.S_ISLNK(info.st_mode):
                found[key] = (info.st_mode, info.st_mtime_ns, str(path.readlink()))
            else:
                found[key] = (info.st_mode, info.st_mtime_ns, path.read_bytes())
    names = ("HEAD", "index", "config", "info/exclude", "ORIG_HEAD", "logs/HEAD", "hooks")
    asked = (word for name in names for word in ("--git-path", name))
    *files, hooks = (repo / path for path in git(repo, "rev-parse", *asked).splitlines())
    for name, path in zip(names, files, strict=False):
        found[f"git {name}"] = path.read_bytes() if path.exists() else None
    found["git hooks"] = {p.name: (p.stat().st_mode, p.read_bytes()) for p in hooks.glob("*")}
    for line in git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines():
        ref, sha = line.split(" ")
        found[ref] = sha
    found["git stash"] = git(repo, "stash", "list") if "refs/stash" in found else ""
    found["git worktrees"] = git(repo, "worktree", "list", "--porcelain")
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """The keys of two snapshots that differ."""
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
