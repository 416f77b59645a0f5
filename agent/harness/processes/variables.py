"""Which variables a process gets that runs code under judgement, or writes it: those on a list.

What is not known to be needed is not handed on, and what looks like a secret, by its name or by
its value, is not handed on even if it is on the list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping

from agent.errors import UsageError
from agent.redaction import holds_secret

_KNOWN = re.compile(
    r"""
    HOME | LANG | LANGUAGE | LOGNAME | PATH | PWD | SHELL | TERM | TZ | USER | TMPDIR
    | CC | CXX | C(?:XX)?FLAGS | LDFLAGS | CPATH | C(?:PLUS)?_INCLUDE_PATH | LIBRARY_PATH
    | LD_LIBRARY_PATH | LD_PRELOAD | PKG_CONFIG_PATH | MAX_JOBS
    | VIRTUAL_ENV | PYENV_ROOT | PYENV_VERSION
    | (?: LC_ | CUDA | NVIDIA_ | NVRTC | NCCL_ | CUDNN | CUBLAS | CUPTI_ | TRITON | NVTRITON
        | TORCH | PYTORCH_ | ATEN_ | CUTILE | CUTE_ | CUTLASS_ | TILE | ENABLE_TILE | HELION_
        | FLASHINFER_ | JAX_ | XLA_ | NUMBA | NUMPY | CUPY | OMP_ | OPENBLAS_ | MKL_ | KMP_
        | GOMP_ | MALLOC_ | PYTHON | PYTEST_ | HYPOTHESIS | CONDA_ | XDG_ | HF_ | HUGGINGFACE_
        | TRANSFORMERS_ ) \w*
    """,
    re.VERBOSE,
)
_OF_SHELLS = ("_", "OLDPWD", "SHLVL")
_OF_PROGRAMS = re.compile(
    r"""
    (?: https? | all | no ) _proxy | SSL_CERT_\w+ | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE
    | (?: ANTHROPIC | CLAUDE | OPENAI | CODEX | AIDER | GEMINI | GOOGLE | AZURE | AWS ) \w*
    | (?: NODE | NVM | NPM | UV | GIT ) _\w+ | \w*_MODEL
    | EDITOR | VISUAL | PAGER | COLORTERM | NO_COLOR | CI
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What agent programs need besides: their network, their settings. Their keys have to be named."""


def worker_environment(
    base: Mapping[str, str], extra: Mapping[str, str], passed: Collection[str] = ()
) -> dict[str, str]:
    """What a process that runs code under judgement gets.

    Args:
        base: the variables of this process.
        extra: what is set besides, whatever it is called.
        passed: names that the user hands on. One that looks like a secret stays behind all the
            same: a kernel under test, and a model's candidate, have no business with it.
    """
    kept = {
        name: value
        for name, value in base.items()
        if (_KNOWN.fullmatch(name) or name in passed) and not holds_secret(name, value)
    }
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **extra}


def held_back(base: Mapping[str, str], passed: Collection[str] = ()) -> tuple[str, ...]:
    """The names of what a process that runs code under judgement could get, and does not.

    Shells set some for themselves, which nobody hands on.
    """
    given = {*worker_environment(base, {}, passed), *_OF_SHELLS}
    return tuple(n for n, value in base.items() if n not in given and not holds_secret(n, value))


def insist_set(names: Iterable[str]) -> None:
    """Look whether there is something to hand on.

    Raises:
        UsageError: a variable of these is not set.
    """
    if unset := next((name for name in names if name not in os.environ), ""):
        raise UsageError(f"--pass-env {unset}: no such variable is set: set it, or leave it out")


def program_environment(base: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """What an agent program gets: `extra` holds the keys that the user has named for it."""
    kept = {
        name: value
        for name, value in base.items()
        if (_KNOWN.fullmatch(name) or _OF_PROGRAMS.fullmatch(name))
        and not holds_secret(name, value)
    }
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **extra}


def withheld(base: Mapping[str, str], given: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the secrets that a process did not get."""
    return tuple(
        sorted(n for n, value in base.items() if n not in given and holds_secret(n, value))
    )
