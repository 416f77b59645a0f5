"""What has no translation is refused in one line: the construct, its line, and what to do."""

import pytest

from agent.porting import NotPortable, port

FILE = """\
import torch
import triton
import triton.language as tl

STEP = -1


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    {body}
    tl.store(y_ptr + i, x)


def run(x):
    y = torch.empty_like(x)
    {launch}
    return y
"""
LAUNCH = "kernel[(1,)](x, y, 8, BLOCK=8)"
BODIES = {
    "x = tl.sort(x)": "`tl.sort`",
    "x = tl.erf(x)": "`tl.erf`",
    "x = tl.load(tl.load(x_ptr) + i)": "an address that is computed",
    "x = tl.load((x_ptr if n > 3 else y_ptr) + i)": "an address whose array is chosen",
    "x = x % 1.5 if False else x.to(tl.float32) % 1.5": "the remainder of floats",
    "x = tl.load(x_ptr + i, volatile=True)": "a volatile load",
    "x = tl.load(tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (8,), (0,)))": "`tl.make_block_ptr`",
    "x = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + i)": "`tl.pointer_type`",
    "x = x[0]": "a subscript that picks elements",
    "x = sum([x, x])": "`sum`",
    "x = x if 0 < n < 3 else x": "a chain of comparisons",
    "x = tl.inline_asm_elementwise('', '', [x], tl.int32, True, 1)": "`tl.inline_asm_elementwise`",
    "x = x if x_ptr is not None else x": "None",
    "x = x * ((i > 0) + (i < 3))": "`+` of booleans",
    "c = 1e300; x = x * c": "a variable with a number out of fp32's range",
    "x = [a for a in (x,)][0]": "a list comprehension",
}
LOOPS = {
    "for k in range(4, 0, -1):\n        x += k": "a loop that counts down",
    "for k in range(4, 0, STEP):\n        x += k": "a loop that counts down",
    "while tl.atomic_cas(y_ptr, 0, 1) == 1:\n        pass": "a loop that waits for another program",
    "with tl.scope('a'):\n        x += 1": "`with` in a kernel",
}
LAUNCHES = {
    "kernel[(1,)](*(x, y), 8, BLOCK=8)": "a launch with `*`",
    "kernel[(1,)](x, y, 8, BLOCK=8, occupancy=2)": "a launch with `occupancy=`",
    "kernel[(1,)](x, y, BLOCK=8)": "a launch that does not pass every parameter",
    "print(kernel[(1,)](x, y, 8, BLOCK=8))": "a launch inside of an expression",
    "if x.numel(): kernel[(1,)](x, y, 8, BLOCK=8)": "a launch beside another statement",
    "n = 8; kernel[(1,)](x, y, n, BLOCK=8)": "a launch beside another statement",
    "kernel[1, *xs](x, y, 8, BLOCK=8)": "a grid that is no tuple in parentheses",
    "kernel[(1,)](x, xs.pop(), 8, BLOCK=8)": "an array that is computed within the launch",
    "kernel[(1,)](x, None, 8, BLOCK=8)": "None passed for a pointer",
    "kernel[(1,)](x, y, 'a', BLOCK=8)": "None or a string passed to a kernel",
    "kernel[(1,)](x, x, 8, BLOCK=8)": "the same tensor given twice",
    "kernel.warmup(x, y, 8, 8, grid=(1,))": "a kernel used without a launch",
    "triton.testing.do_bench(lambda: 0)": "`triton.testing.do_bench` in host code",
}


def refused(text: str) -> NotPortable:
    with pytest.raises(NotPortable) as found:
        port(text, "kernel.py")
    message = str(found.value)
    assert "\n" not in message
    assert " is not ported: " in message
    assert message.startswith(f"kernel.py:{found.value.line}: ")
    return found.value


@pytest.mark.parametrize(("body", "construct"), {**BODIES, **LOOPS}.items())
def test_in_a_kernel(body: str, construct: str) -> None:
    found = refused(FILE.format(body=body, launch=LAUNCH))
    assert construct in found.construct
    assert 11 < found.line < 15


def test_a_function_of_another_file_is_named_as_that() -> None:
    text = "from .utils import combine\n" + FILE.format(body="x = combine(x, x)", launch=LAUNCH)
    assert str(refused(text)).endswith(
        "`combine` (.utils.combine) is not ported: it is of another file: copy it into this one"
    )


@pytest.mark.parametrize(("launch", "construct"), LAUNCHES.items())
def test_in_host_code(launch: str, construct: str) -> None:
    assert construct in refused(FILE.format(body="pass", launch=launch)).construct


