"""A Python source file as a LibCST tree whose names are resolved: reading it and editing it."""

from agent.syntax.edit import Edits, append_keyword, edited, keyword, setting, with_keyword
from agent.syntax.integers import integer_of
from agent.syntax.source import Function, Literal, Source, Untraceable
from agent.syntax.tree import (
    argument,
    assigned,
    assigned_each,
    children,
    descendants,
    is_commented,
    names_in,
    positional,
)

__all__ = [
    "Edits",
    "Function",
    "Literal",
    "Source",
    "Untraceable",
    "append_keyword",
    "argument",
    "assigned",
    "assigned_each",
    "children",
    "descendants",
    "edited",
    "integer_of",
    "is_commented",
    "keyword",
    "names_in",
    "positional",
    "setting",
    "with_keyword",
]
