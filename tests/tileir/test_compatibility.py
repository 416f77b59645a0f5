"""What keeps a kernel from Tile IR: operations it lacks, and the memory model it has."""

from __future__ import annotations

import pytest

from agent.syntax import Source
from agent.tileir.compatibility import Impact, Obstacle, check, stops
from tests.tileir.kernels import (
    ADD,
    GROUPED_PRODUCT,
    HEAD,
    IN_PLACE,
    KINDS,
    MATMUL,
    SOFTMAX,
    described,
    rows,
)

STORE = "tl.store(y_ptr + row, tl.sum(x, axis=0))"


def findings(text: str) -> tuple[Obstacle, ...]:
    return check(Source(text))


def stop(text: str) -> str:
    (found,) = stops(findings(text))
    return found.text


def note(text: str) -> str:
    (found,) = findings(text)
    assert found.severity is Impact.NOTE
    return found.text


@pytest.mark.parametrize("text", [ADD, SOFTMAX, KINDS["reduction"], KINDS["data movement"]])
def test_nothing_is_in_the_way_of_plain_kernels(text: str) -> None:
    assert not findings(text)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('x = tl.inline_asm_elementwise("ex2", "=f,f", [x], tl.float32, True, 1)', "inline PTX"),
        ("x = tl.erf(x)", "math.erf"),
        ("x = tl.math.erf(x)", "math.erf"),
        ("x = tl.histogram(x, 2)", "histograms"),
        ("tl.debug_barrier()", "orders no accesses"),
    ],
)
def test_what_stops(line: str, said: str) -> None:
    assert said in stop(rows(f"{line}\n{STORE}"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x = tl.gather(x, cols, 0)", "before CUDA 13.4 no tl.gather"),
        ("x = tl.extra.libdevice.tanh(x)", "no libdevice before CUDA 13.4"),
        ('x = x.to(tl.float16, fp_downcast_rounding="rtz")', "no rounding towards zero"),
        ("x = tl.map_elementwise(combine, x)", "before CUDA 13.4 no tl.map_elementwise"),
        ('x = tl.dot_scaled(cols, n, "e4m3", cols, n, "e4m3")', "no tl.dot_scaled"),
        ("if row > n:\n    return", "a return inside a branch"),
    ],
)
def test_what_depends(line: str, said: str) -> None:
    assert said in note(rows(f"{line}\n{STORE}"))


def test_an_import_of_libdevice_is_seen_through() -> None:
    head = HEAD.replace(
        "import triton.language as tl\n",
        "import triton.language as tl\nfrom triton.language.extra import libdevice\n",
    )
    assert "libdevice" in note(rows(f"x = libdevice.tanh(x)\n{STORE}", head=head))
    assert "math.erf" in stop(rows(f"x = libdevice.erf(x)\n{STORE}", head=head))


def test_a_reduction_that_does_more_than_combine() -> None:
    combine = "@triton.jit\ndef combine(a, b):\n    tl.device_print('a', a)\n    return a + b\n\n\n"
    text = rows("tl.store(y_ptr + row, tl.reduce(x, 0, combine))").replace(
        "@triton.jit", combine + "@triton.jit", 1
    )
    assert "pure functions only" in stop(text)
    assert "device_print" in stop(text)


def test_in_place() -> None:
    assert stop(IN_PLACE) == ("writes x_ptr, which line 10 reads: Tile IR does not order the two")


def test_in_place_through_a_pointer_of_its_own_and_a_helper() -> None:
    helper = "@triton.jit\ndef put(p, v, mask):\n    tl.store(p, v, mask=mask)\n\n\n"
    text = rows("here = x_ptr + row * n\nhere += cols\nput(here, 2 * x, mask)").replace(
        "@triton.jit", helper + "@triton.jit", 1
    )
    assert "writes x_ptr" in stop(text)


def test_what_two_pointers_are_advanced_by_is_no_pointer() -> None:
    text = ADD.replace("    x = tl.load(x_ptr + offsets, mask=mask)\n", "").replace(
        "    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)\n",
        "    here = x_ptr + offsets\n    there = out_ptr + offsets\n"
        "    for _ in range(4):\n"
        "        tl.store(there, tl.load(here, mask=mask), mask=mask)\n"
        "        here += BLOCK * 1\n        there += BLOCK * 1\n",
    )
    assert not findings(text)


