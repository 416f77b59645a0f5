"""Measures what this machine's GPU attains, once for each card, driver and limit of its clock.

It takes a few seconds in a process of its own. Whatever goes wrong is a reason, and the data
sheet's figures are used instead; only what was measured undisturbed is kept.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import tile_agent_pytest
from agent.environment import Gpu
from agent.errors import UsageError
from agent.evidence.roof import LAYOUT, MeasuredRoof, NotMeasured, key_of
from agent.harness.measuring.gpu import GpuWatch, exclusive
from agent.harness.processes.script import run_script
from agent.measuring.disturbance import THROTTLE_REASONS
from agent.workspace import state_dir

TIMEOUT_S = 90.0
"""Of which importing torch and waking the GPU may take most."""
FOLDER = "roofs"


def roof_of(gpu: Gpu, python: str) -> MeasuredRoof | NotMeasured:
    """What is known of a GPU, else what is measured now; nobody else may be measuring on it.

    Args:
        gpu: the one that a run uses.
        python: the interpreter whose torch times it.
    """
    import pynvml

    try:
        watch = GpuWatch(gpu)
    except pynvml.NVMLError as problem:
        return NotMeasured(f"NVML does not know the GPU ({problem})")
    try:
        setting = watch.setting()
        file = state_dir() / FOLDER / f"{key_of(gpu.uuid, setting)}.json"
        if (kept := _kept(file)) is not None:
            return kept
        before = _disturbed(watch)
        found = NotMeasured(before) if before else _measure(gpu, python, setting)
        if isinstance(found, MeasuredRoof):
            if after := _disturbed(watch):
                return NotMeasured(after)
            _keep(file, found)
        return found
    finally:
        watch.close()


def known_roof(gpu: Gpu) -> MeasuredRoof | None:
    """What was measured of a GPU before, under the driver and the limits of now."""
    import pynvml

    try:
        watch = GpuWatch(gpu)
    except pynvml.NVMLError:
        return None
    try:
        return _kept(state_dir() / FOLDER / f"{key_of(gpu.uuid, watch.setting())}.json")
    finally:
        watch.close()


def roof_when_free(gpu: Gpu, python: str) -> MeasuredRoof | NotMeasured:
    """The same for who holds no GPU: a run that measures on it is not disturbed, or waited for."""
    if (found := known_roof(gpu)) is not None:
        return found
    try:
        with exclusive(gpu, state_dir() / "gpus", lambda _: None, patience_s=0):
            return roof_of(gpu, python)
    except UsageError:
        return NotMeasured("another tile-agent run measures on it")
    except OSError as problem:
        return NotMeasured(f"{problem.filename or state_dir()}: {problem.strerror}")


def of_answer(answer: dict[str, object], gpu: str, setting: str) -> MeasuredRoof | NotMeasured:
    """What the process told, by `tile_agent_pytest.roof`."""
    if "error" in answer:
        return NotMeasured(str(answer["error"]))
    if answer["name"] != gpu:
        return NotMeasured(f"CUDA's first device is {answer['name']}, NVML's {gpu}")
    gb_s = answer["gb_s"]
    assert isinstance(gb_s, dict)
    found = MeasuredRoof.from_json(
        {
            "layout": LAYOUT,
            "gpu": gpu,
            "setting": setting,
            **{f"{way}_gb_s": rate for way, rate in gb_s.items()},
            **{name: answer[name] for name in ("tflops", "multiprocessors", "l2_bytes", "torch")},
        }
    )
    return found or NotMeasured("what was measured is no figure")


def _measure(gpu: Gpu, python: str, setting: str) -> MeasuredRoof | NotMeasured:
    with tempfile.TemporaryDirectory(prefix="tile-agent-roof-") as scratch:
        try:
            ended = run_script(
                [python, str(Path(tile_agent_pytest.__file__).parent), "roof"],
                {},
                cwd=Path(scratch),
                variables={"CUDA_VISIBLE_DEVICES": gpu.uuid},
                scratch=Path(scratch),
                timeout_s=TIMEOUT_S,
            )
        except UsageError as problem:
            return NotMeasured(str(problem))
    if not ended.answers:
        return NotMeasured(f"the measurement failed: {ended.fate}")
    return of_answer(ended.answers[0], gpu.name, setting)


def _disturbed(watch: GpuWatch) -> str:
    """Why the GPU is not what it is when it is left alone; empty where nothing is known."""
    seen = watch.look()
    if seen is None:
        return "the driver does not tell the state of the GPU"
    if seen.foreign_pids:
        return f"process {seen.foreign_pids[0]} uses the GPU"
    slowed = [why for bit, why in THROTTLE_REASONS.items() if seen.event_reasons & bit]
    return f"the GPU is throttled ({slowed[0]})" if slowed else ""


def _kept(file: Path) -> MeasuredRoof | None:
    try:
        return MeasuredRoof.from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _keep(file: Path, roof: MeasuredRoof) -> None:
    """Whole or not at all; where it cannot be written it is measured again."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(roof.to_json()) + "\n", encoding="utf-8")
        fresh.replace(file)
