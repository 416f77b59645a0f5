"""Write `agent/lint/cutile_api.json`: what the installed cuda.tile offers, as data.

    python -m tools.cutile_api

lint reads the file, so that it answers on a machine without cuda.tile too.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "agent" / "lint" / "cutile_api.json"


def generated() -> str:
    """What the file has to hold for the cuda.tile that is installed."""
    import cuda.tile as ct
    from cuda.tile import compilation, tune

    routines = {name: getattr(ct, name) for name in ct.__all__}
    routines = {name: found for name, found in routines.items() if inspect.isroutine(found)}
    kernel = inspect.signature(ct.kernel.__init__)
    kernel = kernel.replace(parameters=list(kernel.parameters.values())[1:])
    search = inspect.signature(tune.exhaustive_search)
    names = [f"{m.__name__.rpartition('.')[2]}.{n}" for m in (compilation, tune) for n in m.__all__]
    signatures = {name: _shape(inspect.signature(found)) for name, found in routines.items()}
    signatures |= {"kernel": _shape(kernel), "tune.exhaustive_search": _shape(search)}
    hints = [p.name for p in kernel.parameters.values() if p.kind is p.KEYWORD_ONLY]
    data = {
        "made by": "python -m tools.cutile_api",
        "cuda_tile": importlib.metadata.version("cuda-tile"),
        "hints": hints,
        "measurement": _attributes(tune.Measurement),
        "members": {kind.__name__: _public(kind) for kind in (ct.Array, ct.Tile)},
        "result": _attributes(tune.TuningResult),
        "names": sorted({*ct.__all__, *names, *_modules(ct)}),
        "signatures": dict(sorted(signatures.items())),
    }
    return json.dumps(data, indent=1) + "\n"


def _modules(package: Any) -> list[str]:
    """Its public submodules, some of which need packages that are not installed."""
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    return [name for name in found if not name.startswith("_")]


def _shape(signature: inspect.Signature) -> str:
    """What decides whether a call fits: without annotations, and with 0 for every default."""
    plain = [
        parameter.replace(
            annotation=parameter.empty,
            default=parameter.empty if parameter.default is parameter.empty else 0,
        )
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))


def _attributes(kind: Any) -> list[str]:
    """What a value of a dataclass has."""
    return sorted({*_public(kind), *kind.__dataclass_fields__})


def _public(kind: type) -> list[str]:
    """What a class gives its values."""
    return sorted(name for name in vars(kind) if not name.startswith("_"))


if __name__ == "__main__":
    FILE.write_text(generated(), encoding="utf-8")
