"""`run`, `resume`, `status`, `stop` on a real project, in the interpreter, end to end."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from agent.errors import ExitCode
from agent.journal import Journal, replay
from tests.support.history import HISTORY
from tests.support.project import COUNTED, PROJECT, SLOW, command, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot, write
from tests.support.warm_python import warm_interpreter


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, COUNTED)


@pytest.fixture
def clocked(tmp_path: Path) -> Path:
    """With a perf test that is timed, block by block."""
    return make_repo(tmp_path, PROJECT)


def start(repo: Path, until: str, python: str = "") -> subprocess.Popen[str]:
    """Begin a run and wait until its progress says `until`.

    Its workers are children of a warm interpreter, not of the run, where `python` names no other.
    """
    arguments = ("run", "--kernel", "double.py", "--python", python or warm_interpreter())
    return until_said(command(*arguments), repo, until)


def until_said(words: list[str], repo: Path, until: str) -> subprocess.Popen[str]:
    """Start a command and wait until its progress says `until`."""
    process = subprocess.Popen(words, cwd=repo, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while until not in (line := process.stderr.readline()):
        assert line, "the run ended early"
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """The rest of what a run said; its pipe is closed."""
    _, err = process.communicate(timeout=180)
    return err


def only_run(repo: Path) -> dict[str, object]:
    runs = tile_agent(repo, "status", "--json").json["runs"]
    assert len(runs) == 1
    found: dict[str, object] = runs[0]
    return found


def test_a_run_to_its_end(clocked: Path) -> None:
    write(clocked, {"notes.txt": "mine", "double.log": "mine too"})
    before = snapshot(clocked)
    end = tile_agent(clocked, "run", "--kernel", "double.py", "--json")
    assert end.code == ExitCode.DONE, end.err
    result = end.json
    assert [row["status"] for row in result["rows"]] == ["keep", "keep"]
    assert result["speedup"] > 1  # by the clock; where it is counted, how much is tested below
    differing = changed(before, snapshot(clocked))
    ours = {key for key in differing if key.startswith(("sandbox", "refs/tile-agent/"))}
    assert differing - ours == {f"refs/heads/{result['branch']}", "git info/exclude"}
    table = (clocked / "sandbox" / "perf_results.md").read_text()
    assert re.fullmatch(
        r"\| +0 \| baseline +\| +\d+\.\d{6} \| PASS +\| +keep \|", table.splitlines()[2]
    )
    assert git(clocked, "status", "--porcelain", "--untracked-files=no") == ""
    assert "sandbox" not in git(clocked, "status", "--porcelain")
    assert git(clocked, "log", "--format=%s", f"main..{result['branch']}").startswith(
        "double: block"
    )


@pytest.mark.full
def test_a_second_run_that_keeps_nothing_keeps_the_table_of_the_first(repo: Path) -> None:
    write(repo, {"sandbox/perf_results.md": "| by hand |\n"})
    run = ("run", "--kernel", "double.py", "--json")
    first = tile_agent(repo, *run, "--max-iterations", "1")
    second = tile_agent(repo, *run, "--branch", "again", "--only", "loop-stages")
    assert (first.code, second.code) == (ExitCode.STOPPED, ExitCode.NO_IMPROVEMENT)
    # Programs and lanes of blocks of 256, and of 1024 elements.
    assert first.json["speedup"] == pytest.approx(0.08256 / 0.03024, rel=0.01)
    runs = repo / "sandbox" / "runs"
    for end in (first, second):
        kept = (runs / end.json["run"] / "perf_results.md").read_text()
        assert kept.count("\n") == 2 + len(end.json["rows"])
    assert (repo / "sandbox" / "perf_results.md").read_text() == kept
    by_hand = runs / f"before-{first.json['run']}" / "perf_results.md"
    assert by_hand.read_text() == "| by hand |\n"
    assert f"and {by_hand.relative_to(repo)} keeps it" in first.err
    assert "keeps it" not in second.err
    state = tile_agent(repo, "status", "--json").json["runs"][-1]
    assert state["run"] == second.json["run"]
    show, table = state["next"].split()
    assert show == "cat"
    assert (repo / table).read_text() == kept


@pytest.mark.full
def test_a_run_from_elsewhere_says_where_its_commands_are_for(repo: Path) -> None:
    once = ("--max-iterations", "1", "--only", "loop-stages")
    there = tile_agent(repo.parent, "run", "--kernel", f"{repo.name}/double.py", *once)
    said = f"The commands are for another repository: cd {repo.resolve()}"
    assert there.out.splitlines()[-1] == said, there.err
    here = tile_agent(repo / "tests", "run", "--kernel", "../double.py", *once, "--branch", "again")
    assert said not in here.out and "git branch -D again" in here.out


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_end_is_an_interruption(repo: Path, number: signal.Signals) -> None:
    process = start(repo, until="baseline")
    process.send_signal(number)
    assert "tile-agent resume" in finish(process)
    assert process.returncode == ExitCode.STOPPED
    run = only_run(repo)
    assert run["standing"] == "interrupted"
    git(repo, "branch", "--delete", "--force", run["branch"])
    process = until_said(command("resume", run["run"]), repo, f"branch {run['branch']} is gone")
    process.send_signal(number)
    assert "interrupted" in finish(process)


@pytest.mark.full
def test_a_run_that_is_interrupted_and_then_killed_leaves_no_process_and_is_resumed(
    repo: Path,
) -> None:
    before = snapshot(repo)
    process = start(repo, until="screen", python=sys.executable)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert "tile-agent resume" in finish(process)
    assert process.returncode == ExitCode.STOPPED
    assert only_run(repo)["standing"] == "interrupted"
    assert workers and psutil.wait_procs(workers, timeout=60)[1] == []
    process = until_said(command("resume"), repo, "right")
    workers = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    assert workers and psutil.wait_procs(workers, timeout=60)[1] == []
    assert only_run(repo)["standing"] == "interrupted"
    end = tile_agent(repo, "resume", "--json")
    assert end.code == ExitCode.DONE, end.err
    # the largest of three block sizes was best, and one beyond it is not
    assert [row["status"] for row in end.json["rows"]] == ["keep", "keep", "revert"]
    assert only_run(repo)["standing"] == "done"
    differing = changed(before, snapshot(repo))
    ours = {key for key in differing if key.startswith(("sandbox", "refs/tile-agent/"))}
    assert differing - ours == {f"refs/heads/{end.json['branch']}", "git info/exclude"}


@pytest.mark.full
def test_stop_ends_a_run_from_elsewhere(repo: Path) -> None:
    process = start(repo, until="baseline")
    assert tile_agent(repo, "resume").code == ExitCode.USAGE  # it is alive
    end = tile_agent(repo, "stop", "--json")
    assert end.code == 0, end.err
    finish(process)
    assert process.returncode == ExitCode.STOPPED
    assert tile_agent(repo, "stop").code == ExitCode.USAGE
    assert only_run(repo)["next"] == f"tile-agent resume {end.json['stopped']}"


@pytest.mark.full
def test_a_pass_that_is_long_leaves_time_for_iterations(tmp_path: Path) -> None:
    """All eight configs take more than a second a pair: calibration alone would take over 8 s."""
    slow = make_repo(tmp_path, SLOW)
    end = tile_agent(
        slow, "run", "--kernel", "double.py", "--json", "--only", "block-size",
        "--calibration-budget-s", "4",
    )  # fmt: skip
    assert end.code == ExitCode.DONE, end.err
    subset = end.json["subset"]
    names = {f"test_perf_double_triton[{2**n}]" for n in range(8)}
    ends = {"test_perf_double_triton[128]", "test_perf_double_triton[1]"}
    assert ends & set(subset["configs"])  # the longest, or where it does not fit the shortest
    assert set(subset["configs"]) | set(subset["left_out"]) == names
    coverage = f"{len(subset['configs'])} of 8 configs"
    assert f"compared   {coverage}: {subset['configs'][0]}" in end.err
    assert re.search(r"plan       an iteration takes about \d+ s: .*; all 25 would take", end.err)
    others = r"(; (none of \d others is|another is not) slower by more than 2\.0 %)?"  # what fits
    assert re.search(rf"; on {coverage}{others}$", end.json["rows"][1]["reason"])
    assert {config["config"] for config in end.json["final"]["configs"]} == names
    assert end.json["final_left_out"] == []
    message = git(slow, "log", "-1", "--format=%B", end.json["branch"])
    assert f"{coverage}; not compared: " in message


@pytest.mark.full
def test_a_benchmark_script_judges_and_a_run_on_it_is_gone_on_with(tmp_path: Path) -> None:
    """Begun by one process and finished by another, which finds the script in the journal."""
    script = """
        import sys, torch, triton
        from double import double
        for n in map(int, sys.argv[1:]):
            triton.testing.do_bench(lambda: double(torch.ones(n)), warmup=1, rep=2)
    """
    timed = make_repo(tmp_path, COUNTED | {"speed.py": textwrap.dedent(script)})
    bench = ("--bench", "python speed.py 256 512")
    begun = tile_agent(timed, "begin", "--kernel", "double.py", "--yes", "--json", *bench)
    assert begun.code == 0, begun.err
    assert "1 correctness, 1 perf from tests/test_double.py, speed.py 256 512" in begun.err
    assert "over 2 configs" in begun.err
    assert tile_agent(timed, "next", "--json").json["do"] == "edit"
    draft = next((timed / "sandbox" / "runs").glob("*/draft/double.py"))
    draft.write_text(draft.read_text().replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 512"))
    tried = tile_agent(timed, "try", "-m", "larger blocks", "--json")
    judged = tried.json["attempt"]  # one that may be mended has no row yet
    assert judged["status"] in ("keep", "revert"), tried.err
    assert len(judged["configs"]) == 2


@pytest.mark.full
def test_a_candidate_that_hangs_is_killed_with_its_children(repo: Path) -> None:
    """The iteration's deadline covers the whole process tree."""
    hanging = COUNTED["tests/test_double.py"].replace(
        "def test_double_triton():\n",
        "def test_double_triton():\n"
        "    import double as module, subprocess, time\n"
        "    if module.BLOCK_SIZE != 256:\n"
        "        subprocess.Popen(['sleep', '987'], start_new_session=True)\n"
        "        time.sleep(987)\n",
    )
    write(repo, {"tests/test_double.py": hanging})
    git(repo, "commit", "--quiet", "--all", "--message", "hang")
    end = tile_agent(
        repo, "run", "--kernel", "double.py", "--json", "--only", "block-size",
        "--iteration-timeout-s", "20",  # for the baseline too, on a machine with other things to do
    )  # fmt: skip
    assert end.code == ExitCode.NO_IMPROVEMENT, end.err
    row = end.json["rows"][1]
    assert (row["status"], row["correct"], row["latency_ms"]) == ("crash", False, None)
    assert "timed out" in row["reason"]
    asleep = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]]
    assert asleep == []


