"""A model that answers, answers badly, or does not answer: what becomes of each request."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_prices
import pytest

from agent.options import ModelOptions
from agent.proposers.agenda import Task
from agent.proposers.answer import doubts
from agent.proposers.brief import Brief
from agent.proposers.model.writer import ModelWriter
from agent.proposers.writer import Chosen, Refused, Spent, Written
from agent.state import Run
from agent.syntax import Source
from agent.usage import Usage
from tests.support.llm_server import INPUT_TOKENS, OUTPUT_TOKENS, LlmServer, Reply
from tests.support.project import KERNEL

KEY = "sk-test-0123456789abcdef0123"
FASTER = KERNEL.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 1024")
FORMATS = {"chat": "openai", "responses": "openai-responses", "messages": "anthropic"}
TASK = Task(
    optimization="block-size",
    family="tiles",
    title="block size",
    prose="Do: make blocks larger.",
    expected="unknown",
    why="256 elements are few",
)
BRIEF = Brief(TASK, "double.py", "0" * 40, Source(KERNEL, "double.py"), f"Make it fast.\n{KERNEL}")
EDIT = {"search": "BLOCK_SIZE = 256", "replace": "BLOCK_SIZE = 1024"}


def says(**changed: Any) -> Reply:
    """An answer that gives the whole faster file, but for what is changed."""
    answer = {
        "hypothesis": "fewer\nprograms",
        "title": "larger blocks",
        "expected_gain": 0.2,
        "risk": "more registers",
        "source": FASTER,
    }
    return Reply(arguments={k: v for k, v in (answer | changed).items() if v is not None})


def instead(old: str, new: str) -> Reply:
    """An answer whose file differs from the faster one."""
    assert old in FASTER
    return says(source=FASTER.replace(old, new))


GOOD = says()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of each provider in the environment."""
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)


@pytest.fixture(params=FORMATS)
def provider(request: pytest.FixtureRequest, keys: None) -> str:
    """Each wire format in turn."""
    return FORMATS[request.param]


def options(server: LlmServer, provider: str, **more: Any) -> ModelOptions:
    path = "" if provider == "anthropic" else "/v1"
    given = {"request_timeout_s": 20.0} | more
    return ModelOptions(model=f"{provider}:some-1", base_url=server.url + path, **given)


def writer(server: LlmServer, provider: str, folder: Path, **more: Any) -> ModelWriter:
    return ModelWriter(options(server, provider, **more), folder, backoff_s=0.01)