@pytest.mark.parametrize(
    ("decorator", "construct"),
    {
        "@triton.autotune(configs=make(), key=[])": "`@triton.autotune` whose configs are computed",
        "@triton.heuristics(TABLE)": "`@triton.heuristics` that are no table",
        "@libentry()": "a decorator that is not Triton's",
    }.items(),
)
def test_a_decorator(decorator: str, construct: str) -> None:
    text = FILE.format(body="pass", launch=LAUNCH).replace(
        "@triton.jit", f"{decorator}\n@triton.jit"
    )
    assert refused(text).construct == construct


@pytest.mark.parametrize(
    ("decorator", "said"),
    {
        "@staticmethod": "(@staticmethod) is not ported: make the kernel a function of the module",
        "@own.autotune([triton.Config({'BLOCK': 8}), triton.Config({'BLOCK': 16})], ['n'])": (
            "(@own.autotune) is not ported: write one config into the launches, and take it off "
            "the kernel"
        ),
        "@search(configs=[triton.Config({'BLOCK': 8})])": (
            "(@search) is not ported: write one config into the launches, and take it off the "
            "kernel"
        ),
        "@logged(level=3)": (
            "(@logged) is not ported: take it off the kernel, and write what it gives to the "
            "launches into them"
        ),
    }.items(),
)
def test_a_decorator_is_named_without_its_arguments(decorator: str, said: str) -> None:
    text = FILE.format(body="pass", launch=LAUNCH).replace(
        "@triton.jit", f"{decorator}\n@triton.jit"
    )
    assert str(refused(text)).endswith(f"a decorator that is not Triton's {said}")


def test_the_first_config_and_heuristics_are_taken() -> None:
    text = FILE.format(body="pass", launch="kernel[lambda META: (n // META['BLOCK'],)](x, y, n)")
    text = text.replace("    y = torch.empty_like(x)", "    n, y = x.numel(), torch.empty_like(x)")
    text = text.replace(
        "@triton.jit",
        "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, num_warps=2),"
        " triton.Config({'BLOCK': 128})], key=['n'])\n@triton.jit",
    )
    made = port(text, "kernel.py")
    assert "blocks = tuple((lambda META: (n // META['BLOCK'],))({\"BLOCK\": 64}))" in made.text
    assert "flat(x), flat(y), n, 64)" in made.text
    assert any("first config" in note for note in made.notes)


def test_a_grid_of_nothing_is_not_launched() -> None:
    """Triton launches nothing then, and cuTile refuses it."""
    assert "if 0 not in blocks:" in port(FILE.format(body="pass", launch=LAUNCH), "k.py").text


def test_a_default_whose_name_means_something_else_at_the_launch() -> None:
    text = FILE.format(body="pass", launch="BLOCK = 4\n    kernel[(1,)](x, y, 8)")
    text = text.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = BLOCK")
    text = text.replace("STEP = -1", "BLOCK = STEP = min(8, 16)")
    assert "means something else" in refused(text).construct


def test_a_table_of_heuristics_may_be_made_by_a_call() -> None:
    text = FILE.format(body="pass", launch="kernel[(1,)](x, y, 8)")
    table = '{"BLOCK": lambda args: triton.next_power_of_2(args["n"])}'
    call = 'dict(BLOCK=lambda args: triton.next_power_of_2(args["n"]))'
    written = text.replace("@triton.jit", f"@triton.heuristics({table})\n@triton.jit")
    made = text.replace("@triton.jit", f"@triton.heuristics(values={call})\n@triton.jit")
    assert port(made, "kernel.py").text == port(written, "kernel.py").text
    unknown = made.replace("dict(", "dict(**MORE, ")
    assert "that are no table" in refused(unknown).construct


def test_a_heuristic_that_reads_what_the_launch_computes() -> None:
    text = FILE.format(body="pass", launch="kernel[(1,)](x, y, xs.pop())")
    heuristics = '@triton.heuristics({"BLOCK": lambda args: args["n"]})'
    text = text.replace("@triton.jit", f"{heuristics}\n@triton.jit")
    assert "a heuristic's function" in refused(text).construct


def test_what_decorators_and_defaults_call_is_translated_or_refused() -> None:
    text = FILE.format(body="pass", launch="kernel[(1,)](x, y, 8)")
    rounded = text.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = triton.cdiv(16, 2)")
    assert "flat(y), 8, cdiv(16, 2))" in port(rounded, "kernel.py").text
    other = text.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = triton.runtime.cache(8)")
    assert "in host code" in refused(other).construct
