"""What a shell offers for a value: kernels and runs of the repository, entries of the playbook.

Where nothing is offered, a shell offers files of its own accord.
"""

from __future__ import annotations

import os
from pathlib import Path

DECORATED = r"^[[:space:]]*@([a-z_.]+\.)?(jit|kernel)\b"
"""A line that files with a kernel have, for `git grep`."""


def kernels(incomplete: str) -> list[str]:
    """Files of the repository that seem to hold a kernel, as seen from here."""
    from agent.errors import TileAgentError
    from agent.repository import Repository

    try:
        repository = Repository.open(Path.cwd())
    except TileAgentError:
        return []
    query = ("grep", "-l", "-z", "--untracked", "-E", "-e", DECORATED, "--", "*.py")
    found = repository.ask(*query).out.split(b"\0")
    paths = (os.path.relpath(repository.root / os.fsdecode(path)) for path in found if path)
    return _beginning(incomplete, sorted(paths))


def runs(incomplete: str) -> list[str]:
    """Ids of the repository's runs, the newest first."""
    from agent.errors import TileAgentError
    from agent.repository import Repository
    from agent.runs import find_runs

    try:
        return _beginning(incomplete, [*reversed(find_runs(Repository.open(Path.cwd())))])
    except TileAgentError:
        return []


def optimizations(incomplete: str) -> list[str]:
    """Names of the playbook's entries: those of their files, which takes no time to find out."""
    folder = Path(__file__).parents[1] / "playbook"
    files = (path for language in ("cutile", "triton") for path in (folder / language).glob("*.py"))
    names = sorted({path.stem.replace("_", "-") for path in files if path.stem != "__init__"})
    return _beginning(incomplete, names)


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
