"""The values that compile evidence is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from agent.evidence.occupancy import Occupancy, occupancy
from agent.evidence.remarks import Remark
from agent.evidence.sass import InstructionMix
from agent.evidence.tokens import Wait
from agent.launches import ObservedLaunch


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that a launch is given."""

    name: str
    dtype: str
    """PyTorch's name: bfloat16."""
    shape: tuple[int, ...]
    size_bytes: int
    """Of the elements that have an address of their own."""


@dataclass(frozen=True)
class TimedWork:
    """What one timing covers, whatever code its launches compile to."""

    test: str
    """The pytest node id."""
    config: str
    """What the test calls the timing; 'forward' where it gives no name."""
    launches: tuple[tuple[str, tuple[int, ...]], ...]
    """Kernel and grid, each pair once."""
    tensors: tuple[TensorArgument, ...]
    """Each once, also where it is both read and written."""

    @property
    def tensor_bytes(self) -> int:
        """The device memory traffic of a kernel that touches each element once."""
        return sum(tensor.size_bytes for tensor in self.tensors)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names, each once."""
        return tuple(dict.fromkeys(kernel for kernel, _ in self.launches))


@dataclass(frozen=True)
class CompiledLaunch:
    """What a kernel is compiled for."""

    kernel: str
    arguments: tuple[tuple[str, str], ...]
    """Parameter -> what the compiler is told of it."""
    options: tuple[tuple[str, str], ...] = ()
    """Compiler options that the launch or the decorator gives."""
    grid: tuple[int, ...] = ()
    test: str = ""
    """The test that launches it; empty when the signature was read from the source."""
    timed: bool = False
    """Whether a perf test does."""
    tensors: tuple[TensorArgument, ...] = ()
    """Of that test's first launch: equal code may be launched on others elsewhere."""
    observed: ObservedLaunch | None = field(default=None, compare=False)
    """What that launch was given; None where it was not seen."""

    @property
    def captured(self) -> bool:
        """Whether a launch showed it; else it rests on assumptions about the source."""
        return bool(self.test)

    def __str__(self) -> str:
        constants = [(n, v.removeprefix("= ")) for n, v in self.arguments if v.startswith("= ")]
        settings = [f"{name}={value or repr('')}" for name, value in (*constants, *self.options)]
        return f"{self.kernel}({', '.join(settings)})"


@dataclass(frozen=True)
class Artifact:
    """One launch compiled for one GPU."""

    launch: CompiledLaunch
    sm: int
    """Compute capability times ten: 90 is Hopper."""
    registers: int
    """A thread, when the kernel starts."""
    stack_bytes: int
    """A thread; above zero when registers are spilled."""
    shared_bytes: int
    """A block, static and dynamic."""
    threads: int
    """A block; 0 where the cubin does not fix it."""
    instructions: InstructionMix
    digest: str
    """Of the machine code and what it needs; names, lines and debug information do not count."""
    cubin_bytes: int
    compile_s: float
    remarks: tuple[Remark, ...] = ()
    waits: tuple[Wait, ...] = ()
    """Of cuTile: accesses that tokens order after a store or an atomic."""
    listing: str = field(default="", repr=False)
    """Tile IR, or PTX."""

    @property
    def target(self) -> str:
        """'sm_90'."""
        return f"sm_{self.sm}"

    @property
    def occupancy(self) -> Occupancy | None:
        """Theoretical; None for an architecture whose limits are not known here."""
        return occupancy(self.sm, self.registers, self.threads, self.shared_bytes)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without the listing."""
        value = asdict(self)
        del value["listing"], value["launch"]["observed"]
        found = self.occupancy
        return value | {
            "launch": {
                **value["launch"],
                "arguments": dict(self.launch.arguments),
                "options": dict(self.launch.options),
                "captured": self.launch.captured,
            },
            "instructions": self.instructions.to_json(),
            "occupancy": found and found.to_json(),
        }


@dataclass(frozen=True)
class NotCompiled:
    """A launch that gave no artifact."""

    launch: CompiledLaunch
    sm: int
    reason: str
    """One line."""
    inconclusive: bool = False
    """It may well run: there was no time to compile it, or no tool here reads its code."""

    @property
    def target(self) -> str:
        """'sm_90'."""
        return f"sm_{self.sm}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"kernel": self.launch.kernel, "sm": self.sm, "error": self.reason}


Result = Artifact | NotCompiled
