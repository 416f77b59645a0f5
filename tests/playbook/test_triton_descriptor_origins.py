"""Descriptors of tiles whose pointer, length or start is told by more than one assignment.

Kernels over packed sequences move their pointers on, and find their length, in one way or another:
the text tells no single value, and all that counts is that it is the same where it is used.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source
from tests.support.triton_numbers import disagreement

ENTRY = playbook.get("tile-descriptors")
BOTH = {"tiles": "loads and stores"}
PACKED = """\
import torch
import triton
import triton.language as tl


@triton.heuristics({"IS_VARLEN": lambda args: args["cu_seqlens"] is not None})
@triton.jit
def chunk_kernel(
    q, k, v, o, cu_seqlens, chunks, T, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, IS_VARLEN: tl.constexpr,
):
    i_v, i_t, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    i_b, i_h = i_bh // H, i_bh % H
    if IS_VARLEN:
        chunks += i_t * 2
        i_n, i_t = tl.load(chunks).to(tl.int32), tl.load(chunks + 1).to(tl.int32)
        cu_seqlens += i_n
        bos, eos = tl.load(cu_seqlens).to(tl.int64), tl.load(cu_seqlens + 1).to(tl.int64)
        T = (eos - bos).to(tl.int32)
    else:
        bos, eos = i_b * T, i_b * T + T
    q += (bos * H + i_h) * K
    k = k + (bos * H + i_h) * K
    o_t = i_t * BT + tl.arange(0, BT)
    m_t = o_t < T
    o_v = i_v * BV + tl.arange(0, BV)
    m_v = o_v < V
    scores = tl.zeros([BT, BT], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        o_k = i_k * BK + tl.arange(0, BK)
        m_k = o_k < K
        p_q = q + o_t[:, None] * (H * K) + o_k[None, :]
        p_k = k + o_k[:, None] + o_t[None, :] * (H * K)
        b_q = tl.load(p_q, mask=m_t[:, None] & m_k[None, :], other=0.0)
        b_k = tl.load(p_k, mask=m_k[:, None] & m_t[None, :], other=0.0)
        scores += tl.dot(b_q, b_k)
    p_v = v + (bos * H + i_h) * V + o_t[:, None] * (H * V) + o_v[None, :]
    b_v = tl.load(p_v, mask=m_t[:, None] & m_v[None, :], other=0.0)
    p_o = o + (bos * H + i_h) * V + o_t[:, None] * (H * V) + o_v[None, :]
    tl.store(p_o, tl.dot(scores, b_v), mask=m_t[:, None] & m_v[None, :])


def run(q, k, v, cu_seqlens, chunks):
    (B, T, H, K), V = q.shape, v.shape[-1]
    BT, BK, BV = 16, 16, 32
    o = torch.zeros_like(v)
    parts = triton.cdiv(T, BT) if chunks is None else len(chunks)
    chunk_kernel[(triton.cdiv(V, BV), parts, B * H)](
        q, k, v, o, cu_seqlens, chunks, T, H=H, K=K, V=V, BT=BT, BK=BK, BV=BV
    )
    return o


def whole(q, k, v):
    return run(q, k, v, None, None)


def packed(q, k, v):
    ends = [0, 5, 5 + 33, q.shape[1]]
    chunks = [(n, i) for n in range(3) for i in range(-(-(ends[n + 1] - ends[n]) // 16))]
    return run(q, k, v, torch.tensor(ends), torch.tensor(chunks))
"""
SHAPES = [
    [[2, 40, 3, 32], [2, 40, 3, 32], [2, 40, 3, 48]],
    [[1, 77, 2, 24], [1, 77, 2, 24], [1, 77, 2, 32]],
]


def rewritten(text: str) -> str:
    return ENTRY.apply(Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=90)), BOTH)


def kernel_of(text: str) -> str:
    return text.partition("def chunk_kernel(")[2].partition("\ndef run(")[0]


@pytest.mark.parametrize("wrapper", ["whole", "packed"])
def test_packed_sequences_give_the_same_numbers(wrapper: str, tmp_path: Path) -> None:
    calls = (
        [[[1, *shape[1:]] for shape in call] for call in SHAPES] if wrapper == "packed" else SHAPES
    )
    assert not disagreement(wrapper, calls, PACKED, [rewritten(PACKED)], False, tmp_path)


def test_descriptors_begin_where_the_pointer_was_moved_to() -> None:
    body = kernel_of(rewritten(PACKED))
    for made in (
        "q_desc = tl.make_tensor_descriptor(q, [T, K], [H * K, 1], [BT, BK])",
        "k_desc = tl.make_tensor_descriptor(k, [T, K], [H * K, 1], [BT, BK])",
        "v_desc = tl.make_tensor_descriptor(",
        "o_desc = tl.make_tensor_descriptor(",
    ):
        assert made in body
    assert body.index("q_desc = ") > body.index("k = k + ")
    assert body.index("q_desc = ") < body.index("for i_k")


def test_the_host_checks_the_alignment_of_what_the_pointer_was_moved_by() -> None:
    fits = rewritten(PACKED).partition("def descriptors_fit(")[2].partition("\n@")[0]
    assert 'args["q"].element_size() * args["K"] % 16 == 0' in fits
    assert 'args["q"].element_size() * args["H"] * args["K"] % 16 == 0' in fits
    assert 'args["v"].element_size() * args["V"] % 16 == 0' in fits
    assert 'args["T"]' not in fits  # the kernel gives it another value


@pytest.mark.full
def test_arrays_that_do_not_fit_go_the_old_way(tmp_path: Path) -> None:
    calls = [[[1, 77, 2, 18], [1, 77, 2, 18], [1, 77, 2, 33]]]  # rows of 72 and 132 bytes
    assert not disagreement("packed", calls, PACKED, [rewritten(PACKED)], False, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        # Moved in one branch only: where it begins is told by no one statement.
        ("    q += (bos * H + i_h) * K\n", "    if H > 1:\n        q += i_h * K\n", "q"),
        # Moved again for each round.
        ("        b_q = tl.load(", "        q += 0\n        b_q = tl.load(", "q"),
        # Another length where the mask is made than where the tile is loaded.
        ("    o_v = i_v * BV", "    T = T + 16\n    o_v = i_v * BV", "every"),
        # Moved by elements, and not by a number.
        (
            "    q += (bos * H + i_h) * K\n",
            "    q += (bos * H + i_h) * K + tl.arange(0, BK)\n",
            "q",
        ),
        # What is loaded may be something else by the time that it is loaded once more.
        ("p_v = v + (bos * H + i_h) * V", "p_v = v + (tl.load(chunks) * H + i_h) * V", "v"),
        # The offset is no multiple of a parameter: nothing says that it is aligned.
        ("    q += (bos * H + i_h) * K\n", "    q += (bos * H + i_h) * K + i_h\n", "every"),
        # A parameter that the kernel changes is not what the host is told.
        ("p_v = v + (bos * H + i_h) * V", "p_v = v + i_b * T", "every"),
        # A stride that the kernel changes.
        (
            "    q += (bos * H + i_h) * K\n",
            "    q += i_h * K\n    T = T * 1\n    H = H + 0\n",
            "every",
        ),
    ],
)
def test_what_is_not_the_same_keeps_its_pointers(old: str, new: str, kept: str) -> None:
    text = PACKED.replace(old, new)
    assert text != PACKED
    try:
        after = rewritten(text)
    except NotApplicable:
        assert kept == "every"
        return
    assert kept != "every"
    assert f"{kept}_desc = " not in kernel_of(after)
