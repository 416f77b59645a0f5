"""What the user may set for a run. Recorded with it, so that a resumed run is the same run.

Never holds a secret: a model's key comes from the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.measuring.decision import Rules

PLAYBOOK, MODEL, COMMAND, ASSISTANT = "playbook", "model", "command", "assistant"
PROPOSERS = (PLAYBOOK, MODEL, COMMAND, ASSISTANT)
"""Who can write candidates."""


@dataclass(frozen=True)
class ModelOptions:
    """Which language model writes candidates, and how much it may take."""

    model: str = ""
    """`provider:name`, such as `anthropic:claude-sonnet-5-5` or `openai:gpt-5`."""
    base_url: str = ""
    """Of an API that speaks like the provider's, a local one too; the provider's when empty."""
    max_tokens: int = 2_000_000
    """Input and output together, over the whole run."""
    max_cost_usd: float | None = None
    time_budget_s: float | None = None
    """What waiting for the model may take over the whole run."""
    request_timeout_s: float = 300.0
    """One request, from its first byte to its answer's last, retries included."""
    choose: bool = False
    """Let the model choose the next optimization; else the order of the playbook holds."""
    replay: str = ""
    """A folder of recorded exchanges that answer instead of the network."""


@dataclass(frozen=True)
class CommandOptions:
    """Which program writes candidates."""

    argv: tuple[str, ...] = ()
    """`{prompt}` is replaced by the prompt's file and `{kernel}` by the kernel's; without
    `{prompt}` it reads the prompt from its standard input."""
    timeout_s: float = 900.0
    pass_env: tuple[str, ...] = ()
    """Variables that are handed on although their names look like secrets."""


@dataclass(frozen=True)
class Options:
    """What a run may do, and when it stops."""

    max_iterations: int = 25
    patience: int = 2
    """Iterations in a row without improvement after which the run stops."""
    keep_going: bool = False
    """Go on after an improvement under 2 %."""
    time_budget_s: float | None = None
    iteration_timeout_s: float = 600.0
    only: tuple[str, ...] = ()
    """Names of the optimizations to try; all when empty."""
    compare_on: tuple[str, ...] = ()
    """Parts of perf test ids; comparisons run the tests that hold one of them. Chosen by cost when
    empty."""
    recalibrate_every: int = 5
    """Iterations after which the noise floor is measured again."""
    counters: bool = True
    """Read hardware counters of the baseline and of what is kept, where Nsight Compute is."""
    rules: Rules = field(default_factory=Rules)
    proposers: tuple[str, ...] = (PLAYBOOK,)
    """Who writes candidates, one after the other: when the first has nothing left, the next."""
    model: ModelOptions = field(default_factory=ModelOptions)
    command: CommandOptions = field(default_factory=CommandOptions)
