"""Where people and programs keep secrets on disk: what a confined worker may not read."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

IN_A_HOME = (
    # keys and logins of systems
    ".ssh", ".gnupg", ".netrc", "_netrc", ".password-store", ".local/share/keyrings",
    # clouds and clusters
    ".aws", ".azure", ".config/gcloud", ".boto", ".s3cfg", ".config/rclone", ".kube", ".docker",
    ".terraform.d", ".vault-token", ".oci", ".ngc", ".config/ngc",
    # code and packages
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli",
    ".config/github-copilot", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".pip", ".config/pip",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml",
    # models and data
    ".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle",
    ".config/wandb", ".config/openai", ".claude/.credentials.json", ".claude.json",
    ".codex/auth.json", ".gemini/oauth_creds.json", ".pgpass", ".my.cnf",
    # browsers, and what was typed
    ".mozilla", ".config/google-chrome", ".config/chromium", ".bash_history", ".zsh_history",
    ".python_history", ".psql_history", ".mysql_history", ".env", ".envrc",
)  # fmt: skip
"""Below the home folder of a user."""
OF_THE_MACHINE = ("etc/shadow", "etc/gshadow", "etc/ssh", "etc/krb5.keytab", "run/secrets")
"""Below the root. The kernel's own, such as /dev/mem, are out of reach anyway."""
PATTERNS = ("tmp/krb5cc*",)


def places() -> Iterator[Path]:
    """Those that are there, with what a link among them leads to."""
    found = [home / name for home in homes() for name in IN_A_HOME]
    root = Path("/")
    found += [root / name for name in OF_THE_MACHINE]
    found += [path for pattern in PATTERNS for path in root.glob(pattern)]
    for path in found:
        if os.path.lexists(path):
            yield Path(os.path.realpath(path))
            yield Path(os.path.realpath(path.parent)) / path.name


def homes() -> set[Path]:
    """The home folders that this process could read: its user's, and root may read all."""
    found = {Path("/root")}
    if home := os.environ.get("HOME"):
        found.add(Path(home))
    with contextlib.suppress(KeyError):  # a container's user may be nobody that the system knows
        found.add(Path(pwd.getpwuid(os.getuid()).pw_dir))
    with contextlib.suppress(OSError):
        found.update(Path("/home").iterdir())
    return found
