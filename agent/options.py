"""What the user may set for a run, each option declared once.

A field annotated with an `Option` is a parameter of `tile-agent run`, of `tile-agent begin` and of
the MCP server's `begin`, a key of `[tool.tile-agent]`, and a row of the documentation: to add an
option is to add its field. A field without one is the program's own.

A run's options are recorded with it, so that a resumed run is the same run. They never hold a
secret: a model's key comes from the environment.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from agent.measuring.decision import Rules

PLAYBOOK, MODEL, COMMAND, ASSISTANT = "playbook", "model", "command", "assistant"
PROPOSERS = (PLAYBOOK, MODEL, COMMAND, ASSISTANT)
"""Who can write candidates."""


class Sandbox(StrEnum):
    """How workers are confined."""

    STRICT = "strict"
    """As far as the machine can: files, system calls, network."""
    OFF = "off"


class ValueForm(StrEnum):
    """What a person gives, where that is not simply the value of the field."""

    AS_IT_IS = "as it is"
    SECONDS = "seconds"
    """A number that ends."""
    ENTRIES = "entries"
    """Names of the playbook, each of them checked."""
    CHAIN = "chain"
    """Names with commas between."""
    WORDS = "words"
    """A command line, which is split as a shell would split it."""
    FOLDER = "folder"
    """A path, which is made absolute."""
    PROGRAM = "program"
    """One that is found by its name, or a path, which is made absolute."""
    PLAYBOOK_FIRST = "playbook first"
    """Whether the playbook comes before the assistant."""


@dataclass(frozen=True)
class Option:
    """How a person sets a field."""

    help: str
    """Its first sentence speaks of one value, where several may be given."""
    name: str = ""
    """Of the parameter, with underscores; the field's own when empty."""
    min: int | None = None
    env: str = ""
    """The variable that gives it where the command line does not."""
    shown_default: str = ""
    """Stands for the default in help and docs, where its value depends on the machine."""
    form: ValueForm = ValueForm.AS_IT_IS
    run_only: bool = False
    """It says who writes candidates; `begin` lacks it, because there an assistant does."""
    everywhere: bool = False
    """`begin` has it although it lacks the others of its panel; it is shown among the general."""

    def told(self, several: str) -> str:
        """The help of one that may be given several times, with the words that say how."""
        first, _, rest = self.help.partition(".")
        return f"{first}; {several}.{rest}"


@dataclass(frozen=True)
class Panel:
    """A field that holds the options of one part, shown under a title of their own."""

    title: str = ""
    run_only: bool = False


KERNEL = Option("The Python file that holds the kernel.")
BENCH = Option(
    "A benchmark to judge by, in place of perf tests: 'python FILE [ARGUMENTS]', a script that "
    "times with functions that are known, or FILE::REPORT, a function under perf_report."
)
PYTHON = Option(
    "Interpreter with torch and pytest that runs the tests.",
    shown_default="that of tile-agent",
    form=ValueForm.PROGRAM,
)
TESTS = Option("Test file or node id. Found when left out.")
SANDBOX = Option(
    "Confine what runs the tests: strict, or off for tests that write beside themselves or need "
    "the network."
)
"""These are options of other commands too."""


