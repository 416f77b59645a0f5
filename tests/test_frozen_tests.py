"""What a worker's pytest is given, so that it collects the tests that it is to run."""

from __future__ import annotations

import pytest

from agent.frozen_tests import TestPlan
from tile_agent_pytest.bench_command import BenchCommand

PLAN = TestPlan(
    (
        "tests",
        "other/test_two.py::TestOne",
        "other/test_two.py::test_single[1]",
        "other/test_slow_to_import.py",
    ),
    (),
    (),
    benches=("python bench.py",),
)


@pytest.mark.parametrize(
    ("nodeids", "arguments"),
    [
        (["tests/a/test_a.py::test_x[1]", "tests/a/test_a.py::test_y"], ["tests/a/test_a.py"]),
        (["other/test_two.py::TestOne::test_a"], ["other/test_two.py::TestOne"]),
        (
            ["other/test_two.py::test_single[1]", "tests/test_b.py::test_single[2]"],
            ["other/test_two.py::test_single[1]", "tests/test_b.py"],
        ),
        (["other/test_two.py::TestOneMore::test_a"], ["other/test_two.py"]),
        ([], []),
    ],
)
def test_nothing_else_is_imported(nodeids: list[str], arguments: list[str]) -> None:
    assert list(PLAN.arguments_with(nodeids)) == arguments


def test_files_elsewhere_are_given_as_they_were() -> None:
    """Their tests' ids are relative to a folder that pytest is not run in."""
    plan = TestPlan(("/elsewhere/call_tests.py",), (), ())
    assert plan.arguments_with(["call_tests.py::test_case[0]"]) == plan.arguments
    everything = TestPlan((".",), (), ())
    assert everything.arguments_with(["tests/test_a.py::test"]) == ("tests/test_a.py",)


def test_a_script_is_given_where_it_is_wanted() -> None:
    nodeid = BenchCommand.parse("python bench.py").nodeid
    assert PLAN.arguments_for([nodeid]) == PLAN.arguments[-1:]
    assert PLAN.arguments_with([nodeid, "tests/test_b.py::test"]) == (
        "tests/test_b.py",
        PLAN.arguments[-1],
    )
