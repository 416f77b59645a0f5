"""The rules of the house that no other test would notice."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agent.playbook import ADVICE, PLAYBOOK

ROOT = Path(__file__).parent.parent
AGENT = ROOT / "agent"
FILES = sorted(AGENT.rglob("*.py"))
PLUGIN_FILES = sorted((ROOT / "tile_agent_pytest").rglob("*.py"))

TIERS = """
    __main__
    cli
    fleet
    assistant  mcp  skillbook  finalizing
    session
    loop
    watched  scouting  without_choice  diagnosing  planning  finishing  keeping
    sweep  asking  foresight  captured_trial
    candidates  captured  profiled  collecting  compiling  throwaway  ported
    proposers
    store
    memory  helper_files
    attempts  past_looks  launched_elsewhere  port_answers  port_imports
    harness  report  preflight  capture  runs
    playbook  workspace  touched  prompting  lint  tileir  porting
    rewriting  diagnosis
    tuning
    target
    chosen_tests  on_disk  captured_import
    importers  backends
    analysis
    evidence  excluded
    journal  repository  lock  left_locks  environment  syntax
    transitions
    settings  state
    events
    options
    measuring  causes  least_time  frozen_tests  launches  suggesting  usage  interruption
    errors  redaction
"""
"""A module or package of `agent` imports from the lines below its own, and from itself."""

RANK = {name: n for n, line in enumerate(TIERS.strip().splitlines()) for name in line.split()}
HEAVY = ("torch", "triton", "cuda")
LARGEST_FILE = 400
COLD = (
    "pydantic_ai",
    "mcp",
    "torch",
    "triton",
    "cuda.tile",
    "libcst",
    "pandas",
    "scipy",
    "git",
    "jinja2",
    "rich",
    "ray",
)
"""What `--help` must not wait for."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, its module first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, at its top or inside a function, as a dotted name."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = list(path.relative_to(ROOT).parent.parts)
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def top(module: str) -> str:
    """The package that a module belongs to."""
    return module.split(".")[0]


def unit(path: Path) -> str:
    """'session' for agent/session.py, 'harness' for agent/harness/processes/worker_session.py."""
    return path.relative_to(AGENT).parts[0].removesuffix(".py")


