"""What is missing before a model can be asked, and that it is said before anything is changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.options import ModelOptions
from agent.proposers.model.client import check

ROOT = Path(__file__).parent.parent.parent
KEY = "sk-test-0123456789abcdef0123"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": ""}, "no model is named"),
        ({"model": "gpt-5"}, "gpt-5"),
        ({"model": "nobody:gpt-5"}, "nobody is no provider"),
        ({"model": "openai:gpt-5"}, "needs a key: set .* OPENAI_API_KEY"),
        ({"model": "anthropic:claude-sonnet-5-5"}, "needs a key: set .* ANTHROPIC_API_KEY"),
        ({"model": "groq:llama"}, "groq"),
        ({"model": "openai:x", "base_url": "localhost:8000"}, "localhost:8000 is no URL"),
        ({"model": "openai:x", "replay": "nowhere"}, "nowhere holds no recorded exchange"),
        (
            {"model": "openai:x", "base_url": "http://localhost:1/v1", "max_cost_usd": 1.0},
            "the price of openai:x is not known",
        ),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_before_anything_is_changed(
    wrong: Mapping[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=message) as refused:
        check(ModelOptions(**wrong))
    assert "\n" not in str(refused.value)
    assert "api_key=" not in str(refused.value)


def test_without_the_library_the_message_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "from agent.options import ModelOptions\n"
        "from agent.proposers.model.client import check\n"
        "check(ModelOptions(model='openai:x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("needs pydantic-ai: pip install 'tile-agent[model]'")


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    check(ModelOptions(model="openai:x", base_url="http://localhost:1/v1"))


def test_a_listed_price_allows_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    check(ModelOptions(model="anthropic:claude-sonnet-5-5", max_cost_usd=1.0))
