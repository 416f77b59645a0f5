"""The compiler of cuda-tile as the judge of what lint says: it needs no GPU to refuse a kernel."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    KernelSignature,
    ScalarConstraint,
)

from agent.analysis.cutile.signature import Parameter, ParameterKind, signatures
from agent.syntax import Source

HEAD = "import math\nimport os\n\nimport torch\n\nimport cuda.tile as ct\n\n"


def refusal(text: str, folder: Path, *, through: str = "tileir_bytecode") -> str | None:
    """Why cuTile does not compile the last kernel of a file; None when it does.

    `through="cubin"` asks tileiras too, which has to be installed.
    """
    path = folder / "kernel_under_test.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernel_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        signature = signatures(Source(text))[-1]
        ct.compilation.export_kernel(
            getattr(module, signature.kernel),
            [
                KernelSignature(
                    [_constraint(p) for p in signature.parameters],
                    CallingConvention.cutile_python_v2(),
                )
            ],
            io.BytesIO(),
            gpu_code="sm_90",
            output_format=through,
        )
    except (ct.TileError, TypeError, ValueError) as problem:
        return str(problem)
    return None


def _constraint(parameter: Parameter) -> object:
    if parameter.kind is ParameterKind.CONSTANT:
        return parameter.value
    if parameter.kind is ParameterKind.SCALAR:
        return ScalarConstraint(getattr(ct, parameter.dtype))
    ndim = max(parameter.ndim, 1)
    return ArrayConstraint(
        ct.float32,
        ndim,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(None,) * (ndim - 1) + (1,),
    )
