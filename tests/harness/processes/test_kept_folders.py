"""What workers over one text of a kernel keep, and where those of the run's first text do."""

from __future__ import annotations

from pathlib import Path

from agent.harness.processes.kept_folders import KeptFolders


def test_the_text_that_was_asked_about_first_stays_the_first(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"

    def of(text: str, logs: str = "run") -> KeptFolders:
        kernel.write_text(text)
        return KeptFolders.of(tmp_path / logs, kernel, {})

    origin, candidate = of("x = 1\n"), of("x = 2\n")
    assert origin.first_tuned == origin.tuned != candidate.tuned
    assert candidate.first_tuned == of("x = 3\n").first_tuned == origin.tuned
    assert of("x = 2\n", "another run").first_tuned == of("x = 2\n", "another run").tuned