@pytest.mark.full
def test_a_run_in_a_src_layout_and_from_a_subfolder(tmp_path: Path) -> None:
    test = COUNTED["tests/test_double.py"].replace("from double", "from pkg.ops.double")
    repo = make_repo(
        tmp_path,
        {
            "src/pkg/__init__.py": "",
            "src/pkg/ops/__init__.py": "",
            "src/pkg/ops/double.py": COUNTED["double.py"],
            "tests/ops/test_double.py": test,
        },
    )
    nothing = ("--only", "loop-stages")  # the baseline is what needs the modules
    end = tile_agent(repo / "src" / "pkg", "run", "--kernel", "ops/double.py", "--json", *nothing)
    assert end.code == ExitCode.NO_IMPROVEMENT, end.err
    assert end.json["kernel"] == "src/pkg/ops/double.py"
    assert (repo / "sandbox" / "perf_results.md").exists()


def test_verify_and_bench(clocked: Path) -> None:
    before = snapshot(clocked)
    verified = tile_agent(clocked, "verify", "--kernel", "double.py", "--json")
    right = {"correct": True, "passed": 1, "skipped": [], "notes": []}
    assert (verified.code, verified.json) == (0, right)
    benched = tile_agent(clocked, "bench", "--kernel", "double.py", "--json")
    assert benched.code == 0
    (record,) = benched.json["records"]
    assert record["config"] == "test_perf_double_triton"
    assert record["latency_ms"] > 0
    assert changed(before, snapshot(clocked)) == set()


