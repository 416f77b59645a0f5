"""What a kernel is called with and what is right: options of several commands, and their meaning.

`verify`, `tileir verify` and `tileir bench` judge by the same engine,
`agent.harness.kernel_calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.options import Options

if TYPE_CHECKING:
    from agent.harness.kernel_calls import KernelCalls
    from agent.syntax import Source
    from agent.tileir.job import Reference

REFERENCE = typer.Option(
    "--reference",
    help="What is right: an expression over the arguments and torch, or FILE.py:function, "
    "which is given them by name where it has all the names. Of several results, None stands for "
    "one that is not compared.",
)
SHAPES = typer.Option(
    help='JSON, argument -> shape or value: {"x": ["N", 4096], "eps": 1e-5}. '
    "A letter stands for each of --sizes."
)
Function = Annotated[
    str | None,
    typer.Option(
        help="Which function to call, or Class.apply of an autograd function; the one that "
        "launches when left out."
    ),
]
Dtypes = Annotated[
    str | None, typer.Option(help='JSON, argument -> dtype: {"x": "bfloat16"}; else float32.')
]
Sizes = Annotated[
    str | None, typer.Option(help="What letters in --shapes stand for; else 128,1024,8192.")
]
Rtol = Annotated[float | None, typer.Option(help="Relative tolerance; else by the dtype.")]
Atol = Annotated[float | None, typer.Option(help="Absolute tolerance; else by the dtype.")]


@dataclass(frozen=True)
class Asked:
    """The values of these options."""

    reference: str
    shapes: str
    dtypes: str | None = None
    function: str | None = None
    sizes: str | None = None
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class ProcessLimits:
    """How a kernel's process is run; see `agent.tileir.job.Job`."""

    python: str
    timeout_s: float
    options: Options = field(default_factory=Options)
    stop: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def read(
    source: Source, kernel: Path, asked: Asked, limits: ProcessLimits, *, ragged: bool
) -> KernelCalls:
    """What is to be run and compared.

    Raises:
        UsageError: an option that cannot be meant so.
    """
    from agent.environment import probe
    from agent.harness.kernel_calls import KernelCalls
    from agent.harness.tile_ir import read_machine
    from agent.tileir.call import read_call, read_sizes
    from agent.tileir.job import Job

    right = _right(asked)
    call = read_call(
        source,
        function=asked.function,
        shapes=asked.shapes,
        dtypes=asked.dtypes,
        sizes=read_sizes(asked.sizes),
        ragged=ragged,
    )
    job = Job(
        file=kernel,
        call=call,
        python=limits.python,
        machine=read_machine(probe().gpu, limits.python, ask_stock=False),
        timeout_s=limits.timeout_s,
        stop=limits.stop,
        variables=limits.variables,
        options=limits.options,
    )
    return KernelCalls(job, right)


def _right(asked: Asked) -> Reference:
    from agent.errors import UsageError
    from agent.tileir.job import Reference

    text = asked.reference
    file, _, function = text.rpartition(":")
    if file.endswith(".py"):
        if not Path(file).is_file():
            raise UsageError(f"--reference {text}: {file} is no file")
        return Reference(file=Path(file), function=function, rtol=asked.rtol, atol=asked.atol)
    try:
        compile(text, "--reference", "eval")
    except SyntaxError as problem:
        raise UsageError(
            f"--reference is no expression ({problem.msg}): write one such as "
            "'torch.softmax(x, -1)', or FILE.py:function"
        ) from None
    return Reference(expression=text, rtol=asked.rtol, atol=asked.atol)
