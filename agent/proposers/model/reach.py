"""Whether the model answers at all, asked before a run takes its baseline.

A wrong key, name or URL would otherwise be told after minutes of measuring.
"""

from __future__ import annotations

import os

import httpx2
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ContentFilterError
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agent.options import ModelOptions
from agent.proposers.model.client import model_of
from agent.proposers.model.conversation import reason_of, takes_no_stream
from agent.proposers.model.transport import Network, Transport
from agent.proposers.model.waiting import wait_for
from agent.redaction import redact

QUESTION = "Are you ready to work on GPU kernels? Answer with one word."
BACKOFF_S = 0.2
"""Somebody waits for the command to begin."""


def unreachable(options: ModelOptions) -> str:
    """Why the model answers nothing, not even the shortest question; empty where it does.

    Nothing is recorded: there is no run yet.
    """
    limit_s = options.request_timeout_s
    try:
        reason = wait_for(lambda: _unreachable(options, limit_s), 2 * limit_s + 5.0)
    except TimeoutError:
        reason = "the model does not answer"
    return redact(reason, os.environ)


async def _unreachable(options: ModelOptions, limit_s: float) -> str:
    transport = Transport(Network(), None, limit_s, BACKOFF_S)
    settings = ModelSettings(max_retries=0, timeout=limit_s)
    reason = ""
    async with httpx2.AsyncClient(transport=transport, timeout=None) as http:
        model = model_of(options, http)
        for streams in (True, False):
            try:
                await _ask(model, settings, streams=streams)
            except ContentFilterError:  # it declines one question: another may be answered
                return ""
            # A server may answer anything, and the library raises anything for it.
            except Exception as problem:
                reason, _ = reason_of(problem, transport, ())
                if not takes_no_stream(problem, transport):
                    break
            else:
                return ""
    return reason


async def _ask(model: Model, settings: ModelSettings, *, streams: bool) -> None:
    """Ask as a run does, and take whatever is said for an answer."""
    asked = [ModelRequest.user_text_prompt(QUESTION)]
    if not streams:
        await model_request(model, asked, model_settings=settings)
        return
    async with model_request_stream(model, asked, model_settings=settings) as events:
        async for _event in events:
            pass
