"""What the Tile IR workflow needs of the user's interpreter.

`... tile-ir < JOB` says what the interpreter has: a job names its program, `installed` or `probe`.
A kernel is called, judged and timed by pytest in workers, as in a run: `call_tests` and
`result_tests` are what they collect.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Message = dict[str, Any]

RESULTS = "results"
"""The folder beside a worker's tests that holds what calls did: `CASE-RUN.pt`."""
WANTED_BACKEND = "TILE_AGENT_WANTED_BACKEND"
"""The variable that names what has to compile; nobody looks where it is not set."""


def main(job: Message) -> None:
    """Do a job; what is found goes line by line into the file that `answers` names."""
    with Path(job["answers"]).open("a", encoding="utf-8") as stream:

        def answer(event: str, **facts: Any) -> None:
            stream.write(json.dumps({"event": event, **facts}) + "\n")
            stream.flush()

        from tile_agent_pytest.tile_ir.installed import installed

        answer("installed", **installed())
        if job["program"] == "probe":  # last, because an import may kill this process
            from tile_agent_pytest.tile_ir.probe import probe

            answer("probed", **probe())
