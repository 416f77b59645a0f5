"""Nsight Compute: its page of raw metrics, and what becomes of a run of it that fails.

The page follows NVIDIA's documentation of `--csv --page raw`: a header, units, one row a launch.
The programs called ncu are scripts: they print what the real one prints where it cannot profile,
or run the test that they are given, as it does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from agent.evidence import counters
from agent.evidence.counters import DRAM, DRAM_BYTES, DURATION, L2_HITS, METRICS, SM, WARPS, read
from agent.harness.compiling.artifacts import Wanted
from agent.harness.ncu import NOT_INSTALLED, NOT_PERMITTED, NoCounters, counters_of
from agent.harness.processes.worker_session import Checkout
from tests.support.evidence import CUTILE, TEST
from tests.support.repo import write

LONG, BARRIER = (
    f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in ("long_scoreboard", "barrier")
)
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    f'"Grid Size","Device","CC","{DRAM_BYTES}","{DRAM}","{DURATION}","{L2_HITS}","{SM}","{WARPS}",'
    f'"{LONG}","{BARRIER}"'
)
UNITS = '"","","","","","","","","","","","byte","%","ns","%","%","%","inst","inst"'
LAUNCH = '"{}","71","python3.12","127.0.0.1","{}","1","7","(256, 1, 1)","(16384, 1, 1)","0","9.0",'
ROWS = (
    LAUNCH.format(0, "softmax_kernel") + '"268,514,304","13.82","374,976","50.1","8.31","8.04",'
    '"6.25","1.25"',
    LAUNCH.format(1, "softmax_kernel") + '"268,514,304","n/a","380,000","50.1","8.31","8.04",'
    '"6.25","1.25"',
    LAUNCH.format(2, "void copy(float*, int)") + '"1,024","0.10","1,980.5","","0.2","1.5","0","0"',
)
PAGE = "\n".join(
    ["==PROF== Connected to process 71 (/usr/bin/python3.12)", HEADER, UNITS, *ROWS, ""]
)


def test_the_page_of_raw_metrics() -> None:
    softmax, copy = read(PAGE)
    assert softmax.kernel == "softmax_kernel"
    assert softmax.duration_ms == pytest.approx(0.38)  # the longer of two launches
    assert softmax.dram_share is None  # which this GPU did not count then
    assert softmax.dram_bytes == 268_514_304
    assert (softmax.sm_share, softmax.warps_share) == pytest.approx((0.0831, 0.0804))
    assert softmax.l2_hit_rate == pytest.approx(0.501)
    assert softmax.stalls == {"long_scoreboard": 6.25, "barrier": 1.25}
    assert softmax.worst_stall == ("long_scoreboard", pytest.approx(6.25 / 7.5))
    assert (copy.kernel, copy.duration_ms) == ("void copy", pytest.approx(0.0019805))
    assert copy.worst_stall is None
    assert copy.l2_hit_rate is None
    first = read("\n".join([HEADER, UNITS, ROWS[0]]))[0]
    assert str(first) == (
        "softmax_kernel 0.374976 ms: DRAM 13.8% of peak, multiprocessors 8.3% of peak, active "
        "warps 8.0%, L2 hits 50.1%, 83% of the waiting is for long_scoreboard"
    )


def test_units_that_were_not_asked_for() -> None:
    micro = PAGE.replace('"ns"', '"us"').replace('"byte"', '"Mbyte"')
    assert read(micro)[0].duration_ms == pytest.approx(380.0)
    assert read(micro)[0].dram_bytes == 268_514_304e6
    with pytest.raises(ValueError, match="a metric in 'cycle'"):
        read(PAGE.replace('"ns"', '"cycle"'))


@pytest.mark.parametrize(
    "text",
    ["", "==WARNING== No kernels were profiled.\n", HEADER, "\n".join([HEADER, UNITS, '"0"'])],
)
def test_a_page_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="page"):
        read(text)


def test_a_page_without_launches_has_no_counters() -> None:
    assert read("\n".join([HEADER, UNITS])) == ()


# --- the process ------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    write(root, {"kernel.py": CUTILE, "test_kernel.py": TEST})
    return Checkout(root, (root,), "kernel.py")


def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program called ncu first into PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{script}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def profile(checkout: Checkout, timeout_s: float = 30.0) -> object:
    wanted = Wanted("cutile", (90,), python=sys.executable, has_gpu=False)
    return counters_of(
        checkout, "test_kernel.py::test_perf_run", ["scale_kernel"], wanted, timeout_s
    )


LOG = "log = [a for a in sys.argv if a.startswith('--log-file=')][0].partition('=')[2]\n"


def test_not_installed(checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/usr/local/cuda/bin/ncu").exists():
        pytest.skip("it is installed here, whatever PATH says")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert profile(checkout) == NoCounters(NOT_INSTALLED)


@pytest.mark.parametrize("where", ["log", "terminal"])
def test_not_permitted(
    where: str, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "==PROF== Connected to process 9012 (/usr/bin/python3.12)\\n"
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
        "Performance Counters on the target device 0. For instructions on enabling permissions and "
        "to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM\\n"
        "==WARNING== No kernels were profiled.\\n"
    )
    target = "open(log, 'w')" if where == "log" else "sys.stdout"
    install(tmp_path, monkeypatch, f"{LOG}{target}.write('{text}')\nsys.exit(1)\n")
    assert profile(checkout) == NoCounters(NOT_PERMITTED)


def test_another_error_is_told_in_one_line(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "sys.stdout.write('==ERROR== The application returned an error code (1).\\n')\n"
    install(tmp_path, monkeypatch, f"{script}sys.exit(1)\n")
    found = profile(checkout)
    assert isinstance(found, NoCounters)
    assert found.reason.startswith(
        "Nsight Compute told nothing: The application returned an error code (1).; the process "
        "ended with exit code 1"
    )
    assert "\n" not in found.reason


@pytest.mark.full
def test_one_that_does_not_end_is_killed(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "alive"
    install(tmp_path, monkeypatch, f"time.sleep(6)\nopen({str(marker)!r}, 'w')\n")
    began = time.monotonic()
    found = profile(checkout, timeout_s=0.5)
    assert time.monotonic() - began < 5.0
    assert isinstance(found, NoCounters)
    assert "not done after 0.5 s: killed" in found.reason
    time.sleep(6)
    assert not marker.exists()


@pytest.mark.full
def test_the_test_runs_under_it_and_its_page_is_read(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs what it is given, as the real one does, and writes a page."""
    pytest.importorskip("cuda.tile")
    (checkout.root / "test_kernel.py").write_text(
        "import os\n"
        "def test_perf_run(tile_bench):\n"
        "    tile_bench(lambda: open('ran', 'a').write(os.environ['DISABLE_AUTOTUNE'] + '\\n'))\n"
        "def test_perf_other(tile_bench):\n"
        "    raise AssertionError('this one is not asked for')\n"
    )
    arguments = tmp_path / "arguments"
    install(
        tmp_path,
        monkeypatch,
        "import subprocess\n"
        f"{LOG}"
        f"open({str(arguments)!r}, 'w').write('\\n'.join(sys.argv[1:]))\n"
        "start = [i for i, a in enumerate(sys.argv) if i and not a.startswith('--')][0]\n"
        "code = subprocess.run(sys.argv[start:]).returncode\n"
        f"open(log, 'w').write({PAGE!r})\n"
        "sys.exit(code)\n",
    )
    found = profile(checkout)
    assert found == read(PAGE)
    assert (checkout.root / "ran").read_text() == "1\n"
    given = arguments.read_text().splitlines()
    assert f"--metrics={','.join(METRICS)}" in given
    assert "--kernel-name=regex:(scale_kernel)" in given
    assert "--page=raw" in given
    assert not list((checkout.root).glob("**/__pycache__"))


def test_every_metric_is_read() -> None:
    """What is asked for and never read would cost a pass of the kernel for nothing."""
    values = {name: str(n + 1) for n, name in enumerate(METRICS)}
    header = ",".join(f'"{name}"' for name in ("Kernel Name", *METRICS))
    units = ",".join(
        f'"{ {DURATION: "ns", DRAM_BYTES: "byte"}.get(name, "") }"' for name in ("", *METRICS)
    )
    (found,) = read("\n".join([header, units, ",".join(f'"{v}"' for v in ("k", *values.values()))]))
    assert set(found.stalls) == set(counters.STALLS)
    shares = (found.dram_share, found.sm_share, found.warps_share, found.l2_hit_rate)
    assert None not in (*shares, found.dram_bytes)
    assert len({found.duration_ms * 1e6, found.dram_bytes, *found.stalls.values()}) == (
        len(METRICS) - len(shares)
    )
