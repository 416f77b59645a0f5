"""Triton's interpreter, where it does otherwise than Triton's compiler, put right.

A float among a launch's arguments is a float32 to a compiled kernel, with a type and `.to`. The
interpreter, of Triton 3.9 still, hands over Python's number: kernels that ask for its type fail.
A tuner asks for a GPU to time its configs on; without one its first config is taken, for no time of
the interpreter says anything about a GPU's. CUDA's libdevice is `interpreted_libdevice`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

from tile_agent_pytest import interpreted_libdevice

INTERPRETER = "triton.runtime.interpreter"
TUNER = "triton.runtime.autotuner"
MODULES = (INTERPRETER, TUNER, interpreted_libdevice.STUBS, interpreted_libdevice.FUNCTIONS)
"""What is mended, once it is imported."""


def mend_all() -> None:
    """Put all of it right before anything of the user's is imported, where Triton interprets."""
    if os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules:
        for name in MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        mend()


def mend() -> None:
    """Put right what is imported by now, where Triton interprets; a second time changes nothing."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    interpreter: Any = sys.modules.get(INTERPRETER)
    convert = getattr(interpreter, "_implicit_cvt", None)
    if convert is not None and isinstance(convert(0.0), float):
        interpreter._implicit_cvt = _with_floats(interpreter, convert)
    if hasattr(interpreter, "interpreter_semantic"):
        interpreted_libdevice.mend_builder(interpreter.InterpreterBuilder)
        interpreted_libdevice.mend_modules()
    tuner: Any = getattr(sys.modules.get(TUNER), "Autotuner", None)
    if tuner is not None:
        tuner.do_bench = property(_benchmarker)


def _with_floats(interpreter: Any, convert: Any) -> Any:
    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        float32 = interpreter.tl.float32
        number = interpreter.np.array([argument], dtype=interpreter.np.float32)
        return interpreter.tl.tensor(interpreter.TensorHandle(number, float32), float32)

    return implicit_cvt


def _benchmarker(_: Any) -> Any:
    return lambda kernel_call, quantiles: [0.0, 0.0, 0.0]  # noqa: ARG005