@dataclass(frozen=True)
class ModelOptions:
    """Which language model writes candidates, and how much it may take."""

    model: Annotated[
        str,
        Option(
            "provider:name, such as anthropic:claude-sonnet-5-5; the key comes from the "
            "provider's own variable.",
            env="TILE_AGENT_MODEL",
        ),
    ] = ""
    base_url: Annotated[
        str,
        Option(
            "Of the model's API; any OpenAI-compatible server, a local one too.",
            env="TILE_AGENT_BASE_URL",
        ),
    ] = ""
    max_tokens: Annotated[
        int, Option("Tokens a run may take, both ways.", name="model_max_tokens", min=1)
    ] = 2_000_000
    max_cost_usd: Annotated[
        float | None,
        Option("What a run may cost, in US dollars.", name="model_max_cost_usd", min=0),
    ] = None
    time_budget_s: Annotated[
        float | None,
        Option(
            "What waiting for it may take in a run.",
            name="model_time_budget_s",
            min=0,
            form=ValueForm.SECONDS,
        ),
    ] = None
    request_timeout_s: Annotated[
        float,
        Option(
            "Of one request, retries included.",
            name="model_request_timeout_s",
            min=1,
            form=ValueForm.SECONDS,
        ),
    ] = 300.0
    choose: Annotated[
        bool,
        Option(
            "Let it choose the next optimization; else the playbook's order holds.",
            name="model_chooses",
        ),
    ] = False
    replay: Annotated[
        str,
        Option(
            "A run's folder of recorded exchanges, which answer instead of the network.",
            name="model_replay",
            form=ValueForm.FOLDER,
        ),
    ] = ""


@dataclass(frozen=True)
class CommandOptions:
    """Which program writes candidates."""

    argv: Annotated[
        tuple[str, ...],
        Option(
            "Such as 'claude -p': reads the prompt from standard input, or {prompt} is replaced "
            "by its file; {kernel} by the kernel's.",
            name="command",
            env="TILE_AGENT_COMMAND",
            form=ValueForm.WORDS,
        ),
    ] = ()
    timeout_s: Annotated[
        float,
        Option("Kill it after so long.", name="command_timeout_s", min=1, form=ValueForm.SECONDS),
    ] = 900.0
    pass_env: Annotated[
        tuple[str, ...],
        Option(
            "A variable that is handed on although it is not known to be needed. "
            "The program gets it, and so do the workers, unless it looks like a secret.",
            everywhere=True,
        ),
    ] = ()