def test_one_tensor_for_two_pointers() -> None:
    same = ADD.replace("(x, y, out, x", "(x, y, x, x")
    assert "out_ptr and x_ptr are the same tensor, x" in stop(same)
    view = ADD.replace("out = torch.empty_like(x)", "out = x.view(-1)")
    assert "are the same tensor, x" in stop(view)
    assert not findings(ADD.replace("(x, y, out, x", "(x, x, out, x"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while tl.atomic_cas(lock_ptr, 0, 1) == 1:\n    pass\n" + STORE, "a lock: atomic_cas"),
        (STORE + "\ntl.atomic_xchg(lock_ptr, 0)", "a lock: atomic_xchg"),
        ("ticket = tl.atomic_add(lock_ptr, 1)\ntl.store(y_ptr + ticket, x)", "a ticket"),
        (
            "tl.atomic_add(y_ptr + cols[:, None], tl.dot(x[:, None], x[None, :]))",
            "split-K: blocks add up one tile by atomic_add",
        ),
    ],
)
def test_blocks_that_wait_for_one_another(body: str, said: str) -> None:
    assert any(said in f.text for f in stops(findings(rows(body, parameters="lock_ptr"))))


def test_a_sum_over_blocks_is_allowed() -> None:
    assert "no bfloat16" in note(rows("tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))"))


def test_a_dot_that_loads_through_pointers_is_slow() -> None:
    found = findings(MATMUL)
    assert {f.kind for f in found} == {"speed"}
    assert len({f.line for f in found}) == 2
    assert not stops(found)


def test_block_pointers_are_missing() -> None:
    body = (
        "p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))\n"
        "tl.store(y_ptr + cols, tl.load(p) + x, mask=mask)"
    )
    assert "block pointers: use tl.make_tensor_descriptor" in stop(rows(body))


# --- tensor descriptors -------------------------------------------------------------------------

LOADED = "out.store([row, col], desc.load([row, col]))"


def test_split_k_through_a_descriptor_is_stopped() -> None:
    assert stop(GROUPED_PRODUCT) == "split-K: blocks add up one tile by a descriptor's atomic_add"


def test_a_descriptor_that_is_handed_over_is_one_too() -> None:
    text = GROUPED_PRODUCT.replace("sums_ptr, rows", "sums, rows").replace(
        "    sums = tl.make_tensor_descriptor(sums_ptr, [rows, cols], [cols, 1], [R, C])\n", ""
    )
    assert "a descriptor's atomic_add" in stop(text)


def test_an_atomic_that_is_a_method_of_a_pointer() -> None:
    body = "(y_ptr + cols[:, None]).atomic_add(tl.dot(x[:, None], x[None, :]))"
    assert stop(rows(body)) == "split-K: blocks add up one tile by atomic_add"
    assert "a lock: atomic_xchg" in stop(rows(f"{STORE}\nlock_ptr.atomic_xchg(0)",
                                              parameters="lock_ptr"))  # fmt: skip


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("out.atomic_add([row, col], desc.load([row, col]))", "no atomic_add through a desc"),
        ("out.atomic_max([row, col], desc.load([row, col]))", "of floats not after it either"),
        (
            "at = tl.arange(0, ROWS)\nout.store([row, col], desc.gather(at, col))",
            "no gathers through a descriptor (TMA gather)",
        ),
        (
            "at = tl.arange(0, ROWS)\nout.scatter(desc.load([row, col]), at, col)",
            "no scatters through a descriptor (TMA scatter)",
        ),
        (
            "x = desc.load([row, col])\nout.store([row, col], x + tl.sum(x).reshape(1).item())",
            "no a tile's only element as a scalar",
        ),
        (
            "x = desc.load([row, col])\nout.store([row, col], x.gather(tl.arange(0, ROWS), 0))",
            "no tl.gather",
        ),
        (
            "out.store([row, col], desc.load([row.to(tl.int64), col]))",
            "no 64-bit coordinates",
        ),
        ("out.store([row, col], desc.load([row + 1, col]))", "`row + 1`, not seen to be"),
        ("out.store([row, col], desc.load([row, n - COLS]))", "one of COLS, is rounded down"),
    ],
)
def test_what_descriptors_cannot_do(body: str, said: str) -> None:
    assert said in note(described(body))


