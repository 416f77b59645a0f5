"""Have Triton tune once for each power of two of a size, not for each size.

When: a Triton kernel under `@triton.autotune` whose key names a size that differs between the
    launches of the perf tests: a number of tokens, a sequence length. Not a compile-time constant,
    which is compiled for anew in any case, nor a tuner that leaves out configs by the sizes of a
    launch (`prune_configs_by`).
Do: a parameter `N_bucket` takes the place of the size in the key, and each launch gives it
    `triton.next_power_of_2(n)`. The kernel does not read it.
Risk: none to results. Of the sizes up to a power of two the first one chooses the config for all.
Source: FlagGems tunes by the logarithm of a size (`strategy=["log"]` of its own tuner),
    flash-attention passes `seqlen // 32` as `CACHE_KEY_SEQLEN_Q`, others pass an `M_BUCKET`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import run_time
from agent.analysis.triton.tuners import check_any_will_do, key_of, tuner_of
from agent.launches import ObservedLaunch, values_of
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.trial import TUNED, P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.tuning_key import LaunchSize, bucketed


def _seen(n: int) -> ObservedLaunch:
    return ObservedLaunch("relu_kernel", "test_relu.py::test_perf", (), {"n": n}, {}, {})


class BucketedKey(OfEachKernel):
    """`key=["n"]` -> `key=["n_bucket"]`."""

    name = "bucketed-key"
    title = "buckets in the tuning key"
    backend = "triton"
    family = "tuning"
    priority: ClassVar = {
        KernelClass.COMPUTE: 126,
        KernelClass.BALANCED: 126,
        KernelClass.MEMORY: 126,
    }
    expected = "no latency; sizes up to the same power of two are tuned for once"
    hypothesis = "Sizes that are near each other have the same best config."
    saves = "the time to tune for each size anew"
    opt_in = "it saves the time of tuning and no latency"
    changes_rounding = REORDERED
    idle_in_interpreter = "Triton's interpreter cannot time configs"
    example: ClassVar[Params] = {}
    before = (
        TUNED.replace("    grid", "    n = x.numel()\n    grid")
        .replace("cdiv(x.numel(),", "cdiv(n,")
        .replace("(x, y, x.numel())", "(x, y, n)")
    )
    after = (
        before.replace('key=["n"]', 'key=["n_bucket"]')
        .replace("n, BLOCK: tl.constexpr)", "n, BLOCK: tl.constexpr, n_bucket)")
        .replace("(x, y, n)", "(x, y, n, n_bucket=triton.next_power_of_2(n))")
    )
    observed: ClassVar[tuple[ObservedLaunch, ...]] = (_seen(100000), _seen(120000))

    trial = TritonTrial(
        kernel="relu_kernel",
        types=(P, P, "i32", 1024),
        types_after=(P, P, "i32", 1024, "i32"),
        function="relu",
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Put buckets in place of what differs between launches."""
        source = subject.source
        tuner = tuner_of(source, kernel)
        check_any_will_do(source, tuner)
        key = key_of(source, tuner)[1]
        varying = _varying(subject.launches, kernel, key)
        if not any(launch.kernel == kernel.name for launch in subject.launches):
            raise NotApplicable(f"nobody saw which sizes {kernel.name} is launched with")
        if not varying:
            raise NotApplicable(f"no size in the key of {kernel.name} was seen to differ")
        return bucketed(source, kernel, [LaunchSize(n, n) for n in varying], instead=True)


def _varying(launches: Sequence[ObservedLaunch], kernel: Kernel, key: Sequence[str]) -> list[str]:
    """The sizes of a key that launches differ in; a bool or a flag is none."""
    return [
        name
        for name in key
        if name in run_time(kernel)
        and len(values := values_of(launches, kernel.name, name)) > 1
        and max(values) > 1
    ]
