"""Why entries do not apply, in words for who reads many of them."""

from __future__ import annotations

_INTERPRETER = "Triton's interpreter "
WITHOUT_GPU = f"{_INTERPRETER}has nothing of what that changes: it takes a GPU"


def in_brief(reason: str) -> str:
    """The reason, or the one for all that only a GPU can show."""
    return WITHOUT_GPU if reason.startswith(_INTERPRETER) else reason
