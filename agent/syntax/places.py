"""Where the nodes of a tree stand in the text, as LibCST's `PositionProvider` says it.

That one counts lines and columns at every token; this one does so for the nodes it is asked about.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from types import TracebackType
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState
from libcst.metadata import CodePosition, CodeRange

NEWLINE = re.compile(r"\r\n?|\n")


class Places:
    """The places of the nodes of one module."""

    def __init__(self, module: cst.Module) -> None:
        state = _State(module.default_indent, module.default_newline)
        module._codegen(state)
        self._spans = state.spans
        self._offsets = list(accumulate(map(len, state.tokens), initial=0))
        text = "".join(state.tokens)
        self._lines = [0, *(newline.end() for newline in NEWLINE.finditer(text))]

    def __getitem__(self, node: cst.CSTNode) -> CodeRange:
        """Lines from 1, columns from 0; without the whitespace around the node."""
        start, end = self._spans[node]
        return CodeRange(self._position(start), self._position(end))

    def _position(self, token: int) -> CodePosition:
        offset = self._offsets[token]
        line = bisect_right(self._lines, offset)
        return CodePosition(line, offset - self._lines[line - 1])


class _State(CodegenState):
    """Notes at each node how many tokens were written before it and after it."""

    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(indent, newline)
        self.spans: dict[cst.CSTNode, tuple[int, int]] = {}
        self._open: list[int] = []

    def before_codegen(self, node: cst.CSTNode) -> None:  # noqa: ARG002
        self._open.append(len(self.tokens))

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._open.pop()
        if node not in self.spans:
            self.spans[node] = start, len(self.tokens)

    def record_syntactic_position(
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> Any:
        return _Recording(self, node, start_node, end_node)


class _Recording:
    def __init__(
        self,
        state: _State,
        node: cst.CSTNode,
        first: cst.CSTNode | None,
        last: cst.CSTNode | None,
    ) -> None:
        self.state, self.node, self.first, self.last = state, node, first, last
        self.start = len(state.tokens)

    def __enter__(self) -> None:
        self.start = len(self.state.tokens)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        spans = self.state.spans
        start = spans[self.first][0] if self.first is not None else self.start
        end = spans[self.last][1] if self.last is not None else len(self.state.tokens)
        spans[self.node] = start, end
