"""What an interpreter lacks that compiles kernels, and the command that installs it."""

from __future__ import annotations

from agent.environment import OLDEST_TRITON

CUTILE = (
    "'cuda-tile>=1.7' 'nvidia-cuda-tileiras>=13.2,<13.5' 'nvidia-cuda-nvcc>=13.2,<13.5' "
    "'nvidia-nvvm>=13.2,<13.5'"
)
"""What `cuda-tile[tileiras]` stands for, without the cuda-toolkit of one release that it asks for:
PyTorch's builds for CUDA ask for another, and pip would replace them."""
_DISASSEMBLERS = "nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"
_NEEDED = {
    "cuda-tile": CUTILE,
    "tileiras": CUTILE,
    "triton": f"'triton>={OLDEST_TRITON}'",
    "pytest": "pytest",
    "cuobjdump": _DISASSEMBLERS,
    "nvdisasm": _DISASSEMBLERS,
}


def installing(python: str, name: str) -> str:
    """The command that installs a package or a tool for an interpreter."""
    return f"{python} -m pip install {_NEEDED[name]}"


def lacking(python: str, name: str) -> str:
    """That an interpreter has no such package or tool, with the mend."""
    return f"{python} has no {name}: {installing(python, name)}"