GIVES: Mapping[str, tuple[Reply, ...]] = {
    "a whole file": (GOOD,),
    "an edit": (says(source=None, edits=[EDIT]),),
    "a file in a fence": (says(source=f"```python\n{FASTER}```"),),
    "JSON in its text": (
        Reply(text=f"Here: {json.dumps({'hypothesis': 'x', 'edits': [EDIT]})} ok"),
    ),
    "a plain body for a stream": (replace(GOOD, plain=True),),
    "429 first": (Reply(status=429, headers={"retry-after": "0"}), GOOD),
    "429 until a date that is past": (
        Reply(status=429, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        GOOD,
    ),
    "500 twice first": (Reply(status=500), Reply(status=500), GOOD),
    "a cut answer first": (replace(GOOD, cut_after=300), GOOD),
    "an answer cut before its headers' body first": (replace(GOOD, cut_after=0), GOOD),
    "a wrong form first": (Reply(arguments={"file": "x"}), GOOD),
    "broken JSON first": (Reply(text='{"hypothesis": "fewer'), GOOD),
    "prose first": (Reply(text="I would make the blocks larger."), GOOD),
    "an empty answer first": (Reply(), GOOD),
    "a syntax error first": (instead("return y", "return y)"), GOOD),
    "a missed edit first": (says(source=None, edits=[EDIT | {"search": "BLOCK = 256"}]), GOOD),
}


@pytest.mark.parametrize("replies", GIVES.values(), ids=GIVES)
def test_it_gives_the_file(replies: tuple[Reply, ...], provider: str, tmp_path: Path) -> None:
    if provider == "anthropic" and replies[0].plain:
        pytest.skip("its client takes nothing but streams")
    with LlmServer(*replies) as server:
        written = writer(server, provider, tmp_path).write(BRIEF, Run())
    assert isinstance(written, Written), written
    assert written.source == FASTER
    assert written.usage.requests == len(server.received)
    assert (written.usage.input_tokens, written.usage.output_tokens) >= (
        INPUT_TOKENS,
        OUTPUT_TOKENS,
    )
    if replies == (GOOD,):
        assert written.hypothesis == "fewer programs"
        assert (written.title, written.expected_gain, written.risk) == (
            "larger blocks",
            0.2,
            "more registers",
        )


REFUSED: Mapping[str, tuple[Reply, int, str]] = {
    "refuses": (Reply(refusal="I will not."), 1, "the model refused"),
    "answers prose": (Reply(text="Sorry, no."), 2, "no answer in the form asked for, but: Sorry"),
    "answers nothing": (Reply(), 2, "no usable answer"),
    "answers another form": (Reply(arguments={"file": "x"}), 2, "hypothesis: Field required"),
    "gives neither file nor edit": (says(source=None), 2, "neither a whole file nor an edit"),
    "gives the same file": (says(source=KERNEL), 2, "nothing but comments or layout has changed"),
    "gives no Python": (says(source="def f(:"), 2, "does not parse: line 1"),
    "gives no kernel": (says(source="x = 1\n"), 2, "holds no kernel any more"),
    "drops an argument": (instead("def double(x):", "def double(x, out):"), 2, "`double` takes"),
    "rejects the request, streamed or not": (Reply(status=400), 2, "answers 400: scripted 400"),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "requests", "reason"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused(
    reply: Reply, requests: int, reason: str, provider: str, tmp_path: Path
) -> None:
    with LlmServer(reply) as server:
        outcome = writer(server, provider, tmp_path).write(BRIEF, Run())
    assert isinstance(outcome, Refused)
    assert reason in outcome.reason
    assert "\n" not in outcome.reason
    assert not outcome.hopeless
    assert len(server.received) == requests == outcome.usage.requests


def test_what_is_out_of_place_is_a_doubt(provider: str, tmp_path: Path) -> None:
    reply = instead("    y = torch", "    torch.cuda.synchronize()\n    y = torch")
    with LlmServer(reply) as server:
        written = writer(server, provider, tmp_path).write(BRIEF, Run())
    assert isinstance(written, Written)
    (doubt,) = doubts(BRIEF.source, written.source)
    assert "`torch.cuda.synchronize` has no place beside a launch" in doubt


def test_each_format_is_asked_for_where_it_is_served(provider: str, tmp_path: Path) -> None:
    with LlmServer(GOOD) as server:
        writer(server, provider, tmp_path).write(BRIEF, Run())
    served = {
        "openai": "chat/completions",
        "openai-responses": "responses",
        "anthropic": "messages",
    }
    assert [received.path for received in server.received] == [f"/v1/{served[provider]}"]


@pytest.mark.full
def test_a_huge_answer(keys: None, tmp_path: Path) -> None:
    with LlmServer(says(source="#" * 1_000_001)) as server:
        outcome = writer(server, "openai", tmp_path).write(BRIEF, Run())
    assert isinstance(outcome, Refused)
    assert "more than 1000000 bytes" in outcome.reason


HOPELESS: Mapping[str, tuple[Reply, int, str]] = {
    "answers 500 for ever": (Reply(status=500), 5, "answers 500: scripted 500"),
    "cuts every answer": (replace(GOOD, cut_after=300), 5, "RemoteProtocolError"),
    "does not know the key": (Reply(status=401), 1, "answers 401: scripted 401"),
    "sends HTML": (
        Reply(raw=b"<html>busy</html>"),
        1,
        "it answers HTML and no JSON: is http://127",
    ),
    "asks to come back tomorrow": (
        Reply(status=429, headers={"retry-after": "86400"}),
        1,
        "answers 429: scripted 429",
    ),
}


@pytest.mark.parametrize(("reply", "requests", "reason"), HOPELESS.values(), ids=HOPELESS)
def test_nobody_answers(
    reply: Reply, requests: int, reason: str, provider: str, tmp_path: Path
) -> None:
    with LlmServer(reply) as server:
        outcome = writer(server, provider, tmp_path).write(BRIEF, Run())
    assert isinstance(outcome, Refused)
    assert reason in outcome.reason
    assert outcome.hopeless
    assert len(server.received) == requests


def test_nobody_is_there(provider: str, tmp_path: Path) -> None:
    with LlmServer(GOOD) as server:
        gone = writer(server, provider, tmp_path)
    outcome = gone.write(BRIEF, Run())
    assert isinstance(outcome, Refused)
    assert "ConnectError" in outcome.reason
    assert outcome.hopeless


@pytest.mark.parametrize("reply", [Reply(silent=True), replace(GOOD, trickle_s=0.05)])
def test_a_slow_answer_meets_the_deadline(reply: Reply, provider: str, tmp_path: Path) -> None:
    with LlmServer(reply) as server:
        begun = time.monotonic()
        slow = writer(server, provider, tmp_path, request_timeout_s=0.6)
        outcome = slow.write(BRIEF, Run())
        took_s = time.monotonic() - begun
    assert isinstance(outcome, Refused)
    assert "no whole answer within 0.6 s" in outcome.reason
    assert outcome.hopeless == reply.silent
    silent = re.search(r"the server was silent for the last (\S+) s", outcome.reason)
    assert (silent is not None and 0.6 <= float(silent[1]) <= took_s + 0.1) == reply.silent
    assert len(server.received) == 1
    assert took_s < 30
    assert outcome.usage.took_s == pytest.approx(took_s, abs=1)


def test_the_repair_names_the_faults_and_what_is_sent_is_the_brief(
    provider: str, tmp_path: Path
) -> None:
    wrong = instead("def double(x):", "def double(x, out):")
    with LlmServer(wrong, GOOD) as server:
        writer(server, provider, tmp_path).write(BRIEF, Run())
    first, second = server.received
    assert "Make it fast." in first.prompt
    assert "You make GPU kernels faster." in first.prompt
    assert "Text that occurs exactly once in the file" in first.prompt
    assert "`double` takes" in second.prompt
    assert second.body["model"] == "some-1"


def test_a_secret_in_the_brief_is_not_sent(provider: str, tmp_path: Path) -> None:
    brief = replace(BRIEF, text=f"{BRIEF.text}\n# key: {KEY}\n")
    with LlmServer(GOOD) as server:
        writer(server, provider, tmp_path).write(brief, Run())
    assert KEY not in server.received[0].prompt


# --- budgets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "usage", "reason"),
    [
        ({"max_tokens": 5000}, Usage(2, 4000, 500), "4500 of 5000 tokens"),
        ({"time_budget_s": 60.0}, Usage(2, 0, 0, 0.0, 61.0), "61 of 60 s"),
        ({"max_cost_usd": 0.5}, Usage(2, 0, 0, 0.5), "cost $0.5000 of $0.5"),
        ({"max_cost_usd": 0.5}, Usage(2, 9, 9, None), "price of an answer is not known"),
    ],
)
def test_a_budget_that_is_used_up_ends_the_proposer(
    budget: Mapping[str, Any], usage: Usage, reason: str, provider: str, tmp_path: Path
) -> None:
    with LlmServer(GOOD) as server:
        outcome = writer(server, provider, tmp_path, **budget).write(BRIEF, Run(usage=usage))
    assert isinstance(outcome, Spent)
    assert reason in outcome.reason
    assert server.received == []


def test_an_answer_is_no_longer_than_the_tokens_that_are_left(
    provider: str, tmp_path: Path
) -> None:
    with LlmServer(GOOD) as server:
        short = writer(server, provider, tmp_path, max_tokens=10_000)
        short.write(BRIEF, Run(usage=Usage(1, 2000, 500)))
    body = server.received[0].body
    limits = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    assert [body[name] for name in limits if name in body] == [7500]


def test_the_price_of_a_local_model_is_not_known(provider: str, tmp_path: Path) -> None:
    with LlmServer(GOOD) as server:
        written = writer(server, provider, tmp_path).write(BRIEF, Run())
    assert isinstance(written, Written)
    assert written.usage.cost_usd is None


def test_a_listed_model_has_a_price(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with LlmServer(GOOD) as server:
        chosen = ModelOptions(model="anthropic:claude-sonnet-5-5", base_url=server.url)
        written = ModelWriter(chosen, tmp_path).write(BRIEF, Run())
    assert isinstance(written, Written)
    tokens = genai_prices.Usage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
    price = genai_prices.calc_price(tokens, "claude-sonnet-5-5", provider_id="anthropic")
    assert written.usage.cost_usd == pytest.approx(float(price.total_price)) != 0


@pytest.mark.parametrize("gain", [30.0, -0.1, "NaN"])
def test_an_expected_gain_is_a_part_of_the_latency(gain: Any, keys: None, tmp_path: Path) -> None:
    with LlmServer(says(expected_gain=gain)) as server:
        written = writer(server, "openai", tmp_path).write(BRIEF, Run())
    assert isinstance(written, Written)
    assert written.expected_gain is None


# --- choosing -----------------------------------------------------------------------------------

OTHER = replace(TASK, optimization="eviction-policy", title="eviction policy")


@pytest.mark.parametrize(
    ("reply", "chosen", "reason"),
    [
        (Reply(arguments={"optimization": "eviction-policy", "reason": "L2"}), OTHER, "L2"),
        (Reply(arguments={"optimization": "burn-it", "reason": "why not"}), TASK, "why not"),
        (Reply(text="either"), TASK, "no answer in the form asked for, but: either"),
    ],
)
def test_it_chooses_from_the_list(
    reply: Reply,
    chosen: Task,
    reason: str,
    provider: str,
    tmp_path: Path,
    begun: Callable[[], Run],
) -> None:
    with LlmServer(reply) as server:
        choice = writer(server, provider, tmp_path, choose=True).choose(begun(), (TASK, OTHER))
    assert isinstance(choice, Chosen)
    assert choice.task is chosen
    assert reason in choice.reason
    assert choice.usage.requests == len(server.received)
    assert "`eviction-policy`: eviction policy." in server.received[0].prompt


def test_it_is_not_asked_to_choose_unless_wanted(
    provider: str, tmp_path: Path, begun: Callable[[], Run]
) -> None:
    with LlmServer(GOOD) as server:
        asked = writer(server, provider, tmp_path)
        assert asked.choose(begun(), (TASK, OTHER)) is None
        assert writer(server, provider, tmp_path, choose=True).choose(begun(), (TASK,)) is None
    assert server.received == []


@pytest.fixture
def begun() -> Callable[[], Run]:
    """A run that has begun, for what the prompt says of it."""
    from agent.journal import replay
    from tests.support.history import HISTORY

    return lambda: replay(HISTORY[:3])
