"""What a model may take over a whole run, a resumed one included."""

from __future__ import annotations

from dataclasses import dataclass

from agent.options import ModelOptions
from agent.usage import Usage

FEWEST_TOKENS = 1000
"""With fewer left no request is worth making: the shortest brief is longer."""


@dataclass(frozen=True)
class Left:
    """What a run may still take."""

    tokens: int
    """Input and output together."""
    seconds: float
    """For the next request, retries included."""
    spent: str = ""
    """Which budget is used up; empty while none is."""


def left(options: ModelOptions, usage: Usage) -> Left:
    """What remains after `usage`, which the journal knows.

    A budget can be overshot by one request: what its input takes is known when it is answered.
    """
    tokens = options.max_tokens - usage.input_tokens - usage.output_tokens
    seconds = options.request_timeout_s
    if options.time_budget_s is not None:
        seconds = min(seconds, options.time_budget_s - usage.took_s)
    return Left(max(tokens, 0), max(seconds, 0.0), _spent(options, usage, tokens, seconds))


def _spent(options: ModelOptions, usage: Usage, tokens: int, seconds: float) -> str:
    if tokens < FEWEST_TOKENS:
        used = usage.input_tokens + usage.output_tokens
        return f"the model has taken {used} of {options.max_tokens} tokens"
    if seconds <= 0:
        return f"waiting for the model has taken {usage.took_s:.0f} of {options.time_budget_s:g} s"
    if options.max_cost_usd is None:
        return ""
    if usage.cost_usd is None:
        return (
            f"the price of an answer is not known, so that the budget of "
            f"${options.max_cost_usd:g} cannot be kept"
        )
    if usage.cost_usd >= options.max_cost_usd:
        return f"the model has cost ${usage.cost_usd:.4f} of ${options.max_cost_usd:g}"
    return ""
