"""Programs as writers of candidates: good ones, careless ones, broken ones and hostile ones."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import sys
import textwrap
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.errors import UsageError
from agent.options import CommandOptions
from agent.proposers.agenda import Task
from agent.proposers.brief import Brief
from agent.proposers.command import CommandWriter, check
from agent.proposers.writer import Refused, Written
from agent.repository import Repository
from agent.state import Run
from agent.syntax import Source
from tests.support.project import KERNEL, PROJECT
from tests.support.repo import changed, isolate, make_repo, snapshot

TASK = Task("block-size", "tiles", "block size", "When: always.", "some", "it is 256")
FASTER = KERNEL.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 1024")
GOOD = """
    from pathlib import Path
    kernel = Path("double.py")
    kernel.write_text(kernel.read_text().replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 1024"))
"""


@dataclass(frozen=True)
class Bench:
    """A repository, and programs to let loose on copies of it."""

    repo: Path
    folder: Path

    def write(
        self, script: str, *arguments: str, text: str = KERNEL, **options: Any
    ) -> Written | Refused:
        """What comes of a Python program."""
        path = self.folder.parent / "program.py"
        path.write_text(textwrap.dedent(script))
        argv = (sys.executable, str(path), *arguments)
        return self.run(CommandOptions(argv=argv, **{"timeout_s": 30.0, **options}), text=text)

    def run(self, options: CommandOptions, text: str = KERNEL) -> Written | Refused:
        repository = Repository.open(self.repo)
        head = repository.head()
        assert head is not None
        brief = Brief(TASK, "double.py", head, Source(text, "double.py"), "# Do it: täsk \udce4\n")
        return CommandWriter(options, repository, self.folder).write(brief, Run())

    def refusal(self, script: str, *arguments: str, **options: Any) -> str:
        """Why nothing came of a Python program."""
        answer = self.write(script, *arguments, **options)
        assert isinstance(answer, Refused)
        assert not answer.hopeless
        assert answer.usage.took_s > 0
        return answer.reason

    def log(self) -> str:
        """What the latest program printed, as it is kept."""
        return max(self.folder.glob("*.log")).read_text()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    isolate(monkeypatch, tmp_path)
    for name in [name for name in os.environ if "KEY" in name or "TOKEN" in name]:
        monkeypatch.delenv(name)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return Bench(make_repo(tmp_path, PROJECT), tmp_path / "kept")


def nothing_left(bench: Bench) -> bool:
    return not list((bench.folder.parent / "tmp").iterdir())


# --- a good edit --------------------------------------------------------------------------------


def test_a_good_edit_is_the_proposal(bench: Bench) -> None:
    before = snapshot(bench.repo)
    answer = bench.write(GOOD)
    assert isinstance(answer, Written)
    assert answer.source == FASTER
    assert answer.hypothesis == f"block size, by {Path(sys.executable).name}."
    assert (answer.title, answer.expected_gain, answer.risk) == ("", None, "")
    assert 0 < answer.usage.took_s < 30
    assert answer.usage.requests == 0
    assert not changed(before, snapshot(bench.repo))
    assert nothing_left(bench)


def test_its_last_lines_may_say_why(bench: Bench) -> None:
    said = {
        "hypothesis": "fewer\nblocks",
        "expected_gain": 0.25,
        "risk": "registers\x1b[31m",
        "title": "wide blocks",
    }
    talk = f"""
    print("thinking {{}}")
    print({json.dumps(said)!r})
    print("tokens used: 12345")
"""
    answer = bench.write(GOOD + talk)
    assert isinstance(answer, Written)
    assert answer.hypothesis == "fewer blocks."
    assert answer.expected_gain == 0.25
    assert answer.risk == "registers [31m"
    assert answer.title == "wide blocks"


@pytest.mark.parametrize("gain", ["NaN", "25", "true", '"25 %"'])
def test_a_gain_that_cannot_be_is_none(bench: Bench, gain: str) -> None:
    line = f'{{"hypothesis": "x", "expected_gain": {gain}, "risk": 3}}'
    answer = bench.write(f"{GOOD}    print({line!r})")
    assert isinstance(answer, Written)
    assert (answer.hypothesis, answer.expected_gain, answer.risk) == ("x.", None, "")


def test_the_prompt_comes_by_standard_input_or_as_a_file(bench: Bench) -> None:
    talk = """
    import os, sys
    print(repr(sys.argv[1:]))
    given = sys.stdin.read()
    print(len(given), given == open("TILE_AGENT_TASK.md").read())
"""
    assert isinstance(bench.write(GOOD + talk), Written)
    prompt = (bench.folder / "0001.md").read_text()
    assert prompt.startswith("# Do it: täsk ?\n")
    assert "Edit `double.py` in place" in prompt and "You have 30 seconds" in prompt
    assert bench.log() == f"[]\n{len(prompt)} True\n"

    assert isinstance(bench.write(GOOD + talk, "--message={prompt}", "{kernel}", "{}"), Written)
    words, rest = bench.log().splitlines()
    message, kernel, other = ast.literal_eval(words)
    assert message.startswith("--message=/") and message.endswith("/TILE_AGENT_TASK.md")
    assert kernel == f"{Path(message.removeprefix('--message=')).parent}/double.py"
    assert other == "{}"
    assert rest == "0 False"
    assert sorted(path.name for path in bench.folder.iterdir()) == [
        "0001.log",
        "0001.md",
        "0002.log",
        "0002.md",
    ]


def test_a_program_finds_a_clean_repository_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As codex and aider want it. Variables of a git hook would lead to the user's."""
    monkeypatch.setenv("GIT_DIR", str(bench.repo / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(bench.repo / ".git" / "index"))
    talk = """
    import os, subprocess
    def git(*words):
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout
    assert git("rev-parse", "--show-toplevel").strip() == os.getcwd() == os.environ["PWD"]
    assert git("status", "--porcelain").split() == ["M", "double.py"]
    assert git("remote") == ""
    assert len(git("log", "--format=%s").splitlines()) == 1
    assert not os.path.exists(".git/hooks")
    files = ["double.py", "pyproject.toml", "tests/test_double.py"]
    assert sorted(git("ls-files").split()) == files
    assert os.environ["TMPDIR"] != os.getcwd() and os.path.isdir(os.environ["TMPDIR"])
    git("-c", "user.name=x", "-c", "user.email=x", "commit", "--all", "--message", "Mine")
"""
    before = snapshot(bench.repo)
    answer = bench.write(GOOD + talk)
    assert isinstance(answer, Written), answer
    assert not changed(before, snapshot(bench.repo))


def test_a_file_that_archives_leave_out_is_in_the_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    files = PROJECT | {
        ".gitattributes": "tests export-ignore\n*.py text eol=crlf\n",
        "bin/tool": "#!/bin/sh\n",
    }
    repo = make_repo(tmp_path, files, executable=["bin/tool"])
    repository = Repository.open(repo)
    head = repository.head()
    assert head is not None
    repository.export(head, tmp_path / "copy" / "deep")
    copy = tmp_path / "copy" / "deep"
    assert (copy / "tests/test_double.py").exists()
    assert (copy / "bin/tool").stat().st_mode & stat.S_IXUSR


def test_line_endings_are_those_of_the_commit(bench: Bench) -> None:
    """Whatever the checkout and the program's editor make of them."""
    repo = bench.repo.parent / "crlf"
    text = KERNEL.replace("\n", "\r\n")
    files = PROJECT | {"double.py": text, ".gitattributes": "*.py -text\n"}
    make_repo(bench.repo.parent, files, name="crlf")
    answer = replace(bench, repo=repo).write(GOOD, text=text)  # write_text makes them \n
    assert isinstance(answer, Written)
    assert answer.source == FASTER.replace("\n", "\r\n")


# --- nothing to take ----------------------------------------------------------------------------


def test_a_kernel_left_alone(bench: Bench) -> None:
    reason = bench.refusal("print('it has no loop')\nprint('  ')")
    assert reason == f"{Path(sys.executable).name}: left double.py as it was: it has no loop."


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ("kernel.unlink()", "double.py is gone"),
        ("kernel.unlink(); kernel.symlink_to('tests/test_double.py')", "not a plain file"),
        ("kernel.unlink(); kernel.symlink_to('double.py')", "cannot be read"),
        ("kernel.unlink(); kernel.mkdir()", "not a plain file"),
        ("kernel.unlink(); os.mkfifo(kernel)", "not a plain file"),
        ("kernel.write_bytes(b'\\xff\\xfe')", "not UTF-8"),
        ("kernel.write_text('#' * 1_000_001)", "more than 1000000 bytes"),
        ("kernel.write_text('def broken(:')", "does not parse"),
        ("kernel.write_text('')", "no kernel"),
        ("kernel.write_text(kernel.read_text() + '# done')", "nothing but comments"),
        (
            "kernel.write_text(kernel.read_text().replace('def double(', 'def double(z, '))",
            "(z, x)",
        ),
        ("shutil.rmtree(os.getcwd())", "double.py is gone"),
        ("here = os.getcwd(); os.rename(here, '../x'); os.symlink('x', here)", "not a plain file"),
    ],
)
def test_what_cannot_be_a_kernel(bench: Bench, edit: str, reason: str) -> None:
    program = f"import os, shutil, pathlib\nkernel = pathlib.Path('double.py')\n{edit}\n"
    assert reason in bench.refusal(program)
    assert nothing_left(bench)


