"""cuTile: launches are captured and compiled without a GPU, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment import probe
from agent.evidence.advice import suggestions
from agent.evidence.compare import changes, ignored_options, unchanged
from agent.evidence.model import Artifact, NotCompiled
from tests.support.evidence import CUTILE, CUTILE_MATMUL, evidence, only

ENVIRONMENT = probe()
pytestmark = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None or ENVIRONMENT.tileiras is None,
    reason="tileiras is not installed",
)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return only(evidence(tmp_path_factory.mktemp("scaled"), CUTILE))


@pytest.mark.full
def test_every_generation(tmp_path: Path) -> None:
    text = CUTILE_MATMUL.replace("torch.float32", "torch.float16")
    found = evidence(tmp_path, text, 80, 90, 100)
    assert [a.sm for a in found.artifacts] == [80, 90, 100]
    mixes = [artifact.instructions for artifact in found.artifacts]
    assert [set(mix.tensor_core) for mix in mixes] == [{"HMMA"}, {"HGMMA"}, {"UTCHMMA"}]
    assert [bool(mix.tma) for mix in mixes] == [False, True, True]
    assert mixes[0].async_copies > 0
    assert len(set(found.digests)) == 3
    for artifact in found.artifacts:
        assert artifact.launch.grid == (1,)
        assert artifact.occupancy is not None
        assert artifact.occupancy.blocks >= 1
        assert artifact.threads in (128, 256)
        assert artifact.stack_bytes == 0
        assert "mmaf" in artifact.listing
        assert any(r.line == 11 and "Tensor Cores" in r.text for r in artifact.remarks)
        assert not suggestions(artifact, multiplies=True)


def test_what_a_launch_shows(scaled: Artifact) -> None:
    launch = scaled.launch
    assert launch.captured
    assert launch.timed
    assert launch.test == "test_kernel.py::test_perf_run"
    assert launch.grid == (1024,)
    assert dict(launch.arguments) == {
        "x": "1-dimensional float32",
        "y": "1-dimensional float32",
        "TILE": "= 1024",
    }
    assert str(launch) == "scale_kernel(TILE=1024)"
    assert scaled.instructions.global_loads == {128: 2}


def test_comments_names_and_places_do_not_count(scaled: Artifact, tmp_path: Path) -> None:
    text = CUTILE.replace("tile = ct.load", "# the tile of this block\n    tile = ct.load")
    text = "# moved down\n\n" + text.replace("scale_kernel", "renamed_kernel")
    other = only(evidence(tmp_path, text))
    assert other.launch.kernel == "renamed_kernel"
    assert other.digest == scaled.digest
    assert not changes(scaled, other)


@pytest.mark.full
def test_other_arithmetic_is_other_code(scaled: Artifact, tmp_path: Path) -> None:
    other = only(evidence(tmp_path, CUTILE.replace("2 * tile", "ct.exp(tile)")))
    assert other.digest != scaled.digest
    assert not unchanged([scaled], [other])
    assert any(line.startswith("special functions 1 -> ") for line in changes(scaled, other))


@pytest.mark.full
def test_a_larger_tile_in_words(scaled: Artifact, tmp_path: Path) -> None:
    other = only(evidence(tmp_path, CUTILE.replace("TILE = 1024", "TILE = 4096")))
    assert "128-bit loads 2 -> 8" in changes(scaled, other)


@pytest.mark.full
def test_another_grid_is_another_launch_of_the_same_code(scaled: Artifact, tmp_path: Path) -> None:
    other = only(evidence(tmp_path, CUTILE.replace("grid = (", "grid = (1 + ")))
    assert other.digest == scaled.digest
    assert not unchanged([scaled], [other])


def test_a_hint_without_effect_is_named(scaled: Artifact, tmp_path: Path) -> None:
    hinted = CUTILE.replace("@ct.kernel", "@ct.kernel(num_worker_warps=4)")
    other = only(evidence(tmp_path, hinted))
    assert dict(other.launch.options) == {"num_worker_warps": "4"}
    assert ignored_options(scaled, other) == ("num_worker_warps=4",)
    assert unchanged([scaled], [other])


@pytest.mark.full
def test_a_hint_given_at_the_launch(tmp_path: Path) -> None:
    text = CUTILE.replace("grid, scale_kernel", "grid, scale_kernel.replace_hints(occupancy=2)")
    assert dict(only(evidence(tmp_path, text)).launch.options) == {"occupancy": "2"}


@pytest.mark.full
def test_an_unaligned_array(tmp_path: Path) -> None:
    text = CUTILE.replace('device="cuda")', 'device="cuda")[1:]').replace("cdiv(x", "cdiv(y")
    artifact = only(evidence(tmp_path, text))
    told = dict(artifact.launch.arguments)["x"]
    assert "address not 16-byte aligned" in told
    assert "extent of axis 0 not divisible by 16" in told
    assert set(artifact.instructions.global_loads) == {32}
    assert any("move less than 64 bits" in s for s in suggestions(artifact, multiplies=False))


@pytest.mark.full
def test_a_product_without_tensor_cores(tmp_path: Path) -> None:
    artifact = only(evidence(tmp_path, CUTILE_MATMUL))
    assert not artifact.instructions.tensor_core
    assert any("using FMA instructions" in remark.text for remark in artifact.remarks)
    assert any("TF32" in line for line in suggestions(artifact, multiplies=True))


@pytest.mark.full
def test_every_config_of_a_tuner(tmp_path: Path) -> None:
    text = CUTILE.replace(
        "    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, y, TILE))",
        """\
    from cuda.tile.tune import exhaustive_search

    tuned = exhaustive_search(
        [256, 512],
        torch.cuda.current_stream(),
        lambda tile: (ct.cdiv(x.shape[0], tile),),
        scale_kernel,
        lambda tile: (x, y, tile),
        lambda tile: {"occupancy": tile // 256},
    )
    tile = tuned.best.config
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, y, tile))""",
    )
    found = evidence(tmp_path, text)
    assert [str(artifact.launch) for artifact in found.artifacts] == [
        "scale_kernel(TILE=256, occupancy=1)",
        "scale_kernel(TILE=512, occupancy=2)",
        "scale_kernel(TILE=256)",
    ]


@pytest.mark.full
def test_without_a_test_the_source_is_read(tmp_path: Path) -> None:
    artifact = only(evidence(tmp_path, CUTILE, test=""))
    assert not artifact.launch.captured
    assert dict(artifact.launch.arguments) == {
        "x": "1-dimensional float32",
        "y": "1-dimensional float32 (type assumed, since float16 does not compile)",
        "TILE": "= 1024",
    }


def test_what_does_not_compile_is_said_with_its_line(tmp_path: Path) -> None:
    found = evidence(tmp_path, CUTILE.replace("2 * tile", "tile.to(ct.float16)"))
    (result,) = found.results
    assert isinstance(result, NotCompiled)
    assert "kernel.py:10" in result.reason
    assert "No such attribute 'to'" in result.reason
    assert found.problems == (f"scale_kernel(TILE=1024) for sm_90: {result.reason}",)


def test_a_compile_that_takes_too_long(tmp_path: Path) -> None:
    (result,) = evidence(tmp_path, CUTILE_MATMUL, compile_s=0.05).results
    assert isinstance(result, NotCompiled)
    assert result.inconclusive
    assert result.reason == "not compiled after 0.05 s: killed; a smaller tile compiles faster"
