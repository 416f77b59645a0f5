"""What every worker tells pytest, whatever its project's own configuration says."""

from __future__ import annotations

import importlib.util
import os

from tile_agent_pytest.wire import Message

OUR_ENTRY_POINT = "tile_agent"


def standing(scratch: str) -> list[str]:
    """Arguments that every worker needs, whatever the project's own configuration says."""
    return [
        f"-pno:{OUR_ENTRY_POINT}",  # registered by hand: it may not be installed here at all
        f"-ocache_dir={scratch}/cache",  # not in the checkout; without it `--lf` is no option
        f"--basetemp={scratch}/tmp",  # nor is this
        "-Wignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
        "--maxfail=0",  # `-x` would end the collection without a word on the import that failed
        "--capture=fd",
        "--color=no",
        "--no-header",  # reads the metadata of every plugin
        "-olog_file=",  # nor is that of the project
    ]


def guards(job: Message) -> list[str]:
    """Arguments for a worker whose Triton is interpreted: nothing else keeps a kernel in bounds."""
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        return []
    return ["--triton-guards", *(["--triton-repeat"] if job.get("repeat") else [])]
