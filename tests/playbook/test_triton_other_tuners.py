"""Kernels that another tuner than a `@triton.autotune` above them tunes."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.analysis.triton.tuners import left_to_tuners, shown_of_tuned
from agent.syntax import Source

KERNEL = """\
import torch
import triton
import triton.language as tl
from library import libtuner, made, tuned_here
from triton import Config

CONFIGS = [Config({{}}, num_warps=w) for w in (4, 16)]
own = libtuner(configs=made())


{decorator}
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, 2 * x, mask=offsets < n)


{wrapper}


def scale(x):
    y = torch.empty_like(x)
    n = x.numel()
    block = triton.next_power_of_2(n)
    {launched}[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block})
    return y
"""
DECORATORS = {
    "@libtuner(configs=made(), key=['n'])": "`libtuner` at line 11",
    "@libtuner(CONFIGS, ['n'])": "`libtuner` at line 11",
    "@libtuner([triton.Config({}, num_warps=4)] + CONFIGS, ['n'])": "`libtuner` at line 11",
    "@own": "`own` at line 11",
    "@tuned_here": "`tuned_here` at line 11",
    "@triton.heuristics({})\n@libtuner(configs=made())": "`libtuner` at line 12",
}
OWN = "tuned = own(scale_kernel)"
WRAPPERS = {
    "tuned = triton.autotune(CONFIGS, key=['n'])(scale_kernel)": "triton.autotune",
    "tuned = libtuner(configs=made())(triton.heuristics({})(scale_kernel))": "libtuner",
    "tuned = triton.runtime.Autotuner(scale_kernel, ['n'], CONFIGS, ['n'])":
        "triton.runtime.Autotuner",
    OWN: "libtuner",
    "scale_kernel = made_tuner()(scale_kernel)": "made_tuner",
}  # fmt: skip
SETTING = (
    "warps-and-stages", "warps-by-row", "block-size", "blocks-and-warps", "add-autotune",
    "scaled-blocks", "row-in-registers", "rows-per-program",
)  # fmt: skip
OF_TUNERS = ("widen-configs", "tuning-key", "bucketed-key", "prune-configs")


def text_of(decorator: str, wrapper: str, block: str = "512", launched: str = "tuned") -> str:
    filled = KERNEL.format(decorator=decorator, wrapper=wrapper, block=block, launched=launched)
    return filled.replace("\n\n\n\n@", "\n\n\n@")


def refusal(name: str, text: str) -> str:
    with pytest.raises(NotApplicable) as refused:
        playbook.get(name).variants(Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90)))
    return str(refused.value)


@pytest.mark.parametrize("block", ["512", "block"])
@pytest.mark.parametrize("name", SETTING)
@pytest.mark.parametrize("decorator", DECORATORS)
def test_its_launch_is_left_alone(name: str, decorator: str, block: str) -> None:
    text = text_of(decorator, "", block, "scale_kernel")
    assert f"{DECORATORS[decorator]} tunes scale_kernel" in refusal(name, text)


@pytest.mark.parametrize("name", ["warps-and-stages", "warps-by-row", "add-autotune"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_so_it_is_where_a_call_wraps_the_kernel(name: str, wrapper: str) -> None:
    text = text_of("", wrapper, "block")
    made = "own = libtuner(configs=made())" if wrapper == OWN else wrapper
    line = text.splitlines().index(made) + 1
    assert f"`{WRAPPERS[wrapper]}` at line {line} tunes scale_kernel" in refusal(name, text)


def test_so_it_is_where_a_function_wraps_another_name_of_it() -> None:
    chosen = "chosen = scale_kernel\n    if n > 64:\n        "
    chosen += "chosen = triton.autotune(configs=made(), key=['n'])(chosen)"
    text = text_of("", "", launched="chosen").replace("    n = x", f"    {chosen}\n    n = x")
    text = text.replace("    n = x.numel()\n", "").replace("(x):\n", "(x):\n    n = x.numel()\n")
    line = next(i for i, said in enumerate(text.splitlines(), 1) if "autotune" in said)
    for name in ("warps-and-stages", "add-autotune", *OF_TUNERS):
        assert f"`triton.autotune` at line {line} tunes scale_kernel" in refusal(name, text)


@pytest.mark.parametrize("name", OF_TUNERS)
def test_its_configs_are_left_alone(name: str) -> None:
    text = text_of("@libtuner(configs=CONFIGS, key=['n'])", "", launched="scale_kernel")
    assert "`libtuner` at line 11 tunes scale_kernel" in refusal(name, text)


LIBRARY = """\
import triton

