"""What a kernel does wrong is reported with its line; what the compiler refuses is refused here."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch

ct = pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")

from tests.tile_cpu.elementwise_programs import kernel_of  # noqa: E402
from tests.tile_cpu.front_end import front_end  # noqa: E402
from tile_agent_pytest.tile_cpu import (  # noqa: E402
    TileCpu,
    UndefinedAccess,
    UninitializedRead,
    UnsupportedOperation,
    grid,
)


def run(kernel: Any, *arguments: Any, blocks: tuple[int, ...] = (1,), **options: Any) -> TileCpu:
    with TileCpu(**options) as cpu:
        ct.launch(torch.cuda.current_stream(), blocks, kernel, arguments)
    return cpu


def line_of(text: str) -> str:
    """Where in this file a text stands, as the messages say it."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    [number] = [n for n, line in enumerate(lines, 1) if line.endswith(f"  {text}")]
    return f"{__file__}:{number}"


# --- accesses ------------------------------------------------------------------------------------


@ct.kernel
def read_unwritten(x, y):
    tile = ct.load(x, (0,), (16,))  # reads what nobody wrote
    ct.store(y, (0,), tile)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_an_uninitialized_read_is_reported_with_its_line(dtype: torch.dtype) -> None:
    with TileCpu():
        x = torch.empty(16, dtype=dtype, device="cuda")
        x[:5] = 0
        y = torch.empty_like(x)
    with pytest.raises(UninitializedRead) as caught:
        run(read_unwritten, x, y)
    assert "reads 11 elements" in str(caught.value)
    assert line_of("# reads what nobody wrote") in str(caught.value)
    run(read_unwritten, x, y, poison=False)


def test_what_was_written_since_is_initialized() -> None:
    with TileCpu():
        x = torch.empty(16, device="cuda").normal_()
        y = torch.empty_like(x)
        ct.launch(torch.cuda.current_stream(), (1,), read_unwritten, (x, y))
        assert torch.equal(x, y)


@ct.kernel
def unchecked(x, y):
    index = ct.arange(16, dtype=ct.int32)
    tile = ct.gather(x, index, check_bounds=False)  # leaves the array
    ct.store(y, (0,), tile)


@ct.kernel
def unchecked_tile(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (16,), check_bounds=False))  # leaves it too


@ct.kernel
def long_slice(x, y):
    ct.store(y, (0,), ct.load(x.slice(0, 2, 18), (0,), (16,)))  # a slice that is too long


@pytest.mark.parametrize(
    ("kernel", "mark", "message"),
    [
        (unchecked, "# leaves the array", "index 10 of dimension #0, which has 10"),
        (unchecked_tile, "# leaves it too", "covers 0 to 15 of dimension #0, which has 10"),
        (long_slice, "# a slice that is too long", "slice 2 to 18 of dimension #0, which has 10"),
    ],
)
def test_an_access_out_of_bounds_is_reported(kernel: Any, mark: str, message: str) -> None:
    with pytest.raises(UndefinedAccess) as caught:
        run(kernel, torch.zeros(10), torch.zeros(16))
    assert message in str(caught.value)
    assert line_of(mark) in str(caught.value)


@ct.kernel
def undetermined(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (16,)))


def test_undetermined_padding_shows() -> None:
    y = torch.zeros(16)
    run(undetermined, torch.ones(10), y)
    assert torch.equal(y[:10], torch.ones(10))
    assert y[10:].isnan().all()


def helper(tile: Any) -> Any:
    return ct.reshape(tile, (3, 5))  # in a helper


@ct.kernel
def through_helper(x, y):
    ct.store(y, (0,), helper(ct.load(x, (0,), (16,))))


def test_the_line_is_that_of_the_helper() -> None:
    with pytest.raises(ct.TileTypeError) as caught:
        run(through_helper, torch.ones(16), torch.zeros(16), blocks=(1, 1))
    assert line_of("# in a helper") in str(caught.value)
    assert "block (0, 0, 0) of through_helper" in str(caught.value)


# --- order of blocks -----------------------------------------------------------------------------


@ct.kernel
def last_one_wins(y):
    ct.scatter(y, 0, ct.bid(0))


