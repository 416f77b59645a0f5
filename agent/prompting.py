"""Renders the templates of `prompts/`. A missing variable is an error, never a blank."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

_PACKAGED = Path(__file__).parent / "_prompts"
"""Where a wheel holds them; a checkout, and so an editable install, has them beside `agent/`."""
_CHECKED_OUT = Path(__file__).parent.parent / "prompts"


def render(template: str, **variables: Any) -> str:
    """Render `prompts/<template>`.

    Raises:
        jinja2.UndefinedError: the template uses a variable that was not given.
        jinja2.TemplateNotFound: there is no such template.
    """
    return _environment().get_template(template).render(**variables)


@cache
def _environment() -> jinja2.Environment:
    from agent.measuring.decision import percent, signed

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_PACKAGED, _CHECKED_OUT]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # what is no web page is plain text and Markdown for people and models
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
    )
    environment.filters["percent"] = percent
    environment.filters["signed"] = signed
    environment.filters["ms"] = lambda value: f"{value:.6f} ms"
    environment.filters["fenced"] = fenced
    environment.filters["capped"] = capped
    environment.filters["markdown"] = escaped
    environment.filters["code"] = code_in_cell
    return environment


def fenced(text: str, language: str = "") -> str:
    """The text as a block of Markdown that nothing inside it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def capped(text: str, most: int) -> str:
    """The text with its middle left out where it is longer than `most` characters."""
    if len(text) <= most:
        return text
    gap = f"[... {len(text) - most} characters left out ...]"
    return f"{text[: most // 2]}\n{gap}\n{text[-most // 2 :]}"


def escaped(text: str) -> str:
    """A text in one line that Markdown shows as it is, whatever stands in it."""
    line = re.sub(r"([\\`*\[\]|~#])", r"\\\1", " ".join(text.split()))
    line = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code_in_cell(text: str) -> str:
    """A name as code in a cell of a table, which nothing inside it can end."""
    line = " ".join(text.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest else f"{fence}{line}{fence}"
