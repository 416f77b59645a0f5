"""What a run on a kernel would do, before it begins: nothing is launched, and nothing changed."""

from agent.planning.plan import Plan, make_plan
from agent.planning.text import text

__all__ = ["Plan", "make_plan", "text"]
