"""CUDA's libdevice in Triton's interpreter, which has stubs of it that return nothing.

A call goes the way that it takes in a compiler, through `extern_elementwise`, which knows the types
that each function takes. What it ends at, the function of the device by its name, is computed by
torch here, in float64, and rounded to the result's type: on a device it differs by some ulps.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tile_agent_pytest.libdevice_bits import bit_function

STUBS = "triton.language.extra.libdevice"
FUNCTIONS = "triton.language.extra.cuda.libdevice"


def mend_modules() -> None:
    """Have the functions of the two modules work, as far as these are imported."""
    for name in (STUBS, FUNCTIONS):
        module = sys.modules.get(name)
        for function, value in list(vars(module).items()) if module else ():
            if callable(value) and getattr(value, "__module__", "") in (STUBS, FUNCTIONS):
                setattr(module, function, _interpreted(function, value))


def mend_builder(builder: Any) -> None:
    """Have the interpreter's builder compute what a device's function does."""
    if builder.create_extern_elementwise is not _computed:
        builder.create_extern_elementwise = _computed


def _interpreted(name: str, original: Any) -> Any:
    if hasattr(original, "by_tile_agent"):
        return original
    declared = original if original.__module__ == FUNCTIONS else None

    @functools.wraps(original)
    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        function = declared or getattr(importlib.import_module(FUNCTIONS), name)
        function = getattr(function, "by_tile_agent", function)
        semantic = _semantic or sys.modules["triton.runtime.interpreter"].interpreter_semantic
        return function(*args, _semantic=semantic, **kwargs)

    wrapper: Any = call
    wrapper.by_tile_agent = original
    return wrapper


def _computed(
    _builder: Any, _library: str, _path: str, symbol: str, args: Any, kind: Any, _is_pure: bool
) -> Any:
    import torch

    interpreter: Any = sys.modules["triton.runtime.interpreter"]
    element = kind.scalar
    if (of_bits := bit_function(symbol.removeprefix("__nv_"))) is not None:
        with interpreter.np.errstate(all="ignore"):
            found = of_bits(*(interpreter.np.ascontiguousarray(arg.data) for arg in args))
            data = found.astype(interpreter._get_np_dtype(element))
        return interpreter.TensorHandle(data, element)
    function = _named(symbol)
    if function is None:
        raise NotImplementedError(f"{symbol} of libdevice is not known without a GPU")
    given = [torch.from_numpy(interpreter.np.ascontiguousarray(arg.data)) for arg in args]
    wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in given]
    data = function(*wide).numpy().astype(interpreter._get_np_dtype(element))
    return interpreter.TensorHandle(data, element)


def _named(symbol: str) -> Callable[..., Any] | None:
    """The function of a device's name, such as __nv_tanhf, which is that of float32."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    known = _functions()
    rounded = re.fullmatch(r"[fd](add|sub|mul|div|rcp|sqrt|rsqrt)_rn|(fma)f?_rn", name)
    if rounded:
        name = rounded[1] or rounded[2]
    return next((known[n] for n in (name, name.removesuffix("f")) if n in known), None)


@functools.cache
def _functions() -> Mapping[str, Callable[..., Any]]:
    import torch

    same = """
        acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1
        floor fmod hypot lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt tan tanh
        trunc abs
    """
    return {name: getattr(torch, name) for name in same.split()} | {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "fdividef": torch.div,
        "rcp": torch.reciprocal,
        "fma": lambda a, b, c: a * b + c,
        "fabs": torch.abs,
        "llabs": torch.abs,
        "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
        "rcbrt": lambda x: x.sign() * x.abs() ** (-1 / 3),
        "exp10": lambda x: 10**x,
        "fdim": lambda x, y: (x - y).clamp_min(0),
        "powi": lambda x, n: x ** n.double(),
        "ldexp": lambda x, n: x * 2 ** n.double(),
        "scalbn": lambda x, n: x * 2 ** n.double(),
        "normcdf": torch.special.ndtr,
        "normcdfinv": torch.special.ndtri,
        "erfcinv": lambda x: torch.erfinv(1 - x),
        "erfcx": torch.special.erfcx,
        "tgamma": _gamma,
        "j0": torch.special.bessel_j0,
        "j1": torch.special.bessel_j1,
        "y0": torch.special.bessel_y0,
        "y1": torch.special.bessel_y1,
        "cyl_bessel_i0": torch.special.modified_bessel_i0,
        "cyl_bessel_i1": torch.special.modified_bessel_i1,
        "sinpi": lambda x: torch.sin(torch.pi * x),
        "cospi": lambda x: torch.cos(torch.pi * x),
        "rhypot": lambda x, y: 1 / torch.hypot(x, y),
        "rint": torch.round,
        "nearbyint": torch.round,
        "llrint": torch.round,
        "round": _rounded_away,
        "llround": _rounded_away,
        "saturate": lambda x: x.nan_to_num(0).clamp(0, 1),
        "isnan": torch.isnan,
        "isnand": torch.isnan,
        "isinf": torch.isinf,
        "isinfd": torch.isinf,
        "finite": torch.isfinite,
        "isfinited": torch.isfinite,
        "signbit": torch.signbit,
        "signbitd": torch.signbit,
    }


def _gamma(x: Any) -> Any:
    """By its reflection below zero: the logarithm that torch has is one of the absolute value."""
    import torch

    reflected = torch.pi / (torch.sin(torch.pi * x) * torch.exp(torch.lgamma(1 - x)))
    return torch.where(x > 0, torch.exp(torch.lgamma(x)), reflected)


def _rounded_away(x: Any) -> Any:
    """To the nearest integer, the middle of two away from zero."""
    import torch

    return x.trunc() + torch.where((x - x.trunc()).abs() >= 0.5, x.sign(), 0)
