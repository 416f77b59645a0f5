"""What compiles the candidates of a run, and what earlier runs compiled already."""

from __future__ import annotations

import os
from pathlib import Path

from agent.environment import Environment
from agent.harness.compiling.artifacts import Wanted
from agent.harness.compiling.candidate_compiler import AHEAD, ForkedCompiler
from agent.harness.compiling.kept_compiles import FOLDER, KeptCompiles
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.variables import worker_environment
from agent.options import Options
from agent.target import Target
from agent.workspace import state_dir


def compiler_for(
    server: ForkServer, backend: str, python: str, environment: Environment, logs: Path
) -> ForkedCompiler | None:
    """Compiles for the GPU of the run; without one nothing is worth sorting out."""
    if environment.gpu is None:
        return None
    ahead = AHEAD if backend == "triton" else 0
    wanted = Wanted(backend, (environment.gpu.sm,), python=python, has_gpu=False, ahead=ahead)
    return ForkedCompiler(server, wanted, logs)


def kept_compiles(
    compiler: ForkedCompiler | None, environment: Environment, options: Options, target: Target
) -> KeptCompiles | None:
    """What earlier runs on a kernel compiled, where anything is and it is not to be done again."""
    if compiler is None or options.retry:
        return None
    passed = options.command.pass_env
    variables = worker_environment(os.environ, compiler.server.environment, passed)
    kernel = (target.kernel, *target.import_roots)
    folder = state_dir() / FOLDER
    return KeptCompiles.of(folder, compiler.wanted, environment, variables, kernel)
