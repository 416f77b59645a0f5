"""The hints of kernels on rows, set together: what of them applies, and where none is."""

from __future__ import annotations

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable
from tests.support.rewriting import subject

ENTRY = playbook.get("row-hints")
TEXT = ENTRY.before
PADDED = TEXT.replace("PaddingMode.ZERO", "PaddingMode.NEG_INF")  # TMA fills with zeros alone
GATHERED = (
    TEXT.replace(
        "ct.load(x, (row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)",
        "ct.gather(x, (row, ct.arange(N, dtype=ct.int32)))",
    )
    .replace("ct.store(y, index=(row, 0), tile=", "ct.scatter(y, (row, ct.arange(N)), ")
    .replace("axis=1", "axis=0")
)


@pytest.mark.parametrize(
    ("text", "without"),
    [(TEXT, ["loads and stores", "stores"]), (PADDED, ["stores"]), (GATHERED, [None])],
    ids=["loads", "padded", "gathered"],
)
def test_what_needs_no_tma_is_told(text: str, without: list[str | None]) -> None:
    variants = list(ENTRY.variants(subject(text)))
    assert [v.get("without_tma") for v in variants if v["occupancy"] == 16][: len(without)] == (
        without
    )
    assert len({ENTRY.apply(subject(text), params) for params in variants}) == len(variants)
    new = ENTRY.apply(subject(text), variants[0])
    assert new.count("allow_tma=False") == (2 if without[0] == "loads and stores" else 1) * (
        without != [None]
    )
    assert "static_shape_dims=(-1,)" in new


def test_what_is_set_stays() -> None:
    text = TEXT.replace("@ct.kernel\n", "@ct.kernel(occupancy=4, num_worker_warps=4)\n")
    new = ENTRY.apply(
        subject(text), {"occupancy": 16, "without_tma": "stores", "num_worker_warps": 8}
    )
    assert "@ct.kernel(occupancy=16, num_worker_warps=8)" in new
    assert new.count("allow_tma=False") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (playbook.get("tile-sizes").before, "matmul_kernel multiplies tiles"),
        (playbook.get("persistent-blocks").after, "the grid of double_kernel decides"),
        (playbook.get("autotune").after, "gelu_kernel is tuned"),
        (
            ENTRY.after.replace("occupancy=8", "occupancy=4"),
            "nothing but the occupancy is left to set",
        ),
    ],
)
def test_kernels_that_it_is_not_for(text: str, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        ENTRY.variants(subject(text))


def both_kernels(product: str = "left @ right") -> str:
    """The file of the example with a second kernel, which multiplies tiles."""
    kernel = (
        "@ct.kernel\ndef product_kernel(x, y, I: ct.Constant[int]):\n"
        "    right = ct.load(x, (0, 0), (16, 16)).astype(ct.float32)\n"
        "    left = ct.gather(y, (ct.arange(16)[:, None], ct.arange(16)[None, :]))\n"
        f"    ct.store(y, (0, 0), ({product}).astype(y.dtype))\n\n\n"
    )
    launch = "    ct.launch(torch.cuda.current_stream(), (1,), product_kernel, (x, y, 1))\n"
    return TEXT.replace("def rms(x", f"{kernel}def rms(x").replace(
        "    return y", f"{launch}    return y"
    )


def test_of_several_kernels_those_on_rows_get_them() -> None:
    text = both_kernels()
    new = ENTRY.apply(subject(text), next(iter(ENTRY.variants(subject(text)))))
    rows, product = new.split("def product_kernel")
    assert "@ct.kernel(occupancy=8)\ndef rms_kernel(x: StaticRow" in rows
    assert rows.endswith("@ct.kernel\n")
    assert "allow_tma" in rows and "allow_tma" not in product


@pytest.mark.parametrize(
    ("product", "how"),
    [
        ("right @ right", "which TMA loads"),
        ("left @ right", "of which it gathers some and TMA loads others"),
        ("ct.matmul(left.astype(ct.float32), ct.transpose(left))", "which it gathers"),
    ],
)
def test_a_refusal_says_how_the_tiles_are_loaded(product: str, how: str) -> None:
    text = both_kernels(product)
    alone = (
        text[: text.index("@ct.kernel\ndef rms_kernel")]
        + text[text.index("@ct.kernel\ndef product") :]
    )
    alone = "\n".join(line for line in alone.splitlines() if "rms_kernel" not in line) + "\n"
    for name in ("row-hints", "check-bounds"):
        with pytest.raises(NotApplicable, match=f"product_kernel multiplies tiles, {how}"):
            playbook.get(name).variants(subject(alone))
