"""Whether what the Triton entries write agrees with the origin, on public code as it is.

    TRITON_INTERPRET=1 python -m benchmarks.public_agreement OUT TRITONBENCH [NAME ...]

TRITONBENCH is a git clone of https://github.com/thunlp/TritonBench. Each file of its set G is run
by its own test in Triton's interpreter, twice; then with each entry, asked as for sm_90 with the
launches that were seen, the first, the middle and the last of its variants. What differs by more
than rounding is a fault, and so is a test that no longer comes to its end. Left out, and counted:
files that fail by themselves, take too long, or differ from themselves. No GPU is needed; what is
compiled for one is another matter. Writes OUT/public_agreement.json after each file and
OUT/public_agreement.md at the end; a file that OUT holds is not run again. Takes two hours.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.backends import BACKENDS
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.syntax import Source
from benchmarks.public_kernels import KERNELS
from benchmarks.public_tests import Outcome, asked, run
from benchmarks.spec import replace_whole

LIMIT_S = 25.0
"""Of an origin; a variant has four times as long as the origin took, and 10 s at least."""
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""What sums in another order may differ by, relative to a tensor as a vector."""
COARSE = 0.1
"""That of smaller types."""
MADE = "public_agreement"


def main() -> int:
    """Run them. Returns 1 where something written does not agree."""
    wanted = asked(__doc__, LIMIT_S)
    made = wanted.out / f"{MADE}.json"
    known: dict[str, Any] = json.loads(made.read_text()) if made.exists() else {}
    for path in sorted((wanted.tritonbench / KERNELS).glob("*.py")):
        if path.stem in known or (wanted.names and path.stem not in wanted.names):
            continue
        known[path.stem] = _file(path, wanted.out / path.stem, wanted.limit_s)
        replace_whole(made, json.dumps(known, indent=1))
        faults = [v for v in known[path.stem]["variants"] if v["fault"]]
        told = known[path.stem]["left_out"] or f"{len(known[path.stem]['variants'])} variants"
        print(f"{path.stem}: {told}", *map(_line, faults), sep="\n  ", flush=True)
    replace_whole(wanted.out / f"{MADE}.md", report(known))
    return 1 if any(v["fault"] for each in known.values() for v in each["variants"]) else 0


def _file(path: Path, folder: Path, limit_s: float) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    origin = run(text, path.name, folder, limit_s)
    found: dict[str, Any] = {"left_out": origin.fault, "took_s": origin.took_s, "variants": []}
    if not origin.fault and not origin.values:
        found["left_out"] = "its test gives no tensor"
    if not found["left_out"] and differences(origin, run(text, path.name, folder, limit_s * 2)):
        found["left_out"] = "differs from itself"
    if found["left_out"]:
        return found
    triton = BACKENDS["triton"]
    source = Source(text, path.name)
    kernel_class = triton.classify(source).kernel_class
    subject = Subject(source, kernel_class, Hardware(sm=90), origin.launches)
    seen = {text}
    for entry, params, changed in written(subject):
        if changed in seen:
            continue
        seen.add(changed)
        own = folder / f"{entry.name}_{len(seen)}"
        outcome = run(changed, path.name, own, max(10.0, 4 * origin.took_s))
        fault = "; ".join(differences(origin, outcome, entry.changes_rounding)[:3])
        found["variants"].append({"entry": entry.name, "params": str(dict(params)), "fault": fault})
    return found


def written(subject: Subject) -> Iterator[tuple[Optimization, Params, str]]:
    """The first, the middle and the last variant of each entry that applies, with its text."""
    for entry in for_backend("triton"):
        try:
            variants = list(entry.variants(subject))
        except NotApplicable:
            continue
        for place in sorted({0, len(variants) // 2, len(variants) - 1}):
            yield entry, variants[place], entry.apply(subject, variants[place])


def differences(origin: Outcome, other: Outcome, rounding: float = 0.0) -> list[str]:
    """Where the values differ by more than rounding, of which `rounding` is the entry's own."""
    if other.fault:
        return [other.fault]
    if origin.values.keys() != other.values.keys():
        return ["it gives other tensors"]
    found = ((place, _difference(one, other.values[place], rounding))
             for place, one in origin.values.items())  # fmt: skip
    return [f"{place} {told}" for place, told in found if told]


def _difference(one: torch.Tensor, other: torch.Tensor, rounding: float) -> str:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"is {other.dtype} {list(other.shape)} for {one.dtype} {list(one.shape)}"
    if not one.dtype.is_floating_point:
        unequal = int((one != other).sum())
        return f"has {unequal} other elements of {one.numel()}" if unequal else ""
    wide, others = one.double().flatten(), other.double().flatten()
    finite = torch.isfinite(wide)
    if not torch.allclose(wide[~finite], others[~finite], rtol=0, atol=0, equal_nan=True):
        return "has other elements that are not finite"
    off = float((wide[finite] - others[finite]).norm())
    whole = float(wide[finite].norm()) or 1.0
    allowed = ROUNDING.get(one.dtype, COARSE) + 4 * rounding
    return (
        "" if off <= allowed * whole else f"is off by {off / whole:.2g}, {allowed:.2g} is rounding"
    )


def report(known: dict[str, Any]) -> str:
    """What came of them, as Markdown."""
    run_ = {name: each for name, each in known.items() if not each["left_out"]}
    left_out = Counter(_reason(each["left_out"]) for each in known.values() if each["left_out"])
    variants = [(name, v) for name, each in run_.items() for v in each["variants"]]
    faults = [(name, v) for name, v in variants if v["fault"]]
    lines = [
        f"{len(run_)} of {len(known)} files, {len(variants)} variants, {len(faults)} faults.",
        "",
        "| entry | files | variants | faults |",
        "|:--|--:|--:|--:|",
    ]
    for entry in sorted({v["entry"] for _, v in variants}):
        own = [(name, v) for name, v in variants if v["entry"] == entry]
        bad = sum(1 for _, v in own if v["fault"])
        lines.append(f"| {entry} | {len({name for name, _ in own})} | {len(own)} | {bad} |")
    lines += ["", *(f"- {number} left out: {why}" for why, number in left_out.most_common())]
    lines += [f"- {name}: {_line(v)}" for name, v in faults]
    return "\n".join(lines) + "\n"


def _reason(told: str) -> str:
    return "fails by itself" if ": " in told else told


def _line(variant: dict[str, str]) -> str:
    return f"{variant['entry']} {variant['params']}: {variant['fault']}"


if __name__ == "__main__":
    sys.exit(main())