def attributes(path: Path) -> set[str]:
    """Dotted names of two parts that a file uses: 'sys.stdout', 'os.system'."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def calls(path: Path) -> set[str]:
    """Names that a file calls."""
    return {
        node.func.id
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


# --- who imports whom ---------------------------------------------------------------------------


def test_every_part_has_its_tier() -> None:
    assert {unit(path) for path in FILES} - {"__init__"} == set(RANK)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        mine = unit(path)
        for module in imports(path):
            parts = module.split(".")
            if parts[0] != "agent" or parts[1] in (mine, "__version__"):
                continue
            if RANK[parts[1]] <= RANK[mine]:
                wrong.append(f"{name_of(path)}: {mine} may not import {module}")
    assert wrong == []


def test_the_packages_have_no_cycles() -> None:
    """Within a package too: taking away whoever imports nothing that is left takes away all."""
    modules = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in FILES
    }

    def target(name: str) -> str:
        while name not in modules:
            name = name.rpartition(".")[0]
        return name

    left = {
        name: {target(m) for m in imports(path) if m.startswith("agent.")} - {name, "agent"}
        for name, path in modules.items()
    }
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert not left


def test_one_language_knows_nothing_of_the_other() -> None:
    """And what both share knows neither."""
    wrong = []
    for path in FILES:
        room, *inner = path.relative_to(AGENT).parts
        if room not in ("analysis", "rewriting", "playbook") or len(inner) < 2:
            continue
        others = {"common": ("cutile", "triton"), "cutile": ("triton",), "triton": ("cutile",)}
        foreign = [m for m in imports(path) if any(f".{o}." in m for o in others[inner[0]])]
        wrong += [f"{name_of(path)}: {module}" for module in foreign]
    assert wrong == []


def test_the_playbook_holds_entries_and_nothing_else() -> None:
    folders = {path.parent.name: [] for path in (AGENT / "playbook").glob("*/*.py")}
    for path in (AGENT / "playbook").rglob("*.py"):
        if path.parent.name in folders and path.name != "__init__.py":
            folders[path.parent.name].append(path.stem.replace("_", "-"))
    entries = {entry.name for entry in (*PLAYBOOK, *ADVICE)}
    assert {name for names in folders.values() for name in names} == entries
    assert {path.name for path in (AGENT / "playbook").glob("*.py")} == {
        "__init__.py",
        "base.py",
        "trial.py",
    }


def test_the_gpu_packages_are_imported_in_workers_only() -> None:
    assert [f"{name_of(p)}: {m}" for p in FILES for m in imports(p) if top(m) in HEAVY] == []


def test_what_runs_beside_the_users_code_imports_nothing_of_ours() -> None:
    allowed = {*sys.stdlib_module_names, "pytest", "torch", "tile_agent_pytest"}
    others = [
        f"{name_of(p)}: {m}" for p in PLUGIN_FILES for m in imports(p) if top(m) not in allowed
    ]
    assert others == []


def test_the_plugin_works_where_our_package_cannot_be_imported() -> None:
    """As in the user's environment, where the fork server loads its folder alone."""
    script = (
        "import sys\n"
        "sys.modules['agent'] = None\n"
        "import tile_agent_pytest.fork_server, tile_agent_pytest.worker, tile_agent_pytest.plugin\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


# --- who may do what ----------------------------------------------------------------------------


def test_only_the_repository_runs_git() -> None:
    users = [p for p in FILES if any(m.split(".")[0] in ("git", "gitdb") for m in imports(p))]
    assert [name_of(path) for path in users] == ["agent/repository.py"]


def test_only_the_harness_starts_processes() -> None:
    """And so nobody runs git by a shell."""
    modules = ("subprocess", "multiprocessing", "pty", "pexpect", "concurrent.futures.Process")
    starters = [p for p in FILES if any(m.startswith(modules) for m in imports(p))]
    assert {unit(path) for path in starters} == {"harness"}
    functions = {f"os.{name}" for name in ("system", "popen", "fork", "forkpty", "posix_spawn")}
    assert not [name_of(path) for path in FILES if functions & attributes(path)]


def test_only_the_command_line_prints() -> None:
    streams = {"sys.stdout", "sys.stderr", "sys.stdin"}
    talkers = {
        unit(path)
        for path in FILES
        if calls(path) & {"print", "input"}
        or attributes(path) & streams
        or {"rich", "click", "typer"} & {module.split(".")[0] for module in imports(path)}
    }
    assert talkers == {"cli"}


def test_only_the_command_line_ends_the_process() -> None:
    exits = {"sys.exit", "os._exit", "os.abort"}
    enders = {unit(path) for path in FILES if attributes(path) & exits or "exit" in calls(path)}
    assert enders <= {"cli"}


# --- what a file looks like ---------------------------------------------------------------------


def test_a_file_says_what_it_is_for() -> None:
    assert [name_of(path) for path in (*FILES, *PLUGIN_FILES) if not is_introduced(path)] == []


def is_introduced(path: Path) -> bool:
    """Whether the first line of its docstring is a sentence."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    first, *_ = (ast.get_docstring(module) or "").splitlines() or [""]
    return first.endswith((".", ":", "?"))


def test_no_class_name_stands_for_two_things() -> None:
    homes: dict[str, list[str]] = {}
    for path in (*FILES, *PLUGIN_FILES):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name_of(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_a_file_fits_into_a_head() -> None:
    lengths = {
        name_of(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in (*FILES, *PLUGIN_FILES)
    }
    assert {name: length for name, length in lengths.items() if length > LARGEST_FILE} == {}


# --- starting fast ------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_waits_for_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import atexit, sys\n"
        f"cold = {COLD!r}\n"
        "atexit.register(lambda: print('cold:', [m for m in cold if m in sys.modules]))\n"
        "from agent.cli import main\n"
        "main()\n"
    )
    end = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cold: []" in end.stdout


def test_the_plugin_is_registered() -> None:
    """`pip install tile-agent` gives the fixture to plain pytest."""
    found = importlib.metadata.entry_points(group="pytest11", name="tile_agent")
    assert {entry.value for entry in found} == {"tile_agent_pytest.plugin"}
