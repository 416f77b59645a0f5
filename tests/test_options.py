"""The options of a run are declared once: what one place declares, every other place has."""

from __future__ import annotations

import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from mcp import Client
from typer.main import get_command

from agent.cli.main import app
from agent.cli.run_parameters import COLUMNS, asking, asking_which, rows
from agent.options import (
    ASSISTANT,
    COMMAND,
    MODEL,
    PLAYBOOK,
    CommandOptions,
    ModelOptions,
    Options,
    Request,
)
from agent.settings import settings
from tests.mcp.client import connected

OWN = {("options", "recalibrate_every"), ("options", "rules")}
"""Fields that the program sets and nobody else."""


def leaves(kind: type, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths to the fields of a dataclass and of those in it."""
    found = set()
    hints = get_type_hints(kind)
    for field in fields(kind):
        here = (*path, field.name)
        inner = is_dataclass(hints[field.name]) and here not in OWN
        found |= leaves(hints[field.name], here) if inner else {here}
    return found


def parameters(command: str) -> dict[str, Any]:
    """The parameters of a command as typer made them."""
    group = get_command(app)
    return {p.name: p for p in group.commands[command].params}  # type: ignore[attr-defined]


def asked(*words: str, led: bool = False) -> Request:
    """What a command line asks for."""
    seen: list[Request] = []
    program = typer.Typer()
    if led:
        program.command()(asking_which(lambda request, _yes, _given: seen.append(request)))
    else:
        program.command()(asking(lambda request, _yes: seen.append(request)))
    program(["--kernel", "k.py", *words], standalone_mode=False)
    return seen[0]


def test_a_field_without_an_option_is_the_programs_own() -> None:
    declared = {setting.path for setting in settings(led=False)}
    assert leaves(Request) - declared == OWN


@pytest.mark.parametrize(("command", "led"), [("run", False), ("begin", True)])
def test_an_option_reaches_the_command_line(command: str, led: bool) -> None:
    known = parameters(command)
    for setting in settings(led=led):
        shown = known.pop(setting.name)
        assert shown.help == setting.help("may be given several times")
        assert setting.flag in shown.opts
        assert shown.envvar == (setting.option.env or None)
        assert shown.required == (setting.default is MISSING)
    assert set(known) <= {"yes", "as_json", "help", "dry_run", "quiet"}


@pytest.mark.parametrize("led", [False, True])
def test_a_limit_holds_on_the_command_line(led: bool) -> None:
    limited = [setting for setting in settings(led=led) if setting.option.min is not None]
    assert limited
    for setting in limited:
        assert setting.option.min is not None
        with pytest.raises(typer.BadParameter):
            asked(setting.flag, str(setting.option.min - 1), led=led)


def test_an_option_reaches_the_mcp_server(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        known = dict(tools["begin"].input_schema["properties"])
        for setting in settings(led=True):
            schema = known.pop(setting.name)
            assert schema["description"] == setting.help("one or several")
            least = [kind.get("minimum") for kind in schema.get("anyOf", [schema])]
            assert least[0] == setting.option.min
        assert set(known) == {"repository"}

    connected(tmp_path, use)


def test_an_option_reaches_the_documentation() -> None:
    flags = {row[0].strip("`") for row in rows()}
    assert flags == {s.flag for led in (False, True) for s in settings(led=led)}
    assert {len(row) for row in rows()} == {len(COLUMNS)}


def test_an_empty_command_line_gives_the_defaults() -> None:
    kernel = Path("k.py")
    assert asked() == Request(kernel, python=sys.executable)
    assert asked(led=True) == Request(kernel, options=Options(proposers=(ASSISTANT,)))


def test_every_option_reaches_its_field(tmp_path: Path) -> None:
    request = asked(
        "--tests", "a", "--tests", "b", "--correctness-k", "right", "--perf-k", "fast",
        "--branch", "mine", "--only", "occupancy-hint", "--compare-on", "small",
        "--max-iterations", "3", "--patience", "4", "--keep-going", "--time-budget-s", "5",
        "--iteration-timeout-s", "6", "--no-counters", "--python", "python3",
        "--proposer", "model, command", "--model", "anthropic:m", "--base-url", "http://here",
        "--model-max-tokens", "7", "--model-max-cost-usd", "0.5", "--model-time-budget-s", "8",
        "--model-request-timeout-s", "9", "--model-chooses", "--model-replay", str(tmp_path),
        "--command", "claude -p '{prompt}'", "--command-timeout-s", "10", "--pass-env", "A_KEY",
    )  # fmt: skip
    model = ModelOptions("anthropic:m", "http://here", 7, 0.5, 8.0, 9.0, True, str(tmp_path))
    assert request == Request(
        kernel=Path("k.py"),
        tests=("a", "b"),
        correctness_k="right",
        perf_k="fast",
        branch="mine",
        options=Options(
            only=("occupancy-hint",),
            compare_on=("small",),
            max_iterations=3,
            patience=4,
            keep_going=True,
            time_budget_s=5.0,
            iteration_timeout_s=6.0,
            counters=False,
            proposers=(MODEL, COMMAND),
            model=model,
            command=CommandOptions(("claude", "-p", "{prompt}"), 10.0, ("A_KEY",)),
        ),
        python="python3",
    )
    led = asked("--playbook-first", led=True)
    assert led.options.proposers == (PLAYBOOK, ASSISTANT)
