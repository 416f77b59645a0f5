"""What the translation of a file gathers on its way: helpers it needs, notes, calls of helpers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import libcst as cst

from agent.porting.prelude import HELPERS
from agent.porting.refusal import NotPortable, refusal
from agent.porting.values import Value
from agent.syntax import Function, Source, descendants

TL = "triton.language."
MATH = tuple(
    f"{TL}{module}"
    for module in ("math.", "libdevice.", "extra.libdevice.", "extra.cuda.libdevice.")
)
"""Modules of Triton whose functions go by their last name."""


@dataclass
class Context:
    """The file being ported.

    Attributes:
        source: it.
        tile: what the port calls cuda.tile.
        notes: what the reader of the port should know -> the lines it is about.
        calls: helper of the file -> the arguments of each call of it that was read.
        uses_math: the port needs Python's `math`.
    """

    source: Source
    tile: str
    torch: str
    notes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[Function, list[tuple[Value, ...]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    uses_math: bool = False
    helpers: dict[str, str] = field(default_factory=dict)
    """Function of the prelude -> its name in the port."""

    @classmethod
    def of(cls, source: Source) -> Context:
        """The context of a file, with names that the file does not use otherwise."""
        taken = names_of(source)
        tile = next(name for name in ("ct", "cutile", "cuda_tile") if name not in taken)
        return cls(source, tile, "torch")

    def helper(self, name: str) -> str:
        """The name of a function of the prelude in the port, which gets it."""
        if name not in self.helpers:
            taken = names_of(self.source)
            free = name
            while free in taken:
                free += "_"
            for other in HELPERS[name].needs:
                self.helper(other)
            self.helpers[name] = free
        return self.helpers[name]

    def note(self, node: cst.CSTNode, text: str) -> None:
        """Something that the reader of the port should know."""
        line = self.source.line(node)
        if line not in self.notes[text]:
            self.notes[text].append(line)

    def refuse(
        self, node: cst.CSTNode, construct: str, advice: str, detail: str = ""
    ) -> NotPortable:
        """The refusal of a place of the file."""
        return refusal(self.source, node, construct, advice, detail=detail)

    def called(self, node: cst.BaseExpression) -> str | None:
        """The name of what a call calls: 'triton.language.exp', '.exp' of a module of Triton's."""
        named = self.source.name(node)
        if named is None:
            return None
        for module in MATH:
            if named.startswith(module):
                return f"{TL}{named.removeprefix(module)}"
        return named.removeprefix("builtins.")


def names_of(source: Source) -> frozenset[str]:
    """The names that a file gives to something or reads: no attributes, no keywords."""
    module = source.module
    inner = {a.attr for a in descendants(module, cst.Attribute)}
    inner |= {a.keyword for a in descendants(module, cst.Arg) if a.keyword is not None}
    return frozenset(n.value for n in descendants(module, cst.Name) if n not in inner)
