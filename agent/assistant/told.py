"""What an assistant was told of a run already, so that an answer need not say it again.

Digests beside the journal, and no part of it: where they are lost, everything is told once more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.assistant.turn import Turn
from agent.proposers.brief import digest, outcome
from agent.repository import Repository
from agent.runs import runs_folder
from agent.state import Run

FACTS = ("latency_meaning", "noise_floor", "subset", "forecast", "diagnosis")
"""Fields of every answer that seldom change."""


@dataclass(frozen=True)
class Told:
    """What was said in the answers so far, as digests by name."""

    digests: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    """The commit whose code was told last."""
    events: int = -1
    """How many events the run had when `next` answered last: as many again, and nothing happened
    since. Who asks once more has lost the answer."""

    def holds(self, name: str, value: Any) -> bool:
        """Whether it was told with this value last."""
        return self.digests.get(name) == digest(value)

    def and_also(self, digests: Mapping[str, str]) -> Told:
        """With what is told now."""
        return replace(self, digests={**self.digests, **digests})


NOTHING = Told()
"""What somebody knows who has just come, or has forgotten everything."""


def told_of(repository: Repository, run: Run) -> Told:
    """What was noted for a run; nothing where that cannot be read."""
    try:
        told = Told(**json.loads(_file(repository, run).read_text(encoding="utf-8")))
        return told if _is_sound(told) else NOTHING
    except (OSError, ValueError, TypeError):
        return NOTHING


def note(repository: Repository, turn: Turn, told: Told, digests: Mapping[str, str]) -> None:
    """Keep what an answer said for the next one; on a full disk that one says everything.

    Args:
        repository: the user's.
        turn: what was answered.
        told: before.
        digests: of its fields.
    """
    run, said = turn.run, dict(digests)
    if turn.row is not None:
        said[f"iteration {turn.row.iteration}"] = digest(outcome(turn.row))
    told = told.and_also(said)
    if turn.brief is not None:
        told = replace(told.and_also(turn.brief.digests), code=run.incumbent_sha)
    if turn.events >= 0:
        told = replace(told, events=turn.events)
    file = _file(repository, run)
    fresh = file.with_name(f".{file.name}")
    value = {"digests": dict(told.digests), "code": told.code, "events": told.events}
    with suppress(OSError):
        fresh.write_text(json.dumps(value), encoding="utf-8")
        fresh.replace(file)


def without_what_was_told(
    value: Mapping[str, Any], told: Told
) -> tuple[dict[str, Any], dict[str, str]]:
    """An answer without what holds as it was told, and the digests of what it does say.

    `as_before` names the fields that it leaves out, and `others_as_before` what may be chosen and
    was told; others that do not fit are told once. The brief has the prose.
    """
    as_before = [name for name in FACTS if name in value and told.holds(name, value[name])]
    left_out = {*as_before, "prose"}
    short = {name: each for name, each in value.items() if name not in left_out}
    said = {name: digest(value[name]) for name in FACTS if name in short}
    if "others" in value:
        keys = {each["optimization"]: f"other {each['optimization']}" for each in value["others"]}
        known = [o for o in value["others"] if told.holds(keys[o["optimization"]], o)]
        short["others"] = [other for other in value["others"] if other not in known]
        short["others_as_before"] = [o["optimization"] for o in known if o["fits"]]
        said |= {keys[o["optimization"]]: digest(o) for o in short["others"]}
    return short | {"as_before": as_before}, said


def _is_sound(told: Told) -> bool:
    kinds = isinstance(told.digests, dict) and isinstance(told.code, str)
    return kinds and isinstance(told.events, int)


def _file(repository: Repository, run: Run) -> Path:
    assert run.started is not None
    return runs_folder(repository) / run.started.run_id / "told.json"
