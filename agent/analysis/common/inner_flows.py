"""A constant in the helpers that a kernel gives it to."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.constant_flow import Flow, is_multiple_of
from agent.analysis.common.dialect import callees, given_to
from agent.syntax import descendants


def inner_flows(flow: Flow) -> Iterator[Flow]:
    """The same constant in each helper that is given it or a multiple; none that calls itself."""
    kernels = {kernel.function: kernel for kernel in flow.dialect.kernels(flow.source)}
    for call in descendants(flow.body, cst.Call):
        helper = flow.source.function_of(call.func)
        if helper not in kernels or helper in callees(flow.source, helper):
            continue
        for name, value in given_to(helper, call).items():
            if is_multiple_of(value, flow.sizes):
                yield Flow(flow.dialect, flow.source, kernels[helper], name)
