"""Scripted runs that meet, together, every phase and every verdict."""

from tests.support.scripted import ScriptedEntry, Step, kernel

ORIGIN = kernel(1.0)
STEPS = (
    Step("major", (kernel(0.8),)),
    Step("declined", refusal="needs a loop, and there is none"),
    Step("wrong", (kernel(0.1, "WRONG"),)),
    Step("sweep", (kernel(0.9), kernel(0.6), kernel(0.5, "WRONG"), kernel(0.7, "HANG"))),
    Step("slower", (kernel(0.7),)),
    Step("minor", (kernel(0.58),), family="cache"),
    Step("crash", (kernel(0.1, "CRASH"),)),
    Step("hang", (kernel(0.1, "HANG"),)),
    Step("slow", (kernel(0.75),)),
    Step("as-slow", (kernel(0.6),)),
    Step("never reached", (kernel(0.1),)),
)
MENDED = (
    Step("mask", (kernel(0.5, "WRONG"), kernel(1.2), kernel(0.8))),
    Step("hopeless", (kernel(0.1, "CRASH"), kernel(0.1, "HANG"), kernel(0.1, "WRONG"))),
    Step("at-once", (kernel(0.6),)),
    Step("slower-each-time", (kernel(0.7), kernel(0.61), kernel(0.9))),
)
"""By somebody who mends: the texts are attempts, one after the other."""
ENTRIES = (
    ScriptedEntry("flat", 0.995),
    ScriptedEntry("slower", 1.3, 1.2),
    ScriptedEntry("minor", 0.97),
    ScriptedEntry("foreign"),
    ScriptedEntry("major", 0.9, 0.7, 0.8),
    ScriptedEntry("after-it", 1.02, 0.9, after="minor"),
    ScriptedEntry("flat-too", 0.998),
)
"""A playbook whose order is not that of what it gains."""
