"""A repository with several kernels, each with tests that count and do not clock."""

from __future__ import annotations

from tests.support.project import COUNTED


def files_of(*names: str) -> dict[str, str]:
    """Files of a repository with a kernel `ops/NAME.py` for each name."""
    files = {"ops/__init__.py": "", "pyproject.toml": COUNTED["pyproject.toml"]}
    for name in names:
        test = COUNTED["tests/test_double.py"].replace("from double", f"from ops.{name}")
        files[f"ops/{name}.py"] = COUNTED["double.py"].replace("double", name)
        files[f"tests/test_{name}.py"] = test.replace("double", name)
    return files