@dataclass(frozen=True)
class Options:
    """What a run may do, and when it stops."""

    only: Annotated[
        tuple[str, ...], Option("Try only this optimization.", form=ValueForm.ENTRIES)
    ] = ()
    compare_on: Annotated[
        tuple[str, ...],
        Option(
            "Compare on configs with this in their name or the id of their test. "
            "All that fit into the budgets when left out."
        ),
    ] = ()
    max_iterations: Annotated[int, Option("Stop after so many iterations.", min=1)] = 25
    patience: Annotated[
        int,
        Option(
            "Stop after so many iterations in a row of which a comparison finds no improvement; "
            "failed tests do not count.",
            min=1,
        ),
    ] = 2
    keep_going: Annotated[bool, Option("Go on after an improvement under 2 %, or at the roof.")] = (
        False
    )
    time_budget_s: Annotated[
        float | None,
        Option(
            "Stop after so many seconds, those of the last comparison counted in; an iteration "
            "under way goes on. A baseline that is not done by then ends, but has a minute.",
            min=0,
            form=ValueForm.SECONDS,
        ),
    ] = None
    iteration_timeout_s: Annotated[
        float, Option("Give one iteration at most so many seconds.", min=1, form=ValueForm.SECONDS)
    ] = 600.0
    calibration_budget_s: Annotated[
        float,
        Option(
            "What calibration may take: of long perf tests, configs from the shortest latency to "
            "the longest are measured until two thirds are spent, and the slowest perf test is "
            "profiled in the rest; at most a third of --time-budget-s. "
            "After as long the baseline begins no further perf test.",
            min=1,
            form=ValueForm.SECONDS,
        ),
    ] = 90.0
    comparison_budget_s: Annotated[
        float,
        Option(
            "What the longest comparison of an iteration may take; its configs are chosen by it, "
            "too.",
            min=1,
            form=ValueForm.SECONDS,
        ),
    ] = 120.0
    retry: Annotated[
        bool,
        Option(
            "Try again what earlier runs on this kernel found to gain nothing. The same edit of "
            "the same code, under the same tests on the same machine, is passed over when left out."
        ),
    ] = False
    remember: Annotated[
        bool,
        Option(
            "Keep facts of what is judged in a store of yours, over all repositories, and go by "
            "it: what gained on kernels of the same structure and the same GPU is tried first. No "
            "source, path or name of yours is kept; `tile-agent memory` shows and deletes it.",
            env="TILE_AGENT_REMEMBER",
        ),
    ] = False
    remember_source: Annotated[
        bool,
        Option(
            "With --remember, keep the changes to the source too, and what was said of them: an "
            "assistant or a model is told them on kernels of the same structure.",
            env="TILE_AGENT_REMEMBER_SOURCE",
        ),
    ] = False
    correctness_workers: Annotated[
        int | None,
        Option(
            "Run the correctness tests in so many workers at once, where the baseline's pass so; "
            "when left out, up to 8 where they take over 20 s.",
            min=1,
        ),
    ] = None
    scout: Annotated[
        bool,
        Option(
            "Look shortly at all that the playbook has left before one of it is chosen, and again "
            "after a large gain; what may gain most is tried first. On a GPU only."
        ),
    ] = True
    gpus: Annotated[
        int,
        Option(
            "Look at the variants of a sweep on so many GPUs at once: those of the first one's "
            "model that are free. What decides stays on the first.",
            min=1,
        ),
    ] = 1
    allow_precision_loss: Annotated[
        bool, Option("Keep what is less precise than the origin where the tests let it pass.")
    ] = False
    tested_shapes_only: Annotated[
        bool,
        Option("Do not compare with the origin at sizes, strides and alignments that no test has."),
    ] = False
    sandbox: Annotated[Sandbox, SANDBOX] = Sandbox.STRICT
    require_sandbox: Annotated[
        bool, Option("Refuse to run where this machine cannot confine what runs the tests.")
    ] = False
    recalibrate_every: int = 5
    """Iterations after which the noise floor is measured again."""
    counters: Annotated[
        bool,
        Option(
            "Profile the baseline and what is kept with Nsight Compute, where it is installed and "
            "somebody chooses by that what comes next: not where short looks give the order."
        ),
    ] = True
    rules: Rules = field(default_factory=Rules)
    proposers: Annotated[
        tuple[str, ...],
        Option(
            "Who writes candidates: playbook, model, command, or a chain such as playbook,model.",
            name="proposer",
            env="TILE_AGENT_PROPOSER",
            form=ValueForm.CHAIN,
            run_only=True,
        ),
    ] = (PLAYBOOK,)
    """One after the other: when the first has nothing left, the next."""
    model: Annotated[ModelOptions, Panel("Language model", run_only=True)] = field(
        default_factory=ModelOptions
    )
    command: Annotated[CommandOptions, Panel("Agent program", run_only=True)] = field(
        default_factory=CommandOptions
    )


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    kernel: Annotated[Path, KERNEL]
    tests: Annotated[tuple[str, ...], TESTS] = ()
    correctness_k: Annotated[
        str | None, Option("pytest -k expression for the correctness tests.")
    ] = None
    perf_k: Annotated[str | None, Option("pytest -k expression for the perf tests.")] = None
    bench: Annotated[tuple[str, ...], BENCH] = ()
    capture: Annotated[
        tuple[str, ...],
        Option(
            "A command such as 'pytest tests/test_model.py', run as it is before the run: perf "
            "tests are made of the calls of the kernel's file that it makes, committed on the "
            "branch, and judged by in place of others.",
            form=ValueForm.WORDS,
        ),
    ] = ()
    capture_stop_after_s: Annotated[
        float | None,
        Option(
            "End the command of --capture after so many seconds, and be content with the calls "
            "that it made until then. Trying the tests that are made of them takes its time "
            "besides, 3 minutes at most each time that they are run.",
            min=1,
        ),
    ] = None
    branch: Annotated[
        str | None,
        Option(
            "Name of the branch; the first free tile-agent/<kernel>-<date> when left out, unless "
            "a run on one of them can go on: that is said then."
        ),
    ] = None
    options: Annotated[Options, Panel()] = field(default_factory=Options)
    python: Annotated[str, PYTHON] = sys.executable
