"""cuTile as a backend: what its kernels need of a machine, and what their latency means."""

from __future__ import annotations

from agent.analysis.common.intensity import classify
from agent.analysis.common.kernels import Classification, KernelFunction
from agent.analysis.common.structure import Structure, structure_of
from agent.analysis.cutile.dialect import CUTILE
from agent.environment import Environment
from agent.syntax import Source

OLDEST_DRIVER = 580
OLDEST_SM = 80
WITHOUT_GPU = "`tile-agent verify`, `tile-agent explain` and `pytest --tile-cpu` work without"


class CuTileBackend:
    """cuTile on an NVIDIA GPU; there is no interpreter."""

    name = "cutile"
    without_gpu: tuple[str, ...] = ("--tile-cpu",)

    def kernels(self, source: Source) -> tuple[KernelFunction, ...]:
        """Every `@cuda.tile.kernel` function."""
        return CUTILE.functions(source)

    def classify(self, source: Source) -> Classification:
        """Estimate what bounds the launched kernel with the most work."""
        return classify(CUTILE, source)

    def structure(self, source: Source) -> Structure:
        """What the kernel does that the file is tuned for."""
        return structure_of(CUTILE, source)

    def lacks(self, environment: Environment) -> str | None:
        """A GPU that is new enough, or its driver."""
        return lacks_gpu(environment)

    def unlaunchable(self, source: Source, environment: Environment) -> str | None:  # noqa: ARG002
        """Nothing that the source shows: the linter says what cuTile does not compile."""
        return None

    def refusal(self, environment: Environment) -> str | None:
        """The first thing missing of a GPU, its driver, cuda-tile and tileiras."""
        if refusal := lacks_gpu(environment):
            return refusal
        if environment.versions.get("cuda-tile") is None:
            return "cuda-tile is not installed: pip install 'tile-agent[cutile]'"
        if environment.tileiras is None:
            return "tileiras, cuTile's compiler, is missing: pip install 'tile-agent[cutile]'"
        return None

    def latency_meaning(self, environment: Environment) -> str:
        """Kernel time on the GPU."""
        where = environment.gpu.name if environment.gpu else "the GPU that will run it"
        return f"the kernel's time on {where}"

    def worker_environment(self, environment: Environment) -> dict[str, str]:  # noqa: ARG002
        """Nothing."""
        return {}


def lacks_gpu(environment: Environment) -> str | None:
    """Why this machine's hardware and driver cannot run a kernel, with the mend; None if they can.

    Compiling needs neither.
    """
    gpu = environment.gpu
    if gpu is None:
        return f"cuTile runs on an NVIDIA GPU only, and none is visible; {WITHOUT_GPU}"
    if gpu.sm < OLDEST_SM:
        return f"cuTile needs compute capability 8.0; {gpu.name} has {gpu.sm / 10:.1f}"
    if _release(gpu.driver) < OLDEST_DRIVER:
        return (
            f"cuTile needs driver r{OLDEST_DRIVER} or later, this is {gpu.driver}: update it; "
            f"{WITHOUT_GPU}"
        )
    return None


def _release(driver: str) -> int:
    """The branch of a driver version: 580 of '580.159.04'; 0 when it cannot be read."""
    head = driver.partition(".")[0]
    return int(head) if head.isdigit() else 0
