"""Which launches are compiled where there are more than a command compiles."""

from pathlib import Path

from tile_agent_pytest.launches import RecordedLaunch, RecordedTensor, chosen


def launch(kernel: str, size_bytes: int, config: str = "") -> RecordedLaunch:
    tensor = RecordedTensor("x", "float32", (size_bytes // 4,), size_bytes)
    key = (kernel, size_bytes, config)
    return RecordedLaunch(key, kernel, {}, {"config": config}, _nothing, tensors=(tensor,))


def _nothing(_target: str, _folder: Path) -> dict[str, str]:
    return {}


def test_of_each_kernel_the_largest_come_first() -> None:
    small = [launch("forward", 400, config) for config in "abc"]
    large = [launch("forward", 4000, config) for config in "abc"]
    other = launch("backward", 40)
    launches = [*small, *large, other]
    assert chosen(launches, 2) == [large[0], other]
    assert chosen(launches, 4) == [*large, other]
    assert chosen(launches, 5) == [small[0], *large, other]  # in the order of the tests
    assert chosen(launches, 99) == launches
