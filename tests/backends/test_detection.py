"""Finding kernels and launches by what the names mean."""

from __future__ import annotations

from textwrap import dedent

import pytest

from agent.analysis.common.kernels import KernelFunction
from agent.backends import BACKENDS, detect
from agent.syntax import Source


def kernels(text: str, backend: str) -> dict[str, KernelFunction]:
    found = Source(dedent(text))
    detected = detect(found)
    assert detected is not None
    assert detected.name == backend
    return {kernel.name: kernel for kernel in detected.kernels(found)}


@pytest.mark.parametrize(
    ("imports", "decorator", "constant"),
    [
        ("import triton, triton.language as tl", "triton.jit", "tl.constexpr"),
        ("import triton as t\nimport triton.language as T", "t.jit", "T.constexpr"),
        ("from triton import jit\nfrom triton.language import constexpr", "jit", "constexpr"),
        ("import triton, triton.language as tl", "triton.jit(debug=True)", "tl.constexpr"),
        ("import triton, triton.language as tl", "triton.jit", '"tl.constexpr"'),
    ],
)
def test_triton_by_any_name(imports: str, decorator: str, constant: str) -> None:
    text = (
        f"{imports}\n@{decorator}\ndef k(p, n, B: {constant}):\n    pass\n"
        "def run(x):\n    k[(1,)](x, 1, B=2)\n"
    )
    expected = KernelFunction("k", 3 + imports.count("\n"), ("p", "n", "B"), ("B",), ("run",))
    assert kernels(text, "triton") == {"k": expected}


@pytest.mark.parametrize(
    ("imports", "ct"),
    [
        ("import cuda.tile as ct", "ct."),
        ("import cuda.tile", "cuda.tile."),
        ("from cuda import tile", "tile."),
        ("from cuda.tile import kernel, launch, Constant", ""),
    ],
)
@pytest.mark.parametrize("options", ["", "()", "(occupancy=2)"])
def test_cutile_by_any_name(imports: str, ct: str, options: str) -> None:
    text = f"""\
{imports}
@{ct}kernel{options}
def k(x, N: {ct}Constant[int]):
    pass
def run(x, stream):
    {ct}launch(stream, (1,), k, (x, 64))
"""
    assert kernels(text, "cutile") == {"k": KernelFunction("k", 3, ("x", "N"), ("N",), ("run",))}


def test_cutile_launched_with_other_hints() -> None:
    found = kernels(
        """
        import cuda.tile as ct

        @ct.kernel
        def k(x): ...

        def run(x, stream):
            tuned = k.replace_hints(occupancy=2)
            ct.launch(stream, (1,), tuned, (x,))

        def direct(x, stream):
            ct.launch(stream, (1,), k.replace_hints(occupancy=4), (x,))
        """,
        "cutile",
    )
    assert found["k"].launched_from == ("run", "direct")


def test_cutile_under_a_tuner() -> None:
    found = kernels(
        """
        import cuda.tile as ct

        @ct.kernel
        def k(x): ...

        def run(x, stream, cache):
            result = ct.tune.exhaustive_search([1, 2], stream, lambda c: (1,), k, lambda c: (x,))
            cache[x.shape] = result
        """,
        "cutile",
    )
    assert found["k"].launched_from == ("run",)


def test_kernels_that_are_handed_on_are_not_said_to_be_launched() -> None:
    """As of kernl, whose functions are given the kernel that they launch."""
    found = kernels(
        """
        import triton

        @triton.jit
        def one(x): ...

        @triton.jit
        def two(x): ...

        @triton.jit
        def three(x): ...

        def run(x, kernel=one):
            if kernel == two:
                x = x + 1
            kernel[(1,)](x)

        def other(x):
            three[(1,)](x)
        """,
        "triton",
    )
    told = {name: (k.launched_from, k.in_sight) for name, k in found.items()}
    assert told["three"] == (("other",), True)
    assert told["two"] == (("run",), False)
    assert not told["one"][1]


def test_helpers_autotuning_methods_and_comments() -> None:
    found = kernels(
        """
        import triton
        import triton.language as tl

        # @triton.jit def commented(): ...
        TEXT = "@triton.jit"

        @triton.jit
        def helper(x):
            return x * 2

        @triton.autotune(configs=[triton.Config({"B": 64})], key=["n"])
        @triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
        @triton.jit
        def k(p, n, B: tl.constexpr, EVEN: tl.constexpr):
            tl.store(p, helper(n))

        class Op:
            def forward(self, x):
                k[lambda meta: (triton.cdiv(4, meta["B"]),)](x, 4)

            def again(self, x):
                torch.library.wrap_triton(k)[(1,)](x, 4)

        import torch

        def not_a_launch(table):
            table[0](1)

        k[(1,)](None, 4)
        """,
        "triton",
    )
    assert found["helper"].launched_from == ()
    assert found["k"].constants == ("B", "EVEN")
    assert found["k"].launched_from == ("Op.forward", "Op.again", "<module>")


def test_a_file_without_kernels_has_no_backend() -> None:
    assert detect(Source("import triton\ndef jit(f): return f\n@jit\ndef k(): ...\n")) is None
    assert detect(Source("")) is None


def test_the_language_that_is_launched_wins() -> None:
    text = """
import triton
import cuda.tile as ct

@ct.kernel
def a(x): ...

@triton.jit
def b(x): ...

b[(1,)](None)
"""
    found = detect(Source(text))
    assert found is BACKENDS["triton"]
