"""Which memory a second run of a Triton kernel would find changed."""

from __future__ import annotations

import pytest

from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.arguments import rewritten, updated
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source
from tests.tileir.kernels import GROUPED_PRODUCT, described, rows


def written_again(text: str) -> tuple[str, ...]:
    source = Source(text)
    (kernel,) = TRITON.kernels(source)
    return rewritten(source, kernel)


def test_what_a_descriptor_adds_to() -> None:
    assert written_again(GROUPED_PRODUCT) == ("sums_ptr",)


def test_what_a_pointers_own_atomic_adds_to() -> None:
    assert written_again(rows("(y_ptr + cols).atomic_add(x, mask=mask)")) == ("y_ptr",)


def test_a_gather_reads_and_a_scatter_writes() -> None:
    both = described("at = tl.arange(0, ROWS)\ndesc.scatter(desc.gather(at, col), at, col)")
    assert written_again(both) == ("x_ptr",)
    apart = described("at = tl.arange(0, ROWS)\nout.scatter(desc.gather(at, col), at, col)")
    assert written_again(apart) == ()


def test_a_lock_that_is_a_method() -> None:
    with pytest.raises(NotApplicable, match="may wait for another program"):
        written_again(rows("lock_ptr.atomic_cas(0, 1)", parameters="lock_ptr"))


@pytest.mark.parametrize(
    ("load", "found"),
    [
        ("y = tl.load(y_ptr + cols, mask=mask)", {"y_ptr"}),
        ("if n_cols > 3:\n    y = tl.load(y_ptr + cols, mask=mask)", set()),
        ("y = x", set()),
    ],
)
def test_what_is_surely_read_and_written_in_place(load: str, found: set[str]) -> None:
    source = Source(rows(f"{load}\ntl.store(y_ptr + cols, x, mask=mask)"))
    (kernel,) = TRITON.kernels(source)
    assert updated(source, kernel) == found


def test_a_view_is_what_it_is_taken_of() -> None:
    text = rows("tl.store(y_ptr + cols, x, mask=mask)")
    launch = "\n\ndef run(x, y, n):\n    rows_kernel[(1,)](x, {y}, n, BLOCK=16)\n"
    assert written_again(text + launch.format(y="y")) == ()
    assert written_again(text + launch.format(y="x.view(-1)")) == ("y_ptr",)