asked = []


def libtuner(configs, key=()):
    asked.extend((config.num_warps, config.num_stages) for config in configs)
    return lambda kernel: kernel


def made():
    return [triton.Config({}, num_warps=4, num_stages=2)]


def tuned_here(kernel):
    return kernel
"""


@pytest.mark.parametrize(
    ("decorator", "wrapper", "asked"),
    [
        ("@libtuner(configs=made(), key=['n'])", "", [(4, 2), (8, 2)]),
        ("@libtuner(CONFIGS, ['n'])", "", [(4, 3), (8, 3), (16, 3)]),
        ("", "tuned = libtuner(configs=made())(scale_kernel)", [(4, 2), (8, 2)]),
        ("", OWN, [(4, 2), (8, 2)]),
    ],
)
def test_its_configs_are_given_other_warps(
    decorator: str,
    wrapper: str,
    asked: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The tuner is a library's own, and what it is told is what Triton's would be told."""
    monkeypatch.setitem(sys.modules, "library", library := ModuleType("library"))
    exec(LIBRARY, vars(library))
    text = text_of(decorator, wrapper, launched="tuned" if wrapper else "scale_kernel")
    if wrapper != OWN:
        text = text.replace("own = libtuner(configs=made())\n", "")
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90))
    entry = playbook.get("config-options")
    assert {"num_warps": 8} in entry.variants(subject)
    file = tmp_path / "kernel.py"
    file.write_text(entry.apply(subject, {"num_warps": 8}))
    runpy.run_path(str(file))
    assert library.asked == asked


def test_a_tuner_that_hides_its_configs_is_named() -> None:
    text = text_of("@tuned_here", "", launched="scale_kernel")
    text = text.replace("own = libtuner(configs=made())\n", "")
    told = "`tuned_here` at line 10 tunes scale_kernel, which does not show its configs"
    assert refusal("config-options", text) == told


@pytest.mark.parametrize("decorator", ["", "@triton.heuristics({})", "@made()"])
def test_other_decorators_tune_nothing(decorator: str) -> None:
    entry = playbook.get("warps-and-stages")
    text = text_of(decorator, "", launched="scale_kernel")
    assert entry.variants(Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90)))


@pytest.mark.parametrize(
    ("decorator", "among"),
    [
        ("@libtuner(configs=CONFIGS, key=['n'])", "2 configs"),
        ("@triton.autotune([Config({}), Config({}), Config({})], key=['n'])", "3 configs"),
        (
            "@triton.autotune([Config({}, w, s) for w in (4, 8) for s in [1, 2, 3]], [])",
            "6 configs",
        ),
        ("@triton.autotune([Config({}, w) for w in (4, 8) if w], [])", "the configs"),
        ("@triton.autotune([*CONFIGS, Config({})], [])", "the configs"),
        ("@libtuner(configs=made())", "the configs"),
        ("@made()", ""),
    ],
)
def test_what_is_shown_is_one_of_its_configs(decorator: str, among: str) -> None:
    source = Source(text_of(decorator, "", launched="scale_kernel"))
    told = f"scale_kernel is shown with 1 of {among} that the tuner at line 11 has"
    assert list(shown_of_tuned(source, {"scale_kernel": 1})) == ([told] if among else [])
    assert not list(shown_of_tuned(source, {"other": 1}))
    if among[:1].isdigit():
        assert not list(shown_of_tuned(source, {"scale_kernel": 7}))
    several = told.replace("with 1", "with 2")
    assert list(shown_of_tuned(source, {"scale_kernel": 2})) == (
        [] if among in ("", "2 configs") else [several]
    )


def test_a_tuner_sets_what_no_launch_gives() -> None:
    text = """\
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr, TURNED: tl.constexpr):
    pass


k[(1,)](x, 4, TURNED=1)
"""
    assert left_to_tuners(Source(text)) == {"k": {"BLOCK"}}
    assert left_to_tuners(Source(text.replace("4, TURNED=1", "*given"))) == {}