def test_other_files_are_thrown_away_and_named(bench: Bench) -> None:
    before = snapshot(bench.repo)
    other = """
    import pathlib
    test = pathlib.Path("tests/test_double.py")
    test.write_text(test.read_text().replace("2 * x", "3 * x"))
    pathlib.Path("pyproject.toml").unlink()
    pathlib.Path("conftest.py").write_text("collect_ignore = ['tests']")
    pathlib.Path("__pycache__").mkdir()
    pathlib.Path("__pycache__/double.pyc").write_text("")
    pathlib.Path(".aider.history").write_text("")
    pathlib.Path(".git/config").write_text("[core]\\n\\tfsmonitor = touch owned\\n")
"""
    remark = (
        "It also added conftest.py, changed tests/test_double.py, deleted pyproject.toml; "
        "that was thrown away."
    )
    answer = bench.write(GOOD + other)
    assert isinstance(answer, Written)
    assert answer.source == FASTER
    assert answer.hypothesis.endswith(f" {remark}")
    assert bench.refusal(other).endswith(f"left double.py as it was. {remark}")
    assert not changed(before, snapshot(bench.repo))
    assert nothing_left(bench)


def test_an_edit_of_the_tests_alone_is_refused(bench: Bench) -> None:
    reason = bench.refusal("open('tests/test_double.py', 'w').write('def test_triton(): pass')")
    assert "left double.py as it was. It also changed tests/test_double.py" in reason