def test_the_order_of_blocks_is_shuffled_by_the_seed() -> None:
    def winner(seed: int) -> int:
        y = torch.zeros(1, dtype=torch.int32)
        run(last_one_wins, y, blocks=(64,), seed=seed)
        return int(y)

    winners = [winner(seed) for seed in range(6)]
    assert winners == [winner(seed) for seed in range(6)]
    assert len(set(winners)) > 1


@ct.kernel
def wait_for_ever(flag):
    while ct.atomic_cas(flag, 0, 1, 1).item() == 0:
        pass


def test_waiting_for_another_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MOST_ATOMICS", 100)
    with pytest.raises(UnsupportedOperation, match="wait for another block"):
        run(wait_for_ever, torch.zeros(1, dtype=torch.int32))


# --- what the compiler refuses -------------------------------------------------------------------


def square_product(x: str, y: str, acc: str, rows: int = 16) -> str:
    """`x` is 16 by 16 and `y` is `rows` by 16: they fit where that is 16."""
    tiles = ((16, x), (rows, y), (16, acc))
    return f"ct.mma({', '.join(f'ct.zeros(({n}, 16), ct.{dtype})' for n, dtype in tiles)})"


REFUSED = {
    "shape not a power of two": "ct.full((3,), 0, ct.int32)",
    "reshape to another size": "ct.reshape(a, (8, 4))",
    "shape that is not constant": "ct.zeros((b.item(),), ct.int32)",
    "broadcast that does not fit": "a + ct.zeros((8,), ct.float32)",
    "arange not a power of two": "ct.arange(10, dtype=ct.int32)",
    "cat to another shape": "ct.cat((a, ct.zeros((8,), ct.float32)), 0)",
    "cat of two dtypes": "ct.cat((a, b), 0)",
    "fp16 with bf16": "a.astype(ct.float16) + a.astype(ct.bfloat16)",
    "signed with unsigned": "b + b.astype(ct.uint32)",
    "bits of a float": "a & a",
    "bits of two dtypes": "b & b.astype(ct.int64)",
    "shift by a float": "b << a",
    "arithmetic on booleans": "(a > 0) + (a > 1)",
    "arithmetic on fp8": "a.astype(ct.float8_e5m2) + a.astype(ct.float8_e5m2)",
    "floor of an integer": "ct.floor(b)",
    "axis out of range": "ct.sum(a, axis=1)",
    "permutation with a repetition": "ct.permute(a[:, None], (0, 0))",
    "subscript": "a[0:4]",
    "bitcast to another width": "ct.bitcast(a, ct.int16)",
    "constant out of range": "b.astype(ct.int8) + 300",
    "mma of two dtypes": square_product("float16", "bfloat16", "float32"),
    "mma in a narrow accumulator": square_product("bfloat16", "bfloat16", "bfloat16"),
    "mma of shapes that do not fit": square_product("float16", "float16", "float32", rows=8),
    "cast to e8m0 to nearest": "ct.astype(a, ct.float8_e8m0fnu)",
    "flush_to_zero of fp16": "ct.exp2(a.astype(ct.float16), flush_to_zero=True)",
    "no such axis to expand": "ct.expand_dims(a, 4)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_compiler_refuses_is_refused(name: str) -> None:
    kernel = kernel_of(REFUSED[name], stored=False)
    given = {"a_array": torch.ones(16), "b_array": torch.ones(16, dtype=torch.int32)}
    arguments = [given[parameter] for parameter in inspect.signature(kernel._pyfunc).parameters]
    with pytest.raises(ct.TileError):
        front_end(kernel, arguments)
    with pytest.raises((ct.TileTypeError, ct.TileValueError)) as caught:
        run(kernel, *arguments)
    assert f"{REFUSED[name]}:{2 + len(arguments) + 1}, block" in str(caught.value)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_a_floored_division_of_unsigned_tiles_is_refused(dtype: str) -> None:
    """The front end takes it, and tileiras 13.4 does not: 'divi' has no such rounding there."""
    kernel = kernel_of(
        f"ct.full((16,), 7, ct.{dtype}) // ct.full((16,), 2, ct.{dtype})", stored=False
    )
    with pytest.raises(ct.TileTypeError, match=f"does not compile a // of {dtype}"):
        run(kernel)


@ct.kernel
def narrow_store(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (16,)))


