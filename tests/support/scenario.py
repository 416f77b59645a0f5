"""One scripted run that meets every phase and every verdict."""

from tests.support.scripted import Step, kernel

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
    Step("never reached", (kernel(0.1),)),
)
