"""Triton as a backend: what its kernels need of a machine, and what their latency means."""

from __future__ import annotations

import os

from agent.analysis.common.intensity import classify
from agent.analysis.common.kernels import Classification, KernelFunction
from agent.analysis.common.structure import Structure, structure_of
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.signatures import unlaunchable
from agent.analysis.triton.wrapped import decorated
from agent.environment import Environment
from agent.syntax import Source


class TritonBackend:
    """Triton on a GPU, or without one in its interpreter."""

    name = "triton"
    without_gpu: tuple[str, ...] = ()

    def kernels(self, source: Source) -> tuple[KernelFunction, ...]:
        """Every `@triton.jit` function; a helper is launched from nowhere."""
        return TRITON.functions(decorated(source))

    def classify(self, source: Source) -> Classification:
        """Estimate what bounds the launched kernel with the most work."""
        return classify(TRITON, decorated(source))

    def structure(self, source: Source) -> Structure:
        """What the kernel does that the file is tuned for."""
        return structure_of(TRITON, decorated(source))

    def lacks(self, environment: Environment) -> str | None:  # noqa: ARG002
        """Nothing: without a GPU the interpreter runs the kernel."""
        return None

    def unlaunchable(self, source: Source, environment: Environment) -> str | None:
        """Parameters that Triton, or its interpreter, has no way to give."""
        return unlaunchable(source, interpreted=environment.gpu is None)

    def refusal(self, environment: Environment) -> str | None:
        """Only a missing triton, or an old one: without a GPU the interpreter runs the kernel."""
        if environment.versions.get("triton") is None:
            return "triton is not installed: pip install 'tile-agent[triton]'"
        return environment.old_triton

    def latency_meaning(self, environment: Environment) -> str:
        """Kernel time, or the interpreter's wall time, which is no such thing."""
        if environment.gpu is not None:
            return f"the kernel's time on {environment.gpu.name}"
        return "the wall time of Triton's interpreter on this CPU: it ranks nothing for a GPU"

    def worker_environment(self, environment: Environment) -> dict[str, str]:
        """Triton decides at import time whether it interprets.

        On a GPU what its autotuner chooses is kept on disk, so that all workers run the same.
        The interpreter is no part of what torch.compile compiles, and without a GPU that fails on
        "cuda": what is to be compiled there runs as it is, unless the user has said otherwise.
        In the interpreter PyTorch's threads sleep while they have nothing to do, unless the user
        has said what they do: by default they look for work in a loop, on the processor that the
        kernel is timed on.
        """
        if environment.gpu is None:
            policy = os.environ.get("OMP_WAIT_POLICY", "passive")
            eager = os.environ.get("TORCHDYNAMO_DISABLE", "1")
            return {
                "TRITON_INTERPRET": "1",
                "OMP_WAIT_POLICY": policy,
                "TORCHDYNAMO_DISABLE": eager,
            }
        return {"TRITON_CACHE_AUTOTUNING": "1"}
