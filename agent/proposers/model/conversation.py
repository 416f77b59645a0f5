"""One question to the model, its typed answer, and one chance to mend it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx2
from pydantic import TypeAdapter, ValidationError
from pydantic_ai import Agent, ModelRetry, RunContext, TextOutput, ToolOutput
from pydantic_ai.exceptions import ContentFilterError, ModelHTTPError, OutputTokenLimitExceeded
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from agent.options import ModelOptions
from agent.prompting import render
from agent.proposers.model.budget import Left
from agent.proposers.model.client import model_of
from agent.proposers.model.exchange import ExchangeRecorder, Replay
from agent.proposers.model.transport import BACKOFF_S, Network, Recordings, Transport
from agent.proposers.model.waiting import wait_for
from agent.redaction import redact
from agent.usage import Usage

Output = TypeVar("Output")
MOST_OUTPUT_TOKENS = 32_000
"""Of one answer, when the budget has fewer left than a model may give of its own accord."""
LONGEST_REASON = 400
PASSING = frozenset({400, 413, 422})
"""Statuses that speak of this request; after any other the next request would fare no better."""
NO_STREAM = frozenset({400, 422})
"""What servers say that know no streams, and also of other faults of a request."""


@dataclass(frozen=True)
class Question(Generic[Output]):
    """What is asked, and what makes an answer one that can be used."""

    output: type[Output]
    instructions: str
    prompt: str
    problems: Callable[[Output], Sequence[str]]


@dataclass(frozen=True)
class Outcome(Generic[Output]):
    """What came of a question: an answer, or one line that says why there is none."""

    answer: Output | None
    usage: Usage
    reason: str = ""
    hopeless: bool = False
    """Another question would end the same way."""


class Conversation:
    """Asks one model, over the network or from recordings."""

    def __init__(self, options: ModelOptions, folder: Path, backoff_s: float = BACKOFF_S) -> None:
        """Take the folder that exchanges are recorded in."""
        self._options = options
        self._backoff_s = backoff_s
        self._recorder = ExchangeRecorder(folder)
        self._replay = Replay(Path(options.replay)) if options.replay else None
        self._streams = True
        """An answer takes minutes, and what stands between may cut a silent connection."""

    def ask(self, question: Question[Output], left: Left, used: Usage) -> Outcome[Output]:
        """Ask, within what is left of the budgets; `used` is what the run had taken before."""
        if self._replay:
            self._replay.go_on_from(used.requests)
        begun = time.monotonic()
        rounds = 2  # the question and its repair, each with a deadline of its own
        try:
            outcome = wait_for(lambda: self._ask(question, left), rounds * left.seconds + 5.0)
        except TimeoutError:
            usage = Usage(requests=1, cost_usd=None)
            outcome = Outcome(None, usage, "the model does not answer", hopeless=True)
        took_s = round(time.monotonic() - begun, 3)
        usage = replace(outcome.usage, took_s=took_s)
        return replace(outcome, usage=usage, reason=redact(outcome.reason, os.environ))

    async def _ask(self, question: Question[Output], left: Left) -> Outcome[Output]:
        source = Recordings(self._replay) if self._replay else Network()
        transport = Transport(source, self._recorder, left.seconds, self._backoff_s)
        usage = RunUsage()
        mended = _Mending(question)
        reason, hopeless = "", False
        async with httpx2.AsyncClient(transport=transport, timeout=None) as http:
            agent = self._agent(question, mended, http, left)
            for streams in (True, False) if self._streams else (False,):
                handler = _read if streams else None
                again = False
                try:
                    await agent.run(question.prompt, usage=usage, event_stream_handler=handler)
                # A server may answer anything, and what the library raises for what it did not
                # expect is of any type. None of it may end the run.
                except Exception as problem:
                    reason, hopeless = reason_of(problem, transport, mended.problems)
                    again = takes_no_stream(problem, transport)
                if mended.answer is not None or not again:
                    self._streams = streams  # what is refused either way is no matter of streams
                    break
        counted = _usage(usage, transport.requests)
        if mended.answer is not None:
            return Outcome(mended.answer, counted)
        return Outcome(None, counted, reason, hopeless)

    def _agent(
        self,
        question: Question[Output],
        mended: _Mending[Output],
        http: httpx2.AsyncClient,
        left: Left,
    ) -> Agent[object, Output]:
        settings = ModelSettings(max_retries=0, timeout=left.seconds)
        if left.tokens < MOST_OUTPUT_TOKENS:
            settings["max_tokens"] = left.tokens
        # servers of one's own often know no tools
        as_text: TextOutput[Output] = TextOutput(mended.from_text)
        agent: Agent[object, Output] = Agent(
            model_of(self._options, http),
            output_type=[
                ToolOutput(question.output, name="answer", description="Your answer."),
                as_text,
            ],
            instructions=question.instructions or None,
            retries={"output": 1, "tools": 0},
            model_settings=settings,
        )
        agent.output_validator(mended.check)
        return agent


class _Mending(Generic[Output]):
    """Holds an answer to what it must fulfil; the library asks once more for one that does not."""

    def __init__(self, question: Question[Output]) -> None:
        self._question = question
        self._adapter = TypeAdapter(question.output)
        self.answer: Output | None = None
        self.problems: Sequence[str] = ()

    async def check(self, answer: Output) -> Output:
        """Pass an answer that can be used."""
        self.problems = tuple(self._question.problems(answer))
        if self.problems:
            raise ModelRetry(render("model_repair.md.j2", problems=self.problems))
        self.answer = answer
        return answer

    async def from_text(self, text: str) -> Output:
        """The answer of a model that writes JSON where it should have called the tool."""
        begin, end = text.find("{"), text.rfind("}")
        try:
            return self._adapter.validate_json(text[begin : end + 1])
        except ValidationError as problem:
            said = " ".join(text.split())[:120]
            self.problems = (f"no answer in the form asked for, but: {said or 'nothing'}",)
            if begin >= 0:
                self.problems = (f"not the form asked for: {_first(problem)}",)
            raise ModelRetry(render("model_repair.md.j2", problems=self.problems)) from None


def takes_no_stream(problem: Exception, transport: Transport) -> bool:
    """Whether the server may answer without a stream what it did not answer with one."""
    refused = isinstance(problem, ModelHTTPError) and problem.status_code in NO_STREAM
    return transport.unstreamed or refused


async def _read(_: RunContext[object], events: AsyncIterable[Any]) -> None:
    """Take a stream to its end; that it is read as a stream is all that is wanted."""
    async for _event in events:
        pass


def _usage(usage: RunUsage, requests: int) -> Usage:
    cost = float(usage.cost) if usage.cost is not None else None
    if not usage.requests and not usage.has_values():
        cost = 0.0
    return Usage(requests, usage.input_tokens, usage.output_tokens, cost)


def reason_of(
    problem: Exception, transport: Transport, problems: Sequence[str]
) -> tuple[str, bool]:
    """Why there is no answer, in one line, and whether there would be one to another question."""
    if transport.failure:
        reason = _short(f"the model's server gave no answer: {transport.failure}")
        return reason, not transport.timed_out
    if isinstance(problem, ModelHTTPError):
        said = _message(problem.body)
        hopeless = problem.status_code not in PASSING
        return _short(f"the model's server answers {problem.status_code}: {said}"), hopeless
    if isinstance(problem, ContentFilterError):
        return _short(f"the model refused: {_line(problem.message)}"), False
    if isinstance(problem, OutputTokenLimitExceeded):
        return "the answer ended before it was complete: the model's limit of tokens", False
    if problems:
        return _short(f"the answer cannot be tried: {'; '.join(problems)}"), False
    cause = problem.__cause__
    if isinstance(cause, ValidationError):
        return _short(f"the answer has not the form asked for: {_first(cause)}"), False
    return _short(f"no usable answer: {_line(cause or problem)}"), False


def _message(body: object) -> str:
    """The server's own words, out of the JSON that both formats wrap them in."""
    while isinstance(body, dict):
        body = body.get("error") or body.get("message") or json.dumps(body)
    text = str(body).strip()
    return "a page of HTML" if text.startswith("<") else text


def _first(problem: ValidationError) -> str:
    first = problem.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _line(problem: object) -> str:
    return str(problem).partition("\n")[0]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
