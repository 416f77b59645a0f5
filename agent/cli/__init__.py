"""The command line: arguments in, exit code out. The only package that prints.

Heavy modules (torch, triton and cuda.tile always; LibCST, pandas and git too) are imported inside
the commands that need them, so that `--help` answers at once.
"""

from agent.cli.main import main

__all__ = ["main"]
