"""A port needs no Triton for the sake of what it imports of its project, or it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.ported import translated
from agent.porting.taken import with_functions
from tests.support.project import tile_agent
from tests.support.repo import write

KERNEL = """\
import torch
import triton
import triton.language as tl

from pkg.utils import LIMIT, settings
from pkg.plain import doubled


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0, mask=i < n)


def scaled(x):
    y = torch.empty_like(x)
    block = doubled(settings(x.numel()))
    assert block < LIMIT
    scale_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y
"""
UTILS = """\
import functools
import math

import torch
import triton
import triton.language as tl

LIMIT = 2**16
TABLE = {}


def _at_least(n):
    \"\"\"Not less than this.\"\"\"
    return max(n, math.ceil(7.5)) if n > 0 else settings(-n)


def settings(n):
    block = triton.next_power_of_2(_at_least(n))
    return min(block, LIMIT)


def tabled(n):
    return TABLE[n]


@functools.lru_cache
def cached(n):
    return n


@triton.jit
def double(x):
    return x + x
"""
FILES = {
    "pyproject.toml": "",
    "pkg/__init__.py": "",
    "pkg/utils.py": UTILS,
    "pkg/plain.py": "def doubled(n):\n    return 2 * n\n",
    "pkg/scale.py": KERNEL,
}
TEST = """\
import torch
from pkg.scale import scaled


def test_scaled():
    assert scaled(torch.ones(20)).sum() == 40
"""


def made(folder: Path, **files: str) -> tuple[str, dict[str, tuple[int, ...]]]:
    named = {f"pkg/{name}.py": text for name, text in files.items()}
    write(folder, FILES | named)
    kernel = folder / "pkg" / "scale.py"
    port = translated(kernel, kernel.read_text())
    return port.text, dict(port.notes)


def test_a_function_is_taken_along_with_what_it_rests_on(tmp_path: Path) -> None:
    text, notes = made(tmp_path)
    assert "pkg.utils" not in text and "triton" not in text.replace("from Triton", "")
    assert "from pkg.plain import doubled" in text
    assert "def _at_least(n):" in text and "import math" in text and "functools" not in text
    assert notes["settings is taken along: its file needs Triton"] == (5,)
    write(tmp_path, {"test_scale.py": TEST})
    done = tile_agent(tmp_path, "port", "--kernel", "pkg/scale.py", "--json")
    assert done.code == 0, done.err + done.out
    assert json.loads(done.out)["check"]["calls"] == 1


@pytest.mark.parametrize("name", ["tabled", "cached", "missing"])
def test_what_rests_on_more_is_told(tmp_path: Path, name: str) -> None:
    scale = KERNEL.replace("LIMIT, settings", f"LIMIT, {name} as settings")
    for kernel in (scale, scale.replace(" as settings", "").replace("settings(", f"{name}(")):
        text, notes = made(tmp_path, scale=kernel)
        assert "from pkg.utils import" in text
        told = "pkg/utils.py is imported by the port, and it imports Triton: copy what the port"
        assert [at for note, at in notes.items() if note.startswith(told)] == [(5,)]


def test_a_file_that_does_without_triton_stays_imported(tmp_path: Path) -> None:
    guarded = UTILS.replace(
        "import triton\nimport triton.language as tl\n",
        "try:\n    import triton\n    import triton.language as tl\nexcept ImportError:\n"
        "    triton = tl = None\n",
    )
    text, notes = made(tmp_path, utils=guarded)
    assert "from pkg.utils import LIMIT, settings" in text
    assert not any("Triton: copy" in note or "taken along" in note for note in notes)


def test_triton_is_seen_behind_another_module(tmp_path: Path) -> None:
    plain = "from pkg.deeper import doubled\n"
    _, notes = made(tmp_path, plain=plain, deeper="import triton\n\ndef doubled(n): return n\n")
    told = "pkg/plain.py is imported by the port, and it needs Triton, for pkg/deeper.py"
    assert any(note.startswith(told) for note in notes)


def test_a_package_that_needs_it_anyway_is_told(tmp_path: Path) -> None:
    text, notes = made(tmp_path, __init__="from pkg import utils\n")
    assert "from pkg.utils import LIMIT, settings" in text
    assert any(
        note.startswith("pkg/__init__.py needs Triton, for pkg/utils.py, and") for note in notes
    )


def test_names_that_the_file_has_already_are_not_taken() -> None:
    def theirs(module: str) -> str | None:
        return (
            "import triton\nSIZE = 4\n\ndef f(n):\n    return n * SIZE\n"
            if module == ".u"
            else None
        )

    text = "import os\nfrom .u import f\nSIZE = 5\n\ndef g(n):\n    return f(n)\n"
    assert with_functions(text, theirs) == (text, [])
    taken, names = with_functions(text.replace("SIZE = 5", "OTHER = 5"), theirs)
    assert names == ["f"] and "from .u" not in taken
    scope: dict[str, object] = {}
    exec(taken + "\nfound = g(3)\n", scope)
    assert scope["found"] == 12
    at_import = text.replace("SIZE = 5", "OTHER = f(1)")
    assert with_functions(at_import, theirs)[1] == []