def test_classify_reads_any_file(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(PROJECT["double.py"])
    end = tile_agent(tmp_path, "classify", "--kernel", "double.py", "--json")
    assert end.json["kernel_class"] == "memory-bound"
    assert end.json["order"][:2] == ["needed-programs", "row-in-registers"]
    assert [(k["kernel"], k["kind"]) for k in end.json["kinds"]] == [
        ("double_kernel", "element-wise")
    ]


def test_classify_lists_no_helpers_of_a_file_that_launches_nothing(tmp_path: Path) -> None:
    kernel = PROJECT["double.py"]
    helper = "\n\n@triton.jit\ndef helper(x):\n    return x + x\n"
    calling = kernel[: kernel.index("\n\ndef ")].replace("tl.store(", "helper(1)\n    tl.store(")
    (tmp_path / "double.py").write_text(calling + helper)
    end = tile_agent(tmp_path, "classify", "--kernel", "double.py", "--json")
    assert end.json["kernels"] == ["double_kernel"]


def test_doctor_names_what_is_missing(tmp_path: Path) -> None:
    end = tile_agent(tmp_path, "doctor", "--json", env={"CUDA_VISIBLE_DEVICES": ""})
    assert end.code == 0
    assert end.json["backends"]["triton"]["usable"] is True
    assert end.json["backends"]["cutile"]["usable"] is False


def test_doctor_has_two_columns(tmp_path: Path) -> None:
    lines = tile_agent(tmp_path, "doctor").out.splitlines()
    column = len(lines[0]) - len(lines[0].removeprefix("python").lstrip())
    assert all(line[column - 1] == " " and line[column] != " " for line in lines), lines


def test_doctor_asks_another_interpreter(tmp_path: Path) -> None:
    bare = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    end = tile_agent(tmp_path, "doctor", "--json", "--python", "venv/bin/python")
    assert end.code == 0, end.err
    assert set(end.json["versions"].values()) == {None}
    assert end.json["backends"]["triton"]["detail"].startswith("triton is not installed")
    own = Path(sys.executable)
    spelled_otherwise = own.parent / ".." / own.parent.name / own.name
    end = tile_agent(tmp_path, "doctor", "--json", "--python", str(spelled_otherwise))
    found, usual = end.json, tile_agent(tmp_path, "doctor", "--json").json
    assert all(Path(told.pop("executable")).is_file() for told in (found, usual))
    assert found == usual
    end = tile_agent(tmp_path, "doctor", "--python", "/bin/false")
    assert end.code == ExitCode.USAGE
    assert "name another interpreter with --python" in end.err
    assert end.err.count("\n") == 1


def test_playbook_list_and_show(tmp_path: Path) -> None:
    listed = tile_agent(tmp_path, "playbook", "list", "--json").json["optimizations"]
    first = {entry["backend"]: entry for entry in reversed(listed)}
    assert set(first) == {"cutile", "triton"}
    for entry in first.values():
        shown = json.loads(tile_agent(tmp_path, "playbook", "show", entry["name"], "--json").out)
        assert "When:" in shown["prose"]


@pytest.mark.full
def test_a_branch_that_could_not_move_is_not_pointed_at(repo: Path) -> None:
    process = start(repo, until="screen")
    (branch,) = git(repo, "branch", "--list", "tile-agent/*", "--format=%(refname:short)").split()
    git(repo, "checkout", "--quiet", branch)
    finish(process)
    assert process.returncode == ExitCode.DONE
    state = only_run(repo)
    assert state["best_ref"] == f"refs/tile-agent/{state['run']}/best"
    assert str(state["next"]).endswith(str(state["best_ref"]))
    assert git(repo, "status", "--porcelain", "--untracked-files=no") == ""


@pytest.mark.full
def test_an_answer_of_no_begins_nothing(repo: Path) -> None:
    before = snapshot(repo)
    for answer in (b"n\n", b"\x04"):  # ^D: the end of the input
        outer, inner = pty.openpty()
        words = command("run", "--kernel", "double.py", "--python", warm_interpreter())
        with subprocess.Popen(words, cwd=repo, stdin=inner, stderr=inner) as process:
            os.close(inner)
            said = b""
            while b"Begin? [Y/n]" not in said:
                said += os.read(outer, 1024)
            os.write(outer, answer)
            while chunk := _read(outer):
                said += chunk
        os.close(outer)
        assert process.returncode == ExitCode.STOPPED
        assert said.endswith(b"tile-agent: not begun; nothing was changed\r\n")
        assert changed(before, snapshot(repo)) == set()


def _read(terminal: int) -> bytes:
    """What a process writes to its terminal; Linux says EIO when it has ended."""
    try:
        return os.read(terminal, 1024)
    except OSError:
        return b""


@pytest.mark.parametrize("group", ["", "playbook", "skill", "tileir"])
def test_a_group_without_a_command_is_its_help(tmp_path: Path, group: str) -> None:
    bare = tile_agent(tmp_path, *group.split())
    shown = tile_agent(tmp_path, *group.split(), "--help")
    assert (bare.code, bare.err) == (ExitCode.USAGE, "")
    assert bare.out.split() == shown.out.split()


def test_a_damaged_journal_does_not_hide_the_other_runs(repo: Path) -> None:
    write(repo, {"sandbox/runs/bad/journal.jsonl": "x\ny\n", "sandbox/runs/good/.keep": ""})
    journal = Journal(repo / "sandbox/runs/good/journal.jsonl")
    for event in HISTORY:
        journal.append(event)
    journal.close()
    runs = {
        run["run"]: run["standing"] for run in tile_agent(repo, "status", "--json").json["runs"]
    }
    assert runs == {"bad": "damaged", "good": "done"}


def test_status_says_of_older_runs_what_they_came_to(repo: Path) -> None:
    for number, name in enumerate(("first", "second", "third")):
        write(repo, {f"sandbox/runs/{name}/.keep": ""})
        journal = Journal(repo / f"sandbox/runs/{name}/journal.jsonl")
        for event in HISTORY:
            journal.append(event)
        journal.close()
        os.utime(journal.path, (number, number))
    git(repo, "branch", replay(HISTORY).started.branch)
    first, second, third = tile_agent(repo, "status", "--json").json["runs"]
    assert first.keys() == second.keys() < third.keys()
    assert {"run", "kernel", "branch", "phase", "kept", "speedup", "next"} <= first.keys()
    assert first == {name: third[name] for name in first} | {
        name: first[name] for name in ("run", "next")
    }
    assert (first["run"], third["run"]) == ("first", "third")
    assert len(str(first)) < len(str(third)) / 4
    for arguments, names in (
        (["--full"], ["first", "second", "third"]),
        (["first"], ["first"]),
    ):
        runs = tile_agent(repo, "status", *arguments, "--json").json["runs"]
        assert [run["run"] for run in runs] == names
        assert all(run.keys() == third.keys() for run in runs)


@pytest.mark.parametrize(
    "wrong", [["--max-iterations", "-1"], ["--time-budget-s", "inf"], ["--gpus", "0"]]
)
def test_a_wrong_option_is_json_too(repo: Path, wrong: list[str]) -> None:
    end = tile_agent(repo, "run", "--kernel", "double.py", "--json", *wrong)
    assert (end.code, end.json["exit_code"]) == (ExitCode.USAGE, 2)
