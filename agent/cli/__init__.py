"""The command line: arguments in, exit code out. The only package that prints.

A command's module is imported when the command is called, and heavy modules (LibCST, pandas, scipy,
git) where they are needed, so that `--help` answers at once. torch, triton and cuda.tile never are.
"""

from agent.cli.main import main

__all__ = ["main"]
