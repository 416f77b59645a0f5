"""What is written really compiles, for GPUs that this machine need not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.analysis.common.subject import Hardware, Subject
from agent.analysis.cutile.signature import signatures
from agent.backends import detect
from agent.environment import probe
from agent.errors import UsageError
from agent.harness.compiling.configs import compile_configs
from agent.harness.compiling.cutile import compile_file
from agent.playbook.cutile.autotune import kernel_named, plan_for
from agent.syntax import Source
from agent.tuning import SearchPlan
from tests.support.warm_python import warm_interpreter

pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
pytestmark = pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WORKED = ("rms_norm", "matmul", "rope")


def file_of(name: str, kind: str) -> Path:
    return EXAMPLES / f"cutile_autotune_{name}" / f"{name}_{kind}.py"


def plan(file: Path) -> SearchPlan:
    source = Source(file.read_text())
    backend = detect(source)
    assert backend is not None
    subject = Subject(source, backend.classify(source).kernel_class, Hardware())
    return plan_for(subject, kernel_named(source, None))


@pytest.mark.parametrize("name", WORKED)
def test_the_tuned_file_compiles(name: str) -> None:
    check_tuned(name, "sm_90")


@pytest.mark.full
@pytest.mark.parametrize("name", WORKED)
def test_the_tuned_file_compiles_for_other_generations(name: str) -> None:
    check_tuned(name, "sm_80", "sm_100")


def check_tuned(name: str, *targets: str) -> None:
    """As it is imported: with its hints gone from the decorator."""
    file = file_of(name, "tuned")
    found = compile_file(
        Source(file.read_text()), file, python=warm_interpreter(), targets=targets, timeout_s=120
    )
    assert found.ok, list(found.lines())


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("rms_norm", "sm_90"),
        ("matmul", "sm_80"),
        ("matmul", "sm_90"),
        ("matmul", "sm_100"),
        ("matmul", "sm_120"),
    ],
)
def test_the_configs_of_a_search_compile(name: str, target: str) -> None:
    """Those of rope take ten seconds each: `test_a_config_that_does_not_compile_is_an_answer` has
    one of them that does."""
    file = file_of(name, "fixed")
    chosen = plan(file)
    (signature,) = signatures(chosen.form.source)
    configs = chosen.configs_for(int(target.removeprefix("sm_")))
    found = compile_configs(
        signature, file, configs, python=warm_interpreter(), target=target, timeout_s=300
    )
    assert [result.config for result in found] == configs
    assert all(result.ok for result in found), [str(result) for result in found]


@pytest.mark.full
def test_a_config_that_does_not_compile_is_an_answer() -> None:
    file = file_of("rope", "fixed")
    (signature,) = signatures(Source(file.read_text()))
    configs = [{"TILE_S": 48, "occupancy": None}, {"TILE_S": 32, "occupancy": 2}]
    bad, good = compile_configs(
        signature, file, configs, python=warm_interpreter(), target="sm_90", timeout_s=120
    )
    assert not bad.ok
    assert "power" in (bad.error or "")
    assert good.ok
    assert (good.seconds or 0) > 0


def test_what_is_not_done_in_time_is_an_answer() -> None:
    file = file_of("rope", "fixed")
    (signature,) = signatures(Source(file.read_text()))
    found = compile_configs(
        signature, file, [{}, {}], python=warm_interpreter(), target="sm_90", timeout_s=0.05
    )
    assert [result.error for result in found] == ["not done after 0.05 s: killed"] * 2


def test_no_architecture() -> None:
    file = file_of("rope", "fixed")
    (signature,) = signatures(Source(file.read_text()))
    with pytest.raises(UsageError, match="--compile hopper: name an architecture such as sm_90"):
        compile_configs(
            signature, file, [{}], python=warm_interpreter(), target="hopper", timeout_s=60
        )
