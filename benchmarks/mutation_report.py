"""What became of the mutants, as tables. Pure: rows in, a text out."""

from __future__ import annotations

import pandas as pd

from benchmarks.mutation_judging import CHANGING, CHECKS, GUARDS, TESTS
from benchmarks.tables import NONE, escaped, markdown

COUNTS = ("mutants", "no result changed", "rounding only", "faults")
SHARES = ("tests alone", "with bounds", "all checks")
REFUSED = "refused without a fault"
LEGEND = (
    "A fault is a mutant that changes a result by more than rounding at a shape that is tested or "
    "timed, that writes over an argument, or that raises; the others leave the count. 'Tests "
    "alone': refused by the user's correctness tests. 'With bounds': or by the bounds that are "
    "watched in Triton's interpreter; what they stop, the tests might have refused as well. 'All "
    "checks': or by anything else that the judge looks at."
)


def report(rows: pd.DataFrame) -> str:
    """The whole document.

    Args:
        rows: one for each mutant, with the columns of `mutation_judging.Row`.
    """
    lines = ["# Mutants", "", LEGEND, ""]
    for column in ("kernel", "mutator"):
        lines += [*table(rows, column), ""]
    lines += ["## Faults that survive", ""]
    for _, mutant in survivors(rows).iterrows():
        where = f" at {mutant['where']}" if mutant["where"] else ""
        place = f"{mutant['kernel']}:{mutant['line']}, {mutant['mutator']}"
        lines += [f"{place}: {mutant['effect']}{where}", ""]
        lines += ["```diff", mutant["diff"], "```", ""]
    return "\n".join(lines)


def survivors(rows: pd.DataFrame) -> pd.DataFrame:
    """The faults that nothing refuses."""
    return rows[rows["effect"].isin(CHANGING) & (rows["caught_by"] == "")]


def figures(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """A row for each value of a column: how many mutants, how many faults, who catches them."""
    fault = rows["effect"].isin(CHANGING)
    caught = rows["caught_by"]
    counted = pd.DataFrame(
        {
            column: rows[column],
            "mutants": True,
            "no result changed": rows["effect"] == "none",
            "rounding only": rows["effect"] == "rounding",
            "faults": fault,
            "tests alone": fault & (caught == TESTS),
            "with bounds": fault & caught.isin((TESTS, GUARDS)),
            "all checks": fault & caught.isin((TESTS, GUARDS, CHECKS)),
            REFUSED: ~fault & (caught != ""),
        }
    )
    return counted.groupby(column).sum().astype(int)


def table(rows: pd.DataFrame, column: str) -> list[str]:
    """The figures of each value of a column, and of all together."""
    found = figures(rows, column)
    found.loc["**all**"] = found.sum()
    cells = pd.DataFrame({column: [escaped(str(name)) for name in found.index]})
    for name in (*COUNTS, REFUSED):
        cells[name] = [str(count) for count in found[name]]
    for name in SHARES:
        pairs = zip(found[name], found["faults"], strict=True)
        cells[name] = [share(part, whole) for part, whole in pairs]
    return markdown(cells, left=(column,))


def share(part: int, whole: int) -> str:
    """'45 of 50, 90.0 %', or a dash."""
    return f"{part} of {whole}, {100 * part / whole:.1f} %" if whole else NONE
