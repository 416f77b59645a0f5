"""A Python that has imported torch and Triton already, and runs each script in a fork of itself.

Importing the two takes three seconds, a small kernel in the interpreter a tenth of one.
Run as a script, this file is that process: it takes a job a line and answers with its exit code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any


def run_python(
    script: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What `python -c script arguments` gives.

    Args:
        script: the text of a program.
        arguments: its `sys.argv[1:]`.
        environment: what is set before torch and Triton are imported; one process each is kept.
    """
    return _warm(tuple(sorted(environment.items()))).run(script, arguments)


@cache
def _warm(environment: tuple[tuple[str, str], ...]) -> _Warm:
    return _Warm(dict(environment))


class _Warm:
    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,  # closed when the tests end, which ends the process
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def run(self, script: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            job = {"script": script, "argv": ["-c", *arguments], "out": str(out), "err": str(err)}
            job["cwd"] = str(Path.cwd())
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            code = json.loads(self.process.stdout.readline())
            return subprocess.CompletedProcess(script, code, out.read_text(), err.read_text())


def serve() -> None:
    """Fork for each job, and wait for it."""
    import torch  # noqa: F401
    import triton  # noqa: F401

    for line in sys.stdin:
        if (child := os.fork()) == 0:
            do(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def do(job: dict[str, Any]) -> None:
    """Run a job in this process, and end it."""
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(job[name], os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["cwd"])
    sys.argv = job["argv"]
    code = 0
    try:
        exec(compile(job["script"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
