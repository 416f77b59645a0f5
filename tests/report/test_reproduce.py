"""The command that makes a run again is one that the program takes, with the same options."""

from __future__ import annotations

import shlex
from dataclasses import replace

from agent.journal import replay
from agent.options import CommandOptions, Options, Sandbox
from agent.report.reproduce import reproduce
from tests.docs.test_commands import refusal
from tests.support.history import STARTED


def run_command(options: Options) -> str:
    run = replay([replace(STARTED, options=options)])
    return reproduce(run)[1]["command"]


def test_what_is_not_the_default_is_named() -> None:
    options = Options(
        only=("occupancy", "block-size"),
        time_budget_s=60.0,
        keep_going=True,
        counters=False,
        sandbox=Sandbox.OFF,
        proposers=("playbook", "command"),
        command=CommandOptions(argv=("agent", "-p {kernel}")),
    )
    command = run_command(options)
    given = shlex.split(command)
    assert given[:6] == [
        "tile-agent", "run", "--kernel", "kernels/softmax.py", "--tests", "tests/test_softmax.py",
    ]  # fmt: skip
    assert given.count("--only") == 2
    assert {"--keep-going", "--no-counters", "off", "playbook,command"} <= set(given)
    assert refusal(command) is None


def test_a_run_that_an_assistant_led_is_begun() -> None:
    command = run_command(Options(proposers=("playbook", "assistant")))
    assert command.split()[:2] == ["tile-agent", "begin"]
    assert "--playbook-first" in command
    assert refusal(command) is None
    assert run_command(Options()) == (
        "tile-agent run --kernel kernels/softmax.py --tests tests/test_softmax.py"
    )


def test_the_expressions_that_chose_the_tests_are_named() -> None:
    tests = replace(STARTED.tests, correctness_k="80-855 and not dtype2", perf_k="perf")
    command = reproduce(replay([replace(STARTED, tests=tests)]))[1]["command"]
    assert "--correctness-k '80-855 and not dtype2' --perf-k perf" in command
    assert refusal(command) is None
