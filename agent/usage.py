"""What asking for a candidate took, as a sum. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    """What asking a language model, or running a program, took."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None: the price is not known."""
    took_s: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Both together; unknown where one price is."""
        unknown = self.cost_usd is None or other.cost_usd is None
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
            self.took_s + other.took_s,
        )