def test_many_other_files_are_counted(bench: Bench) -> None:
    reason = bench.refusal("for n in range(100): open(f'{n:03}', 'w')")
    assert "added 000, added 001, added 002, added 003, added 004, 95 more;" in reason


# --- programs that fail -------------------------------------------------------------------------


def test_a_program_that_fails_after_its_edit_is_not_trusted(bench: Bench) -> None:
    reason = bench.refusal(f"{GOOD}    raise SystemExit('out of credit')")
    assert reason.endswith(": exited with 1: out of credit.")


def test_a_program_without_its_key_is_told_how_to_get_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush-hush-hush")
    program = (
        f"import os\nassert os.environ['ANTHROPIC_API_KEY'], 'no key'\n{textwrap.dedent(GOOD)}"
    )
    reason = bench.refusal(program)
    assert "exited with 1; these variables were not handed on: ANTHROPIC_API_KEY" in reason
    assert "--pass-env NAME hands one on: KeyError: 'ANTHROPIC_API_KEY'." in reason
    assert isinstance(bench.write(program, pass_env=("ANTHROPIC_API_KEY",)), Written)


@pytest.mark.full
def test_a_program_that_hangs_is_killed_with_its_daemons(bench: Bench) -> None:
    pids = bench.folder.parent / "pids"
    hang = f"""
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        while True:
            time.sleep(0.01)
            open({str(bench.repo / "double.py")!r}, "a").close()
    time.sleep(0.2)
    open({str(pids)!r}, "w").write(str(os.getpid()))
    time.sleep(600)
"""
    begin = time.monotonic()
    reason = bench.refusal(GOOD + hang, timeout_s=5)
    assert time.monotonic() - begin < 60
    assert re.search(r": not done after \d+ s: killed\.$", reason)
    assert not psutil.pid_exists(int(pids.read_text()))
    program = str(bench.folder.parent / "program.py")
    assert not [p for p in psutil.process_iter(["cmdline"]) if program in (p.info["cmdline"] or ())]
    assert nothing_left(bench)


def test_secrets_that_it_prints_are_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    leak = """
    import os, json
    print("key:", os.environ["MY_API_KEY"])
    print(json.dumps({"hypothesis": "with " + os.environ["MY_API_KEY"]}))
"""
    answer = bench.write(GOOD + leak, pass_env=("MY_API_KEY",))
    assert isinstance(answer, Written)
    assert answer.hypothesis == "with [secret removed]."
    assert "key: [secret removed]" in bench.log()
    kept = [path.read_text() for path in bench.folder.iterdir()]
    assert kept and not any("correct-horse" in text for text in kept)
    assert "correct-horse" not in bench.refusal(
        f"{leak}    raise SystemExit(1)", pass_env=("MY_API_KEY",)
    )


def test_a_secret_in_the_kernel_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be committed."""
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    leak = """
    import os
    kernel.write_text(kernel.read_text() + "# " + os.environ["MY_API_KEY"] + "\\n")
"""
    reason = bench.refusal(GOOD + leak, pass_env=("MY_API_KEY",))
    assert reason.endswith(": the new text holds the value of MY_API_KEY.")


def test_a_program_that_cannot_be_run_ends_the_asking(bench: Bench) -> None:
    answer = bench.run(CommandOptions(argv=("/no/such/program",), timeout_s=5))
    assert isinstance(answer, Refused)
    assert answer.hopeless
    assert answer.reason == "/no/such/program cannot be run: No such file or directory"
    assert nothing_left(bench)


# --- before a run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (CommandOptions(), "--command 'PROGRAM ARGUMENTS'"),
        (CommandOptions(argv=("no-such-program",)), "no-such-program cannot be found: install it"),
        (CommandOptions(argv=("./agent.sh",)), r"is relative.* full path, /.*/agent\.sh$"),
        (CommandOptions(argv=("/etc/passwd",)), "/etc/passwd cannot be found"),
        (CommandOptions(argv=("sh",), pass_env=("HOME", "NO_SUCH_KEY")), "--pass-env NO_SUCH_KEY"),
        (CommandOptions(argv=("sh",), timeout_s=float("inf")), "give a number of seconds"),
    ],
)
def test_what_cannot_work_is_said_at_once(options: CommandOptions, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        check(options)


def test_a_program_on_the_path_is_fine() -> None:
    check(CommandOptions(argv=("sh", "-c", "true"), pass_env=("PATH",)))
