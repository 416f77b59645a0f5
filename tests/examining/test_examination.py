"""A callable that is timed, examined, and timed again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from tile_agent_pytest.examining.examination import Examination  # noqa: E402
from tile_agent_pytest.examining.tensors import digest  # noqa: E402
from tile_agent_pytest.launch_detector import LaunchDetector  # noqa: E402


@pytest.mark.parametrize("seed", [2, 3])  # one leaves the inputs where they are, one moves them
def test_after_a_look_at_its_result_the_test_s_own_bytes_are_timed(
    tmp_path: Path, seed: int
) -> None:
    x, seen = torch.randn(1000), []

    def doubled(x: Any) -> Any:
        seen.append((x.data_ptr(), digest(x)))
        return x * 2

    examination = Examination(
        partial(doubled, x), LaunchDetector("kernel.py"), "kernel.py", tmp_path, lambda: None
    )
    examination.first()
    examination.pick(seed, lambda: [float(bool(examination.call() is not None))])
    examination.show()
    examination.rest()
    examination.call()
    first, picked, after = seen
    assert picked[1] != first[1]
    assert after == first


def test_what_is_changed_in_place_on_other_bytes_alone_is_a_result_too(tmp_path: Path) -> None:
    """As a rotary embedding of the first position is, which turns by no angle.

    It reads the first half of its cosines, for the second is the same.
    """
    x, cos = torch.randn(100), torch.ones(200)
    kept = x.clone()

    def turned() -> Any:
        return x.mul_(cos[:100])

    examination = Examination(
        turned, LaunchDetector("kernel.py"), "kernel.py", tmp_path, lambda: None
    )
    examination.first()
    seen = [examination.examine({"seed": seed}) for seed in (2, 4, 2)]
    assert seen[0]["written"] == [" x"] and seen[0]["changed"] == []
    assert seen[0]["inputs"] == seen[2]["inputs"]
    examination.close()
    assert torch.equal(x, kept)


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU, and torch sees none"
)
@pytest.mark.parametrize("elements", [2**25, 2**29])  # three blocks of 2 GiB are too many
def test_what_nothing_writes_is_the_same_for_everybody(tmp_path: Path, elements: int) -> None:
    """As of a public attention that writes half of the columns of what it makes.

    The first call takes memory that is new, the second one what the first one gave back.
    """
    x = torch.randn(elements // 2, device="cuda")

    def half_written() -> Any:
        made = torch.empty(elements, device="cuda")
        made[: elements // 2] = x
        return made

    examination = Examination(
        half_written, LaunchDetector("kernel.py"), "kernel.py", tmp_path, lambda: None
    )
    examination.first()
    for _ in range(2):
        examination.examine({"seed": 2})
        (result,) = examination._results.values()
        assert torch.isnan(result[elements // 2 :]).all()
        torch.cuda.empty_cache()
    examination.close()


def test_without_a_launch_new_memory_holds_nothing_that_may_be_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a public rotary embedding that turns by no angle: it gives back what it is given, and
    a copy of that, which a look at it had made, lay where its result was to be."""
    monkeypatch.setattr("tile_agent_pytest.examining.examination.make_known", lambda _: None)
    x = torch.randn(1000)
    examination = Examination(
        lambda: torch.empty_like(x), LaunchDetector("kernel.py"), "kernel.py", tmp_path, lambda: 0
    )
    examination.first()
    examination.examine({"seed": 3, "special": True, "idle": True, "fill": None})
    (result,) = examination._results.values()
    assert torch.isnan(result).all()
    examination.examine({"seed": 3, "idle": True, "fill": 0})
    (result,) = examination._results.values()
    assert (result == 0).all()
    examination.close()


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU, and torch sees none"
)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_gpu_rests_when_the_inputs_are_given_back(tmp_path: Path, seed: int) -> None:
    """A gigabyte, which takes longer to copy than the answer takes to the other arm."""
    x = torch.zeros(2**28, device="cuda")
    examination = Examination(
        partial(torch.neg, x), LaunchDetector("kernel.py"), "kernel.py", tmp_path, lambda: None
    )
    examination.first()
    examination.pick(seed, lambda: [float(bool(examination.call() is not None))])
    examination.show()
    examination.rest()
    assert torch.cuda.current_stream().query()
    assert torch.cuda.default_stream().query()
    examination.close()
