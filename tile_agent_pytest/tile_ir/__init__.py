"""The steps of the Tile IR workflow that need the user's interpreter: `... tile-ir < JOB`.

A job names its program: `installed` and `probe` say what the interpreter has, `kernel` runs a
wrapper on made inputs and keeps what it did, `judge` compares that with a reference. Kernel and
judge are different processes, so that nothing the kernel's file patches or prints has a say in the
verdict.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Message = dict[str, Any]


def main(job: Message) -> None:
    """Do a job; what is found goes line by line into the file that `answers` names."""
    with Path(job["answers"]).open("a", encoding="utf-8") as stream:

        def answer(event: str, **facts: Any) -> None:
            stream.write(json.dumps({"event": event, **facts}) + "\n")
            stream.flush()

        if job["program"] in ("installed", "probe"):
            from tile_agent_pytest.tile_ir.installed import installed

            answer("installed", **installed())
            if job["program"] == "probe":  # last, because an import may kill this process
                from tile_agent_pytest.tile_ir.probe import probe

                answer("probed", **probe())
        elif job["program"] == "kernel":
            from tile_agent_pytest.tile_ir.kernel import run

            run(job, answer)
        else:
            from tile_agent_pytest.tile_ir.judge import judge

            judge(job, answer)
