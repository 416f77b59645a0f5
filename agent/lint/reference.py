"""The rules as a page for people; `docs/reference/cutile_rules.md` is what this makes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from agent.lint.base import ARROW, Check
from agent.lint.run import CHECKS


@dataclass(frozen=True)
class Rule:
    """A rule that others have stated, and what becomes of it here."""

    text: str
    codes: tuple[str, ...]
    """The checks that hold it."""
    remark: str = ""
    """Why there is no check, or what is no longer so."""


RULES = (
    Rule(
        "Import as `import cuda.tile as ct`",
        ("CT014",),
        "Any import of `cuda.tile` works; names are resolved.",
    ),
    Rule("An index of a load or store counts tiles", ("CT201", "CT009")),
    Rule(
        "Python's operators for arithmetic on indices",
        (),
        "Stale: `ct.add` and `ct.mul` of integers compile, and stay integers.",
    ),
    Rule("`ct.mma` takes its accumulator", ("CT002",)),
    Rule("No None among the arguments of a launch", ("CT102",)),
    Rule("`ct.cdiv` in kernels, Python's arithmetic or `ct.cdiv` on the host", ("CT004",)),
    Rule("`ct.astype`, not `.to`", ("CT003",)),
    Rule("Helpers of a kernel are plain functions", ("CT104",)),
    Rule("Define variables before branches", ("CT010",)),
    Rule(
        "No `break`, no `continue`",
        (),
        "Stale: both compile, `break` in a `for` since 1.6; not in `ct.static_iter`.",
    ),
    Rule("The grid is a tuple of one to three integers", ("CT101",)),
    Rule("`ct.arange` starts at 0", (), "Stale since 1.5: it takes `start=` and `step=`."),
    Rule(
        "Strides of NHWC tensors come from `stride()`",
        (),
        "Not a matter of the source: `view(-1)` of such a tensor raises in torch.",
    ),
    Rule(
        "Mask a block that is longer than its axis; divide by the axis",
        ("CT203", "CT204", "CT206"),
        "A gather past the end of an array gives zero, which a sum may take.",
    ),
    Rule(
        "Scatter with a mask, or with offsets out of bounds",
        ("CT202",),
        "`ct.scatter` checks bounds unless told not to.",
    ),
    Rule(
        "Constants are integers, floats or truth values",
        ("CT102", "CT106"),
        "An IntEnum is an integer, and tuples of them are allowed too.",
    ),
    Rule("Shapes are known when the kernel is compiled", ("CT008", "CT007")),
    Rule("No dead parameters", ("CT302",)),
)
"""The 18 rules of TileGym's cuTile API reference, in its order."""

PITFALLS = (
    Rule("A kernel that works in place is corrupted by its search", ("CT404",)),
    Rule("More than 30 configs take minutes to compile", ("CT402",)),
    Rule(
        "Cold caches skew the first measurement",
        ("CT405",),
        "`exhaustive_search` of 1.7 runs every config three times before it measures.",
    ),
    Rule("A profiler records the trials of the search", ("CT410",)),
    Rule("A generator as search space, or none of its configs", ("CT401", "CT412", "CT413")),
    Rule(
        "Division loses precision that FP8 needs",
        ("CT205",),
        "Reversed: on 1.7 `/` is exact, and `RoundingMode.FULL` is what loses it.",
    ),
    Rule("`replace_hints` on the hot path", ("CT406",)),
)
"""The seven pitfalls of TileGym's autotuning guide, in its order."""

_INTRODUCTION = """\
# Rules for cuTile kernels

Made by `tile-agent lint --rules`; not edited by hand.

`tile-agent lint --kernel FILE` checks a file against these rules, by its source alone and without a
GPU. An *error* will not compile or launch, or gives wrong results; a *warning* costs far more than
it has to; a *note* is worth a look. The exit code is 3 when an error was found. A comment silences
a finding on its line:

```python
t = ct.load(x, (ct.bid(0) * size,), (size,))  # noqa: CT201
```

When a value is not known from the file, no rule fires: silence is no proof. The rules hold for
cuda-tile 1.7.
"""


def rules_as_markdown() -> str:
    """The page."""
    parts = [
        _INTRODUCTION,
        _table(("code", "name", "severity", "what to do"), [
            (c.code, c.name, c.severity.value, c.mend) for c in CHECKS
        ]),
        *map(_section, CHECKS),
        "## The 18 rules of TileGym's cuTile API reference\n",
        _rules(RULES),
        "## The seven pitfalls of TileGym's autotuning guide\n",
        _rules(PITFALLS),
    ]  # fmt: skip
    return "\n".join(parts)


def _section(check: Check) -> str:
    return (
        f"## {check.code}: {check.name} ({check.severity})\n\n{check.why}\n\n"
        f"*Mend:* {_sentence(check.mend)}\n\n*Source:* {_sentence(check.source)}\n\n"
        f"```diff\n{_change(check)}```\n"
    )


def _change(check: Check) -> str:
    """From the bad example to the good one."""
    bad = check.bad.replace(ARROW, "").splitlines(keepends=True)
    lines = difflib.unified_diff(bad, check.good.splitlines(keepends=True), n=3)
    return "".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _sentence(text: str) -> str:
    first = text[0] if text.startswith(("cuda", "num", "tile")) else text[0].upper()
    return f"{first}{text[1:]}."


def _rules(rules: tuple[Rule, ...]) -> str:
    rows = [
        (str(number), rule.text, ", ".join(rule.codes) or "-", rule.remark)
        for number, rule in enumerate(rules, 1)
    ]
    return _table(("number", "rule", "check", "remark"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
