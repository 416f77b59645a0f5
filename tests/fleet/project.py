"""A repository with several kernels, and machines of Ray's for their runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import held_run
from tests.support.project import COUNTED
from tests.support.repo import isolated
from tests.support.warm_python import warm_interpreter

STORE_BYTES = 80 * 2**20
"""Of each node's object store; Ray takes no smaller one."""
SETTINGS = {
    "local_fs_capacity_threshold": 0.0,
    "automatic_object_spilling_enabled": False,  # a store that is full does not go on to the disk
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,  # each process of a worker's imports Ray
}
"""Of the cluster."""
INTERPRETED = {"TRITON_INTERPRET": "1"}
"""Of a node whose GPUs Ray is only told of."""


_STARTED = """\
#!/bin/sh
if [ "$2 $3" = "-m agent" ]; then
    shift 3
    exec {warm} {held_run} "$@"
fi
exec {warm} "$@"
"""


def scripted_python(folder: Path) -> Path:
    """A Python that runs tile-agent with scripted timings, and has made its imports before."""
    path = folder / "python"
    path.write_text(_STARTED.format(warm=warm_interpreter(), held_run=held_run.__file__))
    path.chmod(0o755)
    return path


def files_of(*names: str) -> dict[str, str]:
    """Files of a repository with a kernel `ops/NAME.py` for each name, whose tests count."""
    files = {"ops/__init__.py": "", "pyproject.toml": COUNTED["pyproject.toml"]}
    for name in names:
        test = COUNTED["tests/test_double.py"].replace("from double", f"from ops.{name}")
        files[f"ops/{name}.py"] = COUNTED["double.py"].replace("double", name)
        files[f"tests/test_{name}.py"] = test.replace("double", name)
    return files


@dataclass(frozen=True)
class Machines:
    """A cluster of Ray's own processes on this machine: a head that runs nothing, and nodes."""

    cluster: Any
    environment: Mapping[str, str]

    @property
    def address(self) -> str:
        """Of the head."""
        return str(self.cluster.address)

    @property
    def nodes(self) -> list[Any]:
        """Those that run something."""
        return [*self.cluster.worker_nodes]

    def add(
        self, gpus: int = 1, environment: Mapping[str, str] | None = None, **options: Any
    ) -> Any:
        """Start a node that can run so many kernels at once; Ray's own options as they are."""
        with _ignoring_sigint():
            return self.cluster.add_node(
                num_cpus=gpus,
                num_gpus=gpus,
                object_store_memory=STORE_BYTES,
                env_vars={**self.environment, **(environment or {})},
                **options,
            )

    def lose(self, node: Any) -> None:
        """As a machine is lost that somebody unplugs."""
        self.cluster.remove_node(node, allow_graceful=False)


@contextmanager
def _ignoring_sigint() -> Iterator[None]:
    """As what is started by a script in the background does, and all that it starts in turn."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Such a cluster while the block lasts.

    Args:
        folder: for what its nodes write.
    """
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        made = Machines(Cluster(), isolated(folder))
        Path(made.environment["HOME"]).mkdir()
        try:
            made.add(
                0,
                include_dashboard=False,
                include_log_monitor=False,
                no_monitor=True,
                _system_config=SETTINGS,
            )
            yield made
        finally:
            made.cluster.shutdown()
