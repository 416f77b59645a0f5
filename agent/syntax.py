"""A Python source file as a LibCST tree with resolved names. Reads; the playbook edits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider


@dataclass(frozen=True)
class Source:
    """The text of a kernel file, parsed once."""

    text: str
    path: str = "kernel.py"

    @cached_property
    def wrapper(self) -> MetadataWrapper:
        """The tree with its metadata. Raises `libcst.ParserSyntaxError`."""
        return MetadataWrapper(cst.parse_module(self.text))