@pytest.mark.parametrize(
    "body",
    [
        LOADED,
        "for at in range(0, n, COLS):\n    out.store([row, at], desc.load([row, at]))",
        "for i in range(0, tl.cdiv(n, COLS)):\n"
        "    out.store([row, i * COLS], desc.load([row, COLS * i]))",
        "at = 0\nfor _ in range(4):\n    out.store([row, at], desc.load([row, at]))\n"
        "    at += COLS",
        "at = m - n\ntl.assume(at % COLS == 0)\nout.store([row, at], desc.load([row, at]))",
        "at = tl.multiple_of(m, COLS)\nout.store([row, at], desc.load([row, at]))",
        "out.store([row, col], desc.load([row, col.to(tl.int64).to(tl.int32)]))",
    ],
)  # fmt: skip
def test_offsets_that_are_multiples_of_the_tile(body: str) -> None:
    assert not findings(described(body))


@pytest.mark.parametrize(("made", "count"), [(', padding_option="nan"', 1), (', "zero"', 0)])
def test_padding_of_the_kernels_own(made: str, count: int) -> None:
    found = findings(described(LOADED, made=made))
    assert [f.kind for f in found] == ["descriptor"] * count


def test_padding_of_the_hosts_descriptor_and_its_tile() -> None:
    text = (
        HEAD.replace(
            "import triton.language as tl\n",
            "import triton.language as tl\n"
            "from triton.tools.tensor_descriptor import TensorDescriptor\n",
        )
        + """\
@triton.jit
def shift_kernel(source, out_ptr, n, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH
    tl.store(out_ptr + at + tl.arange(0, WIDTH), source.load([at + 1]))


def shift(x):
    out = torch.empty_like(x)
    source = TensorDescriptor.from_tensor(x, [64], padding="nan")
    shift_kernel[(triton.cdiv(x.numel(), 64),)](source, out, x.numel(), WIDTH=64)
    return out
"""
    )
    texts = " ".join(f.text for f in findings(text))
    assert "no padding: zero is loaded past an end" in texts
    assert "`at + 1`, not seen to be one of WIDTH" in texts.replace("one of 64", "one of WIDTH")


# --- hints --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [(2, None), (10, None), (16, "outside of the second"), (64, "outside of both"), (0, "of both")],
)
def test_the_ranges_of_occupancy(value: int, said: str | None) -> None:
    text = ADD.replace("BLOCK=64)", f"BLOCK=64, occupancy={value})")
    config = ADD.replace(
        "@triton.jit",
        f'@triton.autotune([triton.Config({{"occupancy": {value}}})], key=["n"])\n@triton.jit',
    )
    for each in (text, config):
        found = findings(each)
        assert ([f.text for f in found if said and said in f.text] != []) is (said is not None)
        assert {f.kind for f in found} <= {"hint"}


def test_hints_that_are_passed_by() -> None:
    loop = "for i in tl.range(0, n, warp_specialize=True):\n    tl.store(y_ptr + i, x, mask=mask)"
    assert "warp_specialize is passed by" in note(rows(loop))
    assert not findings(rows(loop.replace("True", "False")))


def test_slicing_by_hand() -> None:
    product = described(
        "x = tl.dot(desc.load([row, col]), desc.load([row, col]).T)\nout.store([row, col], x)"
    )
    assert not findings(product)
    sliced = product.replace("COLS: tl.constexpr)", "COLS: tl.constexpr, EPILOGUE_SUBTILE: "
                             "tl.constexpr)")  # fmt: skip
    assert "slicing the tile by hand" in note(sliced)
    split = product.replace("out.store([row, col], x)", "a, b = tl.split(x)\n    "
                            "out.store([row, col], a)")  # fmt: skip
    assert "slicing the tile by hand" in note(split)
