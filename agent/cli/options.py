"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Kernel = Annotated[Path, typer.Option(help="The Python file that holds the kernel.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Python = Annotated[str, typer.Option(help="Interpreter with torch and pytest that runs the tests.")]
Tests = Annotated[
    list[str] | None,
    typer.Option(help="Test file or node id; may be given several times. Found when left out."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Try only this optimization; may be given several times."),
]
CompareOn = Annotated[
    list[str] | None,
    typer.Option(
        help="Compare on perf tests with this in their id; may be given several times. "
        "All that fit into an iteration when left out."
    ),
]
CorrectnessK = Annotated[
    str | None, typer.Option(help="pytest -k expression for the correctness tests.")
]
PerfK = Annotated[str | None, typer.Option(help="pytest -k expression for the perf tests.")]
Branch = Annotated[
    str | None,
    typer.Option(help="Name of the branch; tile-agent/<kernel>-<date> when left out."),
]
MaxIterations = Annotated[int, typer.Option(min=1, help="Stop after so many iterations.")]
Patience = Annotated[
    int, typer.Option(min=1, help="Stop after so many iterations in a row without improvement.")
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Go on after an improvement under 2 %.")
]
TimeBudgetS = Annotated[float | None, typer.Option(min=0, help="Stop after so many seconds.")]
IterationTimeoutS = Annotated[
    float, typer.Option(min=1, help="Give one iteration at most so many seconds.")
]
Counters = Annotated[
    bool,
    typer.Option(
        help="Profile the baseline and what is kept with Nsight Compute, where it is installed."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")]

_MODEL = "Language model"
_COMMAND = "Agent program"
Proposers = Annotated[
    str,
    typer.Option(
        "--proposer",
        help="Who writes candidates: playbook, model, command, or a chain such as playbook,model.",
        envvar="TILE_AGENT_PROPOSER",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        help="provider:name, such as anthropic:claude-sonnet-5-5; the key comes from the "
        "provider's own variable.",
        envvar="TILE_AGENT_MODEL",
        rich_help_panel=_MODEL,
    ),
]
BaseUrl = Annotated[
    str,
    typer.Option(
        help="Of the model's API; any OpenAI-compatible server, a local one too.",
        envvar="TILE_AGENT_BASE_URL",
        rich_help_panel=_MODEL,
    ),
]
ModelMaxTokens = Annotated[
    int,
    typer.Option(min=1, help="Tokens a run may take, both ways.", rich_help_panel=_MODEL),
]
ModelMaxCostUsd = Annotated[
    float | None,
    typer.Option(min=0, help="What a run may cost, in US dollars.", rich_help_panel=_MODEL),
]
ModelTimeBudgetS = Annotated[
    float | None,
    typer.Option(min=0, help="What waiting for it may take in a run.", rich_help_panel=_MODEL),
]
ModelRequestTimeoutS = Annotated[
    float,
    typer.Option(min=1, help="Of one request, retries included.", rich_help_panel=_MODEL),
]
ModelChooses = Annotated[
    bool,
    typer.Option(
        "--model-chooses",
        help="Let it choose the next optimization; else the playbook's order holds.",
        rich_help_panel=_MODEL,
    ),
]
ModelReplay = Annotated[
    Path | None,
    typer.Option(
        help="A run's folder of recorded exchanges, which answer instead of the network.",
        rich_help_panel=_MODEL,
    ),
]
Command = Annotated[
    str,
    typer.Option(
        help="Such as 'claude -p': reads the prompt from standard input, or {prompt} is replaced "
        "by its file; {kernel} by the kernel's.",
        envvar="TILE_AGENT_COMMAND",
        rich_help_panel=_COMMAND,
    ),
]
CommandTimeoutS = Annotated[
    float, typer.Option(min=1, help="Kill it after so long.", rich_help_panel=_COMMAND)
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option(
        help="A variable it gets although its name looks like a secret; may be repeated.",
        rich_help_panel=_COMMAND,
    ),
]
