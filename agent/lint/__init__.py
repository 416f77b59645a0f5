"""Checks of a cuTile kernel file that need its source and nothing else.

To add one, write a function under `check` in a file of `agent/lint/checks`.
"""

from agent.lint.base import Check, Finding, Severity
from agent.lint.run import CHECKS, Report, lint

__all__ = ["CHECKS", "Check", "Finding", "Report", "Severity", "lint"]
