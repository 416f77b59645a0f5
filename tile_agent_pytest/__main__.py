"""Starts the fork server: `python PATH/tile_agent_pytest FD`; or a job: `... artifacts < JOB`.

`... program FD ARGV` supervises a program.

Run by path, so that the interpreter of the user's environment serves even where tile-agent is
installed in another one: the package is loaded from its file, and `sys.path` gains nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

NAME = "tile_agent_pytest"


def _load_package() -> None:
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        NAME, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} holds no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, put there because it was run by path
    if NAME not in sys.modules:
        _load_package()
    if sys.argv[1] == "artifacts":
        import json

        from tile_agent_pytest.artifacts import main

        main(json.load(sys.stdin))
    elif sys.argv[1] == "facts":
        import json

        from tile_agent_pytest.facts import main

        main(json.load(sys.stdin))
    elif sys.argv[1] == "roof":
        import json

        from tile_agent_pytest.roof import main

        main(json.load(sys.stdin))
    elif sys.argv[1] == "tile-ir":
        import json

        from tile_agent_pytest.tile_ir import main

        main(json.load(sys.stdin))
    elif sys.argv[1] == "program":
        from tile_agent_pytest.program_supervisor import supervise

        supervise(int(sys.argv[2]), sys.argv[3:])
    else:
        from tile_agent_pytest.fork_server import serve

        serve(int(sys.argv[1]))
