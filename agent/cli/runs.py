"""`run` and `resume`: the loop to its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agent.cli import output, run_options
from agent.cli.observe import announce, observer
from agent.cli.options import (
    BaseUrl,
    Branch,
    Command,
    CommandTimeoutS,
    CompareOn,
    CorrectnessK,
    Counters,
    IterationTimeoutS,
    Json,
    KeepGoing,
    Kernel,
    MaxIterations,
    Model,
    ModelChooses,
    ModelMaxCostUsd,
    ModelMaxTokens,
    ModelReplay,
    ModelRequestTimeoutS,
    ModelTimeBudgetS,
    Only,
    PassEnv,
    Patience,
    PerfK,
    Proposers,
    Python,
    Tests,
    TimeBudgetS,
    Yes,
)
from agent.cli.status import state_of
from agent.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from agent.journal import Journal
    from agent.repository import Repository
    from agent.session import Session
    from agent.state import Run


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(run)
    app.command()(resume)


def run(
    kernel: Kernel,
    tests: Tests = None,
    correctness_k: CorrectnessK = None,
    perf_k: PerfK = None,
    branch: Branch = None,
    only: Only = None,
    compare_on: CompareOn = None,
    max_iterations: MaxIterations = 25,
    patience: Patience = 2,
    keep_going: KeepGoing = False,
    time_budget_s: TimeBudgetS = None,
    iteration_timeout_s: IterationTimeoutS = 600.0,
    counters: Counters = True,
    python: Python = sys.executable,
    proposer: Proposers = "playbook",
    model: Model = "",
    base_url: BaseUrl = "",
    model_max_tokens: ModelMaxTokens = 2_000_000,
    model_max_cost_usd: ModelMaxCostUsd = None,
    model_time_budget_s: ModelTimeBudgetS = None,
    model_request_timeout_s: ModelRequestTimeoutS = 300.0,
    model_chooses: ModelChooses = False,
    model_replay: ModelReplay = None,
    command: Command = "",
    command_timeout_s: CommandTimeoutS = 900.0,
    pass_env: PassEnv = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Make a kernel faster: branch, baseline, one optimization an iteration, keep or revert."""
    output.use_json(as_json)
    from agent.options import CommandOptions, ModelOptions, Options
    from agent.session import Request, begin, opened

    options = Options(
        max_iterations=max_iterations,
        patience=patience,
        keep_going=keep_going,
        time_budget_s=run_options.seconds("--time-budget-s", time_budget_s),
        iteration_timeout_s=run_options.limit("--iteration-timeout-s", iteration_timeout_s),
        only=run_options.entries(only),
        compare_on=tuple(compare_on or ()),
        counters=counters,
        proposers=run_options.proposers(proposer),
        model=ModelOptions(
            model=model,
            base_url=base_url,
            max_tokens=model_max_tokens,
            max_cost_usd=model_max_cost_usd,
            time_budget_s=run_options.seconds("--model-time-budget-s", model_time_budget_s),
            request_timeout_s=run_options.limit(
                "--model-request-timeout-s", model_request_timeout_s
            ),
            choose=model_chooses,
            replay=str(model_replay.absolute()) if model_replay else "",
        ),
        command=CommandOptions(
            argv=run_options.argv(command),
            timeout_s=run_options.limit("--command-timeout-s", command_timeout_s),
            pass_env=tuple(pass_env or ()),
        ),
    )
    request = Request(
        kernel=kernel,
        python=python,
        tests=tuple(tests or ()),
        correctness_k=correctness_k,
        perf_k=perf_k,
        branch=branch,
        options=options,
    )
    with opened(request) as session:
        announce(session, ask=not yes)
        state, journal, made = begin(session)
        try:
            _drive(session, state, journal)
        except UsageError:
            session.workspace.undo_setup(made)
            output.forget()
            raise
        finally:
            journal.close()


def resume(
    run_id: str | None = typer.Argument(None, metavar="[RUN]", help="The latest when left out."),
    as_json: Json = False,
) -> None:
    """Go on with a run that was interrupted."""
    output.use_json(as_json)
    from agent.assistant import is_led, pending
    from agent.report.result import next_command
    from agent.repository import Repository
    from agent.session import reopened

    repository = Repository.open(Path.cwd())
    with reopened(repository, run_id or _latest(repository)) as (session, state, journal):
        if is_led(state):
            raise UsageError(
                f"an assistant leads this run: {next_command(state, pending(state)[0])}"
            )
        output.progress(f"resuming {session.workspace.run_id} in iteration {state.iteration}")
        _drive(session, state, journal)


# --- helpers ------------------------------------------------------------------------------------


def _drive(session: Session, state: Run, journal: Journal) -> None:
    """Drive a run to its end, show it, and leave with its exit code."""
    from agent.environment import describe
    from agent.loop import drive
    from agent.report.result import exit_code, to_result
    from agent.report.summary import summarize
    from agent.session import table_path

    output.remember(run=session.workspace.run_id, branch=session.branch)
    try:
        state = drive(state, journal, session.effects().table(), observer(session))
    except Interrupted:
        session.workspace.close()
        output.progress(f"interrupted; go on with: tile-agent resume {session.workspace.run_id}")
        raise
    assert state.started is not None
    result = to_result(state) | {
        "table": str(table_path(session.workspace.repository)),
        "journal": str(journal.path),
        "logs": str(session.logs),
    }
    output.result(result, summarize(state, describe(state.started.environment)))
    raise typer.Exit(exit_code(state))


def _latest(repository: Repository) -> str:
    """The latest run that is not done."""
    from agent.session import find_runs

    for name in reversed(find_runs(repository)):
        if state_of(repository, name)["standing"] in ("interrupted", "alive"):
            return name
    raise UsageError("no interrupted run here: see `tile-agent status`")
