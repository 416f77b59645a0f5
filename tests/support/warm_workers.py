"""An interpreter that starts a fork server as a fork of a process that has made its imports.

A fork server imports torch and Triton, which takes three seconds, and every command that runs
tests starts one. Handed a fork server, this interpreter asks for a fork of a process that waits
with the imports made; handed anything else, or where Triton compiles, it is the tests' own Python.
Run as a script, this file is the process that waits.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NoReturn

import tile_agent_pytest
from tile_agent_pytest import fork_server

MOST_BYTES = 2**20
PYTHON = """\
#!{python} -IS
import json, os, socket, sys

arguments = sys.argv[1:]
is_fork_server = arguments[:1] == [{package!r}] and arguments[1].isdigit()
if is_fork_server and os.environ.get("TRITON_INTERPRET") == "1":
    warm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        warm.connect({address!r})
    except OSError:  # the tests are over, and somebody goes on with their run
        pass
    else:
        control = int(arguments[1])
        job = json.dumps({{"environment": dict(os.environ), "cwd": os.getcwd()}})
        socket.send_fds(warm, [job.encode()], [0, 1, 2, control])
        os.close(control)
        sys.exit(len(warm.recv(1)))  # it hangs up when it ends
os.execv({python!r}, [{python!r}, *arguments])
"""


@cache
def python_of_workers() -> str:
    """The path of that interpreter; the process behind it ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="tile-agent-tests-"))
    address, python = folder / "socket", folder / "python"
    waiting = subprocess.Popen(
        [sys.executable, __file__, str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    _kept.append(waiting)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == b"ready\n"
    package = str(Path(tile_agent_pytest.__file__).parent)
    text = PYTHON.format(python=sys.executable, package=package, address=str(address))
    python.write_text(text, encoding="utf-8")
    python.chmod(0o755)
    return str(python)


_kept: list[subprocess.Popen[bytes]] = []
"""Their pipes are open as long as this process lives."""


def wait(address: str) -> None:
    """Make the imports, and fork for everyone who calls."""
    sys.path.pop(0)  # the folder of this file, put there because it was run by path
    fork_server._preload()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    while select.select([listener, 0], [], [])[0] != [0]:  # nothing comes there but its end
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            serve(caller)
        caller.close()
        while _reaped():
            pass


def serve(caller: socket.socket) -> NoReturn:
    """Be the fork server that the caller was to be."""
    data, (stdin, stdout, stderr, control), _, _ = socket.recv_fds(caller, MOST_BYTES, 4)
    for number, file in enumerate((stdin, stdout, stderr)):
        os.dup2(file, number)
        os.close(file)
    job = json.loads(data)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    fork_server.serve(control)
    os._exit(0)


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


if __name__ == "__main__":
    wait(sys.argv[1])
