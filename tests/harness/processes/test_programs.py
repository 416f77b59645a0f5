"""What the kernel's file starts is told, and what others start is not laid at its door."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness.processes.fork_server import ForkServer
from tests.support.workers import Project

ANSWER = "\n\ndef answer():\n    return 42\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("import torch; torch.os.system('true')", "os.system"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import os; os.fork() or os._exit(0)", "os.fork"),
        (
            "import multiprocessing as m; p = m.get_context('fork').Process(target=print); "
            "p.start(); p.join()",
            "os.fork",
        ),
    ],
)
def test_what_a_kernel_file_starts(
    project: Project, server: ForkServer, line: str, event: str
) -> None:
    project.write("kernel.py", line + ANSWER)
    assert event in project.run(server).programs


def test_what_a_test_or_a_compiler_starts_is_not_the_kernel_file_s(
    project: Project, server: ForkServer
) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    starts = "from triton.backends.nvidia.compiler import get_ptxas_version; get_ptxas_version()"
    project.write("kernel.py", starts + ANSWER)
    project.write(
        "test_kernel.py",
        "import os\nfrom kernel import answer\n\n\n"
        "def test_answer():\n    os.system('true')\n    assert answer() == 42\n",
    )
    assert project.run(server).programs == ()
