"""Runs tile-agent as a child that ends when its parent does, however the parent ends.

A file to run, not a module to import. The kernel sends SIGINT when the server is gone, even after a
SIGKILL, so that a run nobody waits for any more stops cleanly and can be resumed.
"""

import ctypes
import runpy
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    sys.path.insert(0, str(Path(__file__).parents[2]))  # this tile-agent, and no other
    runpy.run_module("agent", run_name="__main__", alter_sys=True)