def test_a_store_does_not_narrow() -> None:
    arguments = (torch.ones(16), torch.ones(16, dtype=torch.float16))
    with pytest.raises(ct.TileTypeError):
        front_end(narrow_store, arguments)
    with pytest.raises(ct.TileTypeError, match="cannot implicitly cast float32 to float16"):
        run(narrow_store, *arguments)


# --- arguments -----------------------------------------------------------------------------------


@ct.kernel
def with_constant(x, N: ct.Constant[int], scale):
    ct.store(x, (0,), ct.full((N,), 1, ct.float32) * scale)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(16),), "3 parameters, got 1"),
        ((torch.ones(16), torch.tensor(16), 1.0), "N is a ct.Constant, got Tensor"),
        ((torch.ones(16), 16, 2**40), "does not fit int32"),
    ],
)
def test_arguments_that_do_not_fit(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((TypeError, OverflowError), match=message):
        run(with_constant, *arguments)


@ct.kernel
def with_annotated(
    x,
    maybe: Annotated[ct.Array, ct.ArrayAnnotation(index_dtype=ct.int32)],
    n: ct.ScalarInt64,
    wide: ct.IndexedWithInt64,
):
    ct.store(x, (0,), ct.full((16,), n, ct.float32))


ONES = torch.ones(16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ONES, 0, 1, ONES), "'maybe': ArrayAnnotation/IndexedWithInt64 can only be applied to"),
        ((ONES, None, 1, ONES), "'maybe': ArrayAnnotation/IndexedWithInt64 can only be applied to"),
        ((ONES, ONES, ONES, ONES), "'n': ScalarAnnotation/ScalarInt64 can only be applied to"),
    ],
)
def test_an_annotation_is_for_what_it_says(arguments: tuple[Any, ...], message: str) -> None:
    """A number where an array may be left out is refused once the parameter is annotated."""
    for launched in (run, lambda kernel, *given: front_end(kernel, given)):
        with pytest.raises(TypeError, match=f"Invalid kernel parameter {message}"):
            launched(with_annotated, *arguments)


def test_an_array_of_long_strides_is_an_array() -> None:
    message = "'wide': ArrayAnnotation/IndexedWithInt64 .* list-of-array parameter, got float"
    with pytest.raises(TypeError, match=message):
        run(with_annotated, ONES, ONES, 1, 2.0)


def test_what_is_annotated_as_it_should_be_runs() -> None:
    x = torch.zeros(16)
    run(with_annotated, x, ONES[None], 3, ONES)
    assert torch.equal(x, torch.full((16,), 3.0))


@pytest.mark.parametrize("blocks", [(), (1, 1, 1, 1), (0,), (1.5,), (-1, 2)])
def test_grids_that_do_not_fit(blocks: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="one to three positive integers"):
        run(with_constant, torch.ones(16), 16, 1.0, blocks=blocks)


def test_assumptions_and_assertions_are_checked() -> None:
    @ct.kernel
    def assumes(n):
        ct.assume_divisible_by(n, 16)

    @ct.kernel
    def asserts(x):
        ct.assert_(ct.load(x, (0,), (16,)) > 0, "negative")

    run(assumes, 32)
    with pytest.raises(ct.TileValueError, match="not true"):
        run(assumes, 24)
    run(asserts, torch.ones(16))
    with pytest.raises(AssertionError, match="negative"):
        run(asserts, -torch.ones(16))


def test_nan_is_left_out_of_a_maximum_unless_it_is_asked_for() -> None:
    @ct.kernel
    def largest(x, y):
        tile = ct.load(x, (0,), (16,))
        ct.store(y, (0,), ct.max(tile, axis=0, keepdims=True))
        ct.store(y, (1,), ct.max(tile, axis=0, keepdims=True, propagate_nan=True))

    x, y = torch.arange(16.0), torch.zeros(2)
    x[3] = math.nan
    run(largest, x, y)
    assert y[0] == 15
    assert y[1].isnan()
