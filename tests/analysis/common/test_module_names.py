"""By which names code reaches a module when it runs."""

from __future__ import annotations

import textwrap

import pytest

from agent.analysis.common.module_names import bound_at, reached_as
from agent.syntax import Source

USE = "def use(x):\n    return torch.empty_like(x)\n"
RAISING = "except ImportError as e:\n    raise RuntimeError('install it') from e\n"
GUARDED = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"import torch\n\n{USE}", "torch"),
        (f"import torch.nn\n\n{USE}", "torch"),
        ("import torch as th\n\ndef use(x):\n    return th.empty_like(x)\n", "th"),
        (f"{USE}\n\nimport torch\n", "torch"),
        (f"try:\n    import torch\n{RAISING}\n{USE}", "torch"),
        (f"try:\n    import torch\nexcept ImportError:\n    torch = None\n\n{USE}", "torch"),
        ("def use(x):\n    import torch\n    return torch.empty_like(x)\n", "torch"),
        (
            f"def made():\n    import torch\n\n{textwrap.indent(USE, '    ')}    return use\n",
            "torch",
        ),
        # Imported and not used, so far.
        ("import torch\n\ndef use(x):\n    return x\n", "torch"),
        ("import torch.nn\n\ndef use(x):\n    return x\n", "torch"),
        ("import numpy as torch\n\ndef use(x):\n    return torch.empty_like(x)\n", None),
        # There for a type checker, in another function, or not yet.
        (f"{GUARDED}    import torch\n\n{USE}", None),
        (f"{GUARDED}    import torch\nelse:\n    import torch\n\n{USE}", "torch"),
        (f"def other():\n    import torch\n    return torch\n\n{USE}", None),
        ("def use(x):\n    x()\n    import torch\n    return torch.empty_like(x)\n", None),
        ("import torch\n\ndef use(torch):\n    return torch\n", None),
        ("import numpy\n\ndef use(x):\n    return numpy.empty_like(x)\n", None),
    ],
)
def test_the_name_of_torch_where_it_is_used(text: str, name: str | None) -> None:
    source = Source(text)
    (function,) = (f for f in source.functions if f.node.name.value == "use")
    body = function.node.body.body
    place = next(s for s in body if "import" not in source.code(s))
    assert reached_as(source, "torch", place) == name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("import cuda.tile as ct\n", 0),
        ("x = 1\nimport cuda.tile as ct\n", 1),
        ("try:\n    import cuda.tile as ct\nexcept ImportError:\n    ct = None\n", 0),
        ("ct = None\nimport cuda.tile as ct\n", 1),
        ("def f():\n    import cuda.tile as ct\n    return ct\n", None),
        (f"{GUARDED}    import cuda.tile as ct\n", None),
        ("y = 1\nx = 1\n_ = x\nimport cuda.tile as ct\n", None),
    ],
)
def test_the_statement_that_binds_a_name(text: str, number: int | None) -> None:
    assert bound_at(Source(text), "ct", 3) == number
