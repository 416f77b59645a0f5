"""Autotuning of a cuTile kernel: what to search, and the code that searches it when it runs.

`plan` walks the decision tree from the source to a template and a search space; `write` edits the
file. Nothing here runs a kernel.
"""

from agent.tuning.plan import SearchPlan, TunableSizes, plan
from agent.tuning.resident import for_resident_blocks
from agent.tuning.staying import Staying
from agent.tuning.templates import TEMPLATES, NotTunable, Template
from agent.tuning.write import write

__all__ = [
    "TEMPLATES",
    "NotTunable",
    "SearchPlan",
    "Staying",
    "Template",
    "TunableSizes",
    "for_resident_blocks",
    "plan",
    "write",
]
