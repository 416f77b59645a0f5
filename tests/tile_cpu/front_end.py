"""cuda.tile's own front end, to Tile IR and no further: no GPU and no tileiras are needed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import cuda.tile as ct
import torch
from cuda.tile import compilation

from tile_agent_pytest.tile_cpu.dtypes import dtype_of


def constraint(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return compilation.ScalarConstraint(ct.int32)
    return compilation.ArrayConstraint(
        dtype_of(argument.dtype),
        argument.dim(),
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
    )


def front_end(kernel: Any, arguments: Sequence[Any]) -> None:
    """Raises what the compiler would say of a launch with these arguments."""
    convention = compilation.CallingConvention.cutile_python_v2()
    signature = compilation.KernelSignature([constraint(a) for a in arguments], convention)
    compilation.export_kernel(
        kernel, [signature], io.BytesIO(), gpu_code="sm_100", output_format="tileir_bytecode"
    )
