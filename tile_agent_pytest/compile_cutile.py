"""Compiles cuTile kernels ahead of time: `python PATH/compile_cutile.py < JOB`.

A script of its own, run by path in the user's interpreter, so it needs the standard library and
cuda.tile and nothing of ours. The job is one JSON object: `module` and `file` of the kernels,
`sys_path`, `targets`, `answers` (the file that the answers are appended to, one JSON object a
line), and `kernels`, each with its `name`, its `hints` and the `variants` of its parameters. Of
the variants the first that compiles is taken: they differ in what is only guessed.

    {"event": "missing", "what": "cuda-tile" | "tileiras", "text": ..., "place": the file of a
     cuda.tile that is installed and cannot be imported}
    {"event": "import-failed", "type": ..., "text": ...}
    {"event": "begun", "kernel": ..., "target": ...}
    {"event": "done", "kernel": ..., "target": ..., "variant": ..., "ok": ..., "seconds": ...,
     "cubin_bytes": ..., "sha256": ..., or "error": ...}
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

Message = dict[str, Any]
DIVISIBLE_BY = 16
"""Addresses, strides and extents, as PyTorch's allocator and usual shapes have them."""

STATIC_EXTENT = 4096
"""Of a dimension that the annotation makes a constant of the compilation."""


class ToolMissing(Exception):
    """The compiler is not installed."""


def main(job: Message) -> None:
    """Compile every kernel for every target."""
    answers = Path(job["answers"])
    try:
        compiler = Compiler.installed()
    except ImportError as problem:
        _end(answers, event="missing", what="cuda-tile", text=str(problem), place=_place())
    sys.path[:0] = job["sys_path"]
    try:
        module = load(job["module"], Path(job["file"]))
    except BaseException as problem:
        _end(answers, event="import-failed", type=type(problem).__name__, text=_line(problem))
    for kernel in job["kernels"]:
        variants = list(range(len(kernel["variants"])))
        for target in job["targets"]:
            about = {"kernel": kernel["name"], "target": target}
            _tell(answers, event="begun", **about)
            try:
                answer = compiler.first_that_compiles(module, kernel, variants, target)
            except ToolMissing as problem:
                _end(answers, event="missing", what="tileiras", text=_line(problem))
            if answer["ok"]:
                variants = [answer["variant"]]  # the same signature for every target
            _tell(answers, event="done", **about, **answer)


