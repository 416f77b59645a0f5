"""Code on one line."""

from __future__ import annotations

from typing import Any

import libcst as cst


class OnOneLine(cst.CSTTransformer):
    """Leaves out comments, and backslashes that continue a line."""

    def leave_SimpleWhitespace(self, _: Any, updated: cst.SimpleWhitespace) -> Any:  # noqa: N802
        """A space in place of a line that goes on."""
        return cst.SimpleWhitespace(" ") if "\\" in updated.value else updated

    def leave_TrailingWhitespace(  # noqa: N802
        self, _: cst.TrailingWhitespace, updated_node: cst.TrailingWhitespace
    ) -> cst.TrailingWhitespace:
        """Without the comment behind a line."""
        return updated_node.with_changes(comment=None)

    def leave_EmptyLine(self, _: cst.EmptyLine, updated_node: cst.EmptyLine) -> cst.EmptyLine:  # noqa: N802
        """Without a comment on a line of its own."""
        return updated_node.with_changes(comment=None)
