"""What keeps a kernel from Tile IR: operations it lacks, and the memory model it has."""

from __future__ import annotations

import pytest

from agent.syntax import Source
from agent.tileir.compatibility import Impact, Obstacle, check, stops
from tests.tileir.kernels import ADD, HEAD, IN_PLACE, KINDS, MATMUL, SOFTMAX, rows

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
