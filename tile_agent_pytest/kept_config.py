"""pytest's own plugins, registered once for all workers.

Every session registers the same three dozen of pytest's modules, each hook and each option of
theirs, before it looks at its arguments: a fifth of a bare session's start. A fork has a
configuration of its own in which that is done.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BLOCKS_NONE = "-pno:tile_agent"
"""The one argument that excludes a plugin which is none of pytest's own."""


def prepare() -> None:
    """Have the first session of each fork begin with a configuration of this process.

    What reads the environment meanwhile are options for those who mend pytest: with `PYTEST_DEBUG`
    every session registers its own.
    """
    config: Any = sys.modules.get("_pytest.config")
    make = getattr(config, "get_config", None)
    if make is None or "PYTEST_DEBUG" in os.environ:
        return
    named = {"prog": "pytest.main()"} if "prog" in inspect.signature(make).parameters else {}
    waiting = [make(**named)]

    @functools.wraps(make)
    def take(args: Any = None, plugins: Any = None, **more: Any) -> Any:
        given = [*(args or ())]
        excludes = any("no:" in str(each) and each != BLOCKS_NONE for each in given)
        if not waiting or more != named or excludes:
            return make(args, plugins, **more)
        taken = waiting.pop()
        known = type(taken.invocation_params)
        taken.invocation_params = known(args=given, plugins=plugins, dir=Path.cwd())
        taken.pluginmanager.consider_preparse(given, exclude_only=True)
        return taken

    config.get_config = take
    _mark_at_once(config.Config)


def _mark_at_once(kind: Any) -> None:
    """Have the modules of plugins marked for rewritten assertions in one go.

    For each file of each plugin pytest goes through all modules that have been imported, which
    copies the pages that count their references, to warn of those that it cannot rewrite any more.
    Here those are what the fork server has imported, and no worker wants to hear of them.
    """
    mark = getattr(kind, "_mark_plugins_for_rewrite", None)
    if mark is None:
        return

    @functools.wraps(mark)
    def mark_at_once(self: Any, hook: Any, *more: Any) -> None:
        names: list[str] = []
        mark(self, SimpleNamespace(mark_rewrite=lambda *found: names.extend(found)), *more)
        self.pluginmanager.rewrite_hook = hook
        if hasattr(hook, "_must_rewrite") and hasattr(hook, "_marked_for_rewrite_cache"):
            hook._must_rewrite.update(names)
            hook._marked_for_rewrite_cache.clear()
        else:
            hook.mark_rewrite(*names)

    kind._mark_plugins_for_rewrite = mark_at_once


def name_saved_runs() -> None:
    """Tell pytest-benchmark what a run that it saves is called, and this machine: it would start
    git, hg and file for that in every worker, nine processes, though what a worker saves goes with
    it."""
    if benchmark := sys.modules.get("pytest_benchmark.plugin"):
        vars(benchmark)["get_tag"] = lambda *_, **__: "worker"
    if saved := sys.modules.get("pytest_benchmark.session"):
        vars(saved)["get_machine_id"] = lambda: "this-machine"
