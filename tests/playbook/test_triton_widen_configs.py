"""`widen-configs` where configs set more than block sizes: what is held, and what is refused."""

from __future__ import annotations

import re

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.playbook import for_backend
from agent.syntax import Source

PRODUCT = """
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
{configs}
    ],
    key=["M", "N", "K"],
)
@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    group = pid // (GROUP * across)
    height = min(tl.cdiv(M, BM) - group * GROUP, GROUP)
    row = group * GROUP + pid % (GROUP * across) % height
    col = pid % (GROUP * across) // height
    rows = row * BM + tl.arange(0, BM)
    cols = col * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * K + ks[None, :],
            mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * N + cols[None, :],
            mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0,
        )
        acc += tl.dot(a, b)
    tl.store(
        c_ptr + rows[:, None] * N + cols[None, :], acc,
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


def multiply(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device)
    grid = lambda META: (triton.cdiv(M, META["BM"]) * triton.cdiv(N, META["BN"]),)
    product[grid](a, b, c, M, N, K)
    return c
"""


def tuned(*configs: str) -> str:
    lines = [f"        triton.Config({{{config}}}, num_warps=4)," for config in configs]
    return PRODUCT.replace("{configs}", "\n".join(lines))


def widened(*configs: str) -> str:
    return widened_text(tuned(*configs))


def widened_text(text: str) -> str:
    source = Source(text)
    subject = Subject(source, KernelClass.COMPUTE, Hardware(sm=90))
    (entry,) = (e for e in for_backend("triton") if e.name == "widen-configs")
    (variant,) = entry.variants(subject)
    return entry.apply(subject, variant)


def config(m: int, n: int, k: int, group: int) -> str:
    return f'"GROUP": {group}, "BM": {m}, "BN": {n}, "BK": {k}'


def test_a_group_of_programs_stays_what_most_configs_set() -> None:
    given = (config(64, 128, 32, 8), config(128, 64, 64, 8), config(64, 64, 32, 4))
    text = widened(*given)
    groups = re.findall(r'"GROUP": (\d+)', text)
    assert len(groups) > 10
    assert groups[:3] == ["8", "8", "4"]
    assert {*groups[3:]} == {"8"}
    assert '{"GROUP": 8, "BM": 128, "BN": 256, "BK": 64}' in text


@pytest.mark.parametrize(
    "given",
    [
        (config(64, 128, 32, 8),),
        (config(64, 64, 32, 4), config(128, 128, 64, 8)),
        (config(64, 64, 32, 4), config(64, 128, 64, 4)),  # BM may have to be 64 for 4
    ],
)
def test_a_constant_that_may_belong_to_a_block_size_is_not_carried_over(
    given: tuple[str, ...],
) -> None:
    with pytest.raises(NotApplicable, match="GROUP of product is more than a block size"):
        widened(*given)


def test_configs_that_the_file_uses_otherwise_stay() -> None:
    given = (config(64, 128, 32, 8), config(128, 64, 64, 8), config(64, 64, 32, 4))
    head, _, rest = tuned(*given).partition("@triton.autotune(\n    configs=")
    listed, _, rest = rest.partition(",\n    key=")
    named = f"{head}CONFIGS = {listed}\n\n\n@triton.autotune(\n    CONFIGS,\n    key={rest}"
    assert widened_text(named).count("triton.Config(") > 10
    assert widened_text(f"{named}\n\nFIRST = CONFIGS[0]\n").count("triton.Config(") > 10
    for use in ("LAST = CONFIGS[-1]", "assert len(CONFIGS) == 3", "SOME = list(CONFIGS)\nf(SOME)"):
        with pytest.raises(NotApplicable, match="uses the configs of product otherwise"):
            widened_text(f"{named}\n\n{use}\n")


def test_configs_that_a_function_of_this_tuner_lists_are_added_to() -> None:
    given = (config(64, 128, 32, 8), config(128, 64, 64, 8), config(64, 64, 32, 4))
    head, _, rest = tuned(*given).partition("@triton.autotune(\n    configs=")
    listed, _, rest = rest.partition(",\n    key=")
    made = f"def configs():\n    return {listed}\n\n\n"
    asked = f"{head}{made}@triton.autotune(\n    configs(),\n    key={rest}"
    found = widened_text(asked)
    assert found.count("triton.Config(") > 10
    assert found.index("GROUP") > found.index("return [")
    with pytest.raises(NotApplicable, match="no list in this file"):
        widened_text(f"{asked}\n\nSOME = configs()[:2]\n")


def test_constants_by_a_call_of_dict_are_written_so() -> None:
    given = (config(64, 128, 32, 8), config(128, 64, 64, 8), config(64, 64, 32, 4))
    text = re.sub(r'"(\w+)": (\d+)', r"\1=\2", tuned(*given))
    text = re.sub(r"Config\(\{(.*?)\}", r"Config(dict(\1)", text)
    assert "triton.Config(dict(GROUP=8, BM=64, BN=128, BK=32), num_warps=4)" in text
    found = widened_text(text)
    assert "triton.Config(dict(GROUP=8, BM=128, BN=256, BK=64)" in found
    assert "Config({" not in found