class Compiler:
    """`cuda.tile`, and how a kernel is compiled with it."""

    def __init__(self, compilation: Any, tile: Any) -> None:
        self.compilation = compilation
        self.tile = tile
        self._convention = compilation.CallingConvention.cutile_python_v2()

    @classmethod
    def installed(cls) -> Compiler:
        """That of this interpreter. Raises ImportError."""
        compilation = importlib.import_module("cuda.tile.compilation")
        return cls(compilation, importlib.import_module("cuda.tile"))

    def first_that_compiles(
        self, module: ModuleType, kernel: Message, variants: list[int], target: str
    ) -> Message:
        """What became of the first variant that compiles; of the first of all when none does."""
        failures: list[Message] = []
        for variant in variants:
            begin = time.perf_counter()
            answer: Message = {"variant": variant, "ok": True}
            try:
                found = self.kernel(module, kernel["name"], kernel["hints"])
                constraints = self.constraints(found, kernel["variants"][variant])
                cubin = self.cubin(found, constraints, target)
            except Exception as problem:
                if isinstance(problem, FileNotFoundError) and "tileiras" in str(problem):
                    raise ToolMissing(_line(problem)) from None
                answer |= {"ok": False, "error": with_place(problem)}
            else:
                answer |= {"cubin_bytes": len(cubin), "sha256": hashlib.sha256(cubin).hexdigest()}
            answer["seconds"] = time.perf_counter() - begin
            if answer["ok"]:
                return answer
            failures.append(answer)
        return failures[0]

    def kernel(self, module: ModuleType, name: str, hints: Message) -> Any:
        """A kernel of a module, with hints in place of its own where some are given."""
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, self.tile.kernel):
            raise TypeError("the imported module has no cuTile kernel of that name")
        return found.replace_hints(**hints) if hints else found

    def from_arguments(self, kernel: Any, arguments: Any) -> Any:
        """The signature that a launch would compile for. Asks the driver."""
        return self.compilation.KernelSignature.from_kernel_args(
            kernel, arguments, self._convention
        )

    def cubin(self, kernel: Any, constraints: Sequence[Any], target: str) -> bytes:
        """Compile for a target such as 'sm_90'."""
        signature = self.compilation.KernelSignature(constraints, self._convention)
        cubin = io.BytesIO()
        self.compilation.export_kernel(
            kernel, [signature], cubin, gpu_code=target, output_format="cubin"
        )
        return cubin.getvalue()

    def into(self, kernel: Any, constraints: Sequence[Any], target: str, folder: Path) -> Message:
        """Compile, and keep what the compiler leaves beside the cubin.

        For this `CUDA_TILE_TEMP_DIR` and `CUDA_TILE_DUMP_BYTECODE` must have named folders, and
        `CUDA_TILE_CACHE_DIR` one too, when `cuda.tile` was imported: it has the compiler write its
        remarks only where it keeps a cache. What it would write there goes into `folder`: several
        processes compile at a time, and each reads its own.

        Returns:
            `cubin`, `bytecode` (of Tile IR) and `remarks`, paths or None, and `seconds`.
        """
        before = {*folder.iterdir()}  # of a variant that did not compile
        begin = time.perf_counter()
        with _temporary_files_in(folder):
            cubin = self.cubin(kernel, constraints, target)
        seconds = time.perf_counter() - begin
        written = [file for file in folder.iterdir() if file not in before]

        def named(suffix: str) -> str | None:
            return next((str(file) for file in written if file.name.endswith(suffix)), None)

        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        return {
            "cubin": str(path),
            "bytecode": named(".tileirbc"),
            "remarks": named(".remarks.yaml"),
            "seconds": seconds,
        }

    def constraints(self, kernel: Any, parameters: Sequence[Message]) -> list[Any]:
        """What the compiler is told of parameters that a source file showed."""
        nodes = kernel._annotated_function.parameter_annotations
        return [self._constraint(p, n) for p, n in zip(parameters, nodes, strict=True)]

    def _constraint(self, parameter: Message, node: Any) -> Any:
        if parameter["kind"] == "constant":
            return parameter["value"]
        dtype = getattr(self.tile, parameter["dtype"])
        if parameter["kind"] == "scalar":
            return self.compilation.ScalarConstraint(dtype)
        outer = parameter["ndim"] - 1
        static = {
            dimension % parameter["ndim"]
            for dimension in getattr(node.array, "static_shape_dims", None) or ()
        }
        array = self.compilation.ArrayConstraint(
            dtype,
            parameter["ndim"],
            index_dtype=getattr(self.tile, parameter["index_dtype"]),
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            stride_constant=(*[None] * outer, 1),
            shape_constant=[STATIC_EXTENT if d in static else None for d in range(outer + 1)],
            stride_divisible_by=(*[DIVISIBLE_BY] * outer, 1),
            shape_divisible_by=DIVISIBLE_BY,
            base_addr_divisible_by=DIVISIBLE_BY,
        )
        if parameter["kind"] == "array":
            return array
        return self.compilation.ListConstraint(array, alias_groups=(), elements_may_alias=False)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Named temporary files are made there, wherever they are asked for."""
    make = tempfile.NamedTemporaryFile

    def there(*arguments: Any, **options: Any) -> Any:
        return make(*arguments, **options | {"dir": folder})

    tempfile.NamedTemporaryFile = there
    try:
        yield
    finally:
        tempfile.NamedTemporaryFile = make


def load(name: str, file: Path) -> ModuleType:
    """Import this very file, whatever else bears its name; its package first, where it has one."""
    package = name.rpartition(".")[0]
    if package:
        importlib.import_module(package)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _place() -> str:
    """The file of a cuda.tile that cannot be imported; empty where there is none."""
    try:
        spec = importlib.util.find_spec("cuda.tile")
    except (ImportError, ValueError):
        return ""
    return (spec.origin or "") if spec else ""


def _line(problem: BaseException) -> str:
    """The first line of an error."""
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), "")


def behind_place(problem: BaseException, root: Path) -> str:
    """An exception in a line, behind the last place of the checkout that it came through."""
    frames = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(problem.__traceback__)]
    own = [(path, line) for path, line in frames if path.is_relative_to(root)]
    place = f"{own[-1][0].relative_to(root)}:{own[-1][1]}: " if own else ""
    return f"{place}{type(problem).__name__}: {_line(problem)}"


def with_place(problem: Exception) -> str:
    """The compiler's first line, with the file and line it speaks of where it names them.

    Of tileiras' errors, whose first line is "Return code 5", the second one too; of Triton's, whose
    first line is a place and whose next ones are source, the reason at their end.
    """
    if getattr(problem, "src", None) is not None and hasattr(problem, "error_message"):
        return f"{type(problem).__name__}: {_reason(problem)}"
    said = [line.strip() for line in str(problem).splitlines() if line.strip()] or [""]
    first = ": ".join(said[:2]) if said[0].startswith("Return code") else said[0]
    text = f"{type(problem).__name__}: {first}"
    location: Any = getattr(problem, "loc", None)
    file, line = getattr(location, "filename", None), getattr(location, "line", None)
    return f"{Path(file).name}:{line}: {text}" if file and line else text


def _reason(problem: BaseException) -> str:
    """Why Triton compiles nothing, and the line of the kernel: that of the innermost function."""
    node, said = getattr(problem, "node", None), getattr(problem, "error_message", None)
    within = problem.__cause__
    if not said and within is not None:
        return _reason(within) if hasattr(within, "error_message") else _line(within)
    source = str(getattr(problem, "src", "")).splitlines()
    number = getattr(node, "lineno", 0)
    shown = f", at `{source[number - 1].strip()}`" if 0 < number <= len(source) else ""
    return f"{' '.join(str(said or problem).split())}{shown}"


def _tell(answers: Path, **message: Any) -> None:
    with answers.open("a", encoding="utf-8") as file:
        file.write(json.dumps(message) + "\n")


def _end(answers: Path, **message: Any) -> NoReturn:
    _tell(answers, **message)
    sys.exit(0)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, put there because it was run by path
    sys.dont_write_bytecode = True
    main(json.load(sys.stdin))
