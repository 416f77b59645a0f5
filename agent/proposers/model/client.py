"""Which model is asked, and whether it can be: library, provider, key, price.

The library is imported where it is used, so that its absence is a message and not a traceback.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.errors import UsageError
from agent.options import ModelOptions
from agent.proposers.model.exchange import from_text, recordings

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

INSTALL = "pip install 'tile-agent[model]'"
EXAMPLES = (
    "anthropic:claude-sonnet-5-5, openai:gpt-5, or openai:NAME with the URL of a local server"
)


CHAT = "/chat/completions"
PATHS = (CHAT, "/responses", "/v1/messages")
"""What the formats of `openai` and `anthropic` add to a base URL."""


def check(options: ModelOptions) -> None:
    """Look whether the model can be asked, before anything is changed. Nothing is sent.

    Raises:
        UsageError: a library, a key, a price or a recording is missing, or an option is wrong.
    """
    if not options.model:
        raise UsageError(f"no model is named: --model PROVIDER:NAME, such as {EXAMPLES}")
    if options.base_url and urlsplit(options.base_url).scheme not in ("http", "https"):
        raise UsageError(f"{options.base_url} is no URL: http://HOST:PORT/v1 is the usual form")
    if options.replay and not recordings(Path(options.replay)):
        raise UsageError(f"{options.replay} holds no recorded exchange (0001.json and so on)")
    try:
        import httpx2
        import pydantic_ai  # noqa: F401
    except ImportError:
        raise UsageError(f"asking a model needs pydantic-ai: {INSTALL}") from None
    model = model_of(options, httpx2.AsyncClient(transport=httpx2.AsyncBaseTransport()))
    if options.max_cost_usd is not None and not has_price(model):
        raise UsageError(
            f"the price of {options.model} is not known, so that it cannot be held to "
            f"${options.max_cost_usd:g}: use a budget of tokens or of time"
        )


def model_of(options: ModelOptions, http: httpx2.AsyncClient) -> Model:
    """The library's model, which sends through the given client.

    A replay without a base URL asks where the recording did: that says which format it is.

    Raises:
        UsageError: the provider is not known, not installed or lacks its key.
    """
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    name = options.model
    base_url, path = options.base_url, CHAT
    if options.replay and not base_url:
        base_url, path = _recorded_base(options)
    if base_url and path == CHAT and name.startswith("openai:"):
        name = f"openai-chat:{name.partition(':')[2]}"  # what other servers speak
    try:
        return infer_model(name, lambda provider: _provider(provider, options, base_url, http))
    except ImportError as missing:
        raise UsageError(f"--model {options.model}: {_line(missing)}") from None
    except UserError as problem:
        if variable := re.search(r"`([A-Z][A-Z0-9_]+)`", str(problem)):
            raise UsageError(
                f"{options.model} needs a key: set the environment variable {variable[1]}"
            ) from None
        raise UsageError(f"--model {options.model}: {_line(problem)}") from None


def has_price(model: Model) -> bool:
    """Whether the library's price list knows what the model costs where it is asked."""
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=1000, output_tokens=1000)
    for where in ({"provider_api_url": model.base_url}, {"provider_id": model.system}):
        try:
            given: Any = where
            calc_price(usage, model.model_name, **given)
        except (LookupError, ValueError):
            continue
        return True
    return False


def _provider(name: str, options: ModelOptions, base_url: str, http: httpx2.AsyncClient) -> Any:
    from pydantic_ai.providers import infer_provider_class

    try:
        provider = infer_provider_class(name)
    except ValueError:
        raise UsageError(
            f"{name} is no provider that pydantic-ai knows; name the model like {EXAMPLES}"
        ) from None
    takes = inspect.signature(provider.__init__).parameters
    given: dict[str, Any] = {"http_client": http}
    if base_url:
        given["base_url"] = base_url
    if options.replay:
        given["api_key"] = "none: answers are replayed"
    for argument in given:
        if argument not in takes:
            raise UsageError(
                f"{name} cannot be used: its client takes no {argument.replace('_', ' ')}"
            )
    return provider(**given)


def _recorded_base(options: ModelOptions) -> tuple[str, str]:
    """The base URL that a recording was made at, and the path below it that names the format."""
    first = recordings(Path(options.replay))[0]
    try:
        url = from_text(first.read_text(encoding="utf-8")).url
    except ValueError as problem:
        raise UsageError(f"{first} is damaged ({problem}): replay another run's folder") from None
    for path in PATHS:
        if url.endswith(path) and options.model.startswith(("openai", "anthropic:")):
            return url.removesuffix(path), path
    return "", ""


def _line(problem: BaseException) -> str:
    return str(problem).partition("\n")[0]
