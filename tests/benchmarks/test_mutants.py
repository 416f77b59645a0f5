"""Which mutants are taken of the benchmark's kernels and of the examples."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from benchmarks.mutants import SMALL, choose, mutants_of, origins
from benchmarks.mutators import MUTATORS
from tests.support.warm_python import run_python

ABSENT = {"atomic-split"}
"""None of these kernels has one."""
IMPORTS = """
import importlib.util, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    print(path.stem)
"""


def test_all_triton_kernels_of_the_benchmark_and_the_examples() -> None:
    keys = [origin.key for origin in origins()]
    assert len(keys) == 15
    assert {*SMALL} == {key for key in keys if key.startswith("triton/")}
    assert [key for key in keys if key.startswith("examples/")] == [
        "examples/triton_layer_norm",
        "examples/triton_matmul",
        "examples/triton_softmax",
    ]


@pytest.mark.parametrize("origin", origins(["triton", "cutile", "examples"]), ids=lambda o: o.key)
def test_an_origin_has_what_a_mutant_needs(origin) -> None:
    assert f"def {origin.wrapper}(" in origin.text
    assert (origin.spec.folder / origin.test).is_file()
    made_in = (origin.spec.folder / origin.inputs[0]).read_text()
    assert f"def {origin.inputs[1]}(" in made_in


def test_kernels_are_named_as_elsewhere() -> None:
    assert [o.key for o in origins(["triton/softmax", "examples/triton_softmax"])] == [
        "triton/softmax",
        "examples/triton_softmax",
    ]
    with pytest.raises(ValueError, match="no kernel sofmax; there are: cutile/attention"):
        origins(["sofmax"])


@pytest.mark.full
def test_two_hundred_and_more() -> None:
    wanted = origins()
    taken = choose(wanted, 200, seed=1)
    assert len(taken) == 200
    assert len({mutant.key for mutant in taken}) == 200
    assert {mutant.origin.key for mutant in taken} == {origin.key for origin in wanted}
    everything = choose(wanted, 10**6, seed=1)
    assert {mutant.mutator for mutant in everything} == {*MUTATORS} - ABSENT
    assert len(everything) == sum(len(mutants_of(origin)) for origin in wanted) > 700
    assert [m.key for m in everything[:200]] == [m.key for m in taken]
    assert all(mutant.diff and mutant.diff.count("\n") <= 12 for mutant in everything)


def test_the_seed_decides() -> None:
    wanted = origins(["softmax", "matmul"])
    first, again, other = (choose(wanted, 20, seed) for seed in (1, 1, 2))
    assert [m.key for m in first] == [m.key for m in again]
    assert {m.key for m in first} != {m.key for m in other}


def test_a_mutator_comes_again_only_after_all_others() -> None:
    wanted = origins(["triton/matmul"])
    kinds = {mutant.mutator for mutant in mutants_of(wanted[0])}
    taken = choose(wanted, len(kinds), seed=3)
    assert {mutant.mutator for mutant in taken} == kinds


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_mutants_can_be_imported(tmp_path: Path) -> None:
    taken = choose(origins(), 60, seed=0)
    for mutant in taken:
        (tmp_path / f"{mutant.key}.py").write_text(mutant.text)
    done = run_python(IMPORTS, str(tmp_path), environment={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.stdout.split() == sorted(mutant.key for mutant in taken), done.stderr
