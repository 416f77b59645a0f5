"""Names of captured cases: they say what differs, in few words."""

from __future__ import annotations

from typing import Any

from agent.capture.calls import CallTime, CapturedCall
from agent.capture.case_ids import ids


def tensor(*shape: int, dtype: str = "float32", **changed: Any) -> dict[str, Any]:
    strides = [1] * len(shape)
    for n in range(len(shape) - 2, -1, -1):
        strides[n] = strides[n + 1] * shape[n + 1]
    fact = {
        "kind": "tensor", "dtype": dtype, "shape": [*shape], "strides": strides, "offset": 0,
        "aligned": True, "requires_grad": False, "memory": 0, "on_cpu": True,
    }  # fmt: skip
    return fact | changed


def value(code: str) -> dict[str, Any]:
    return {"kind": "value", "code": code}


def call(*arguments: Any, own: Any = None, **keywords: Any) -> CapturedCall:
    made_by = {"arguments": [own], "keywords": {}} if own else None
    return CapturedCall(
        "m", "f", arguments, keywords, ("x", "w")[: len(arguments)], made_by, bool(own), "", ("k",),
        CallTime(1, 1.0), CallTime(), 1,
    )  # fmt: skip


X = tensor(8, 4)


def test_shapes_and_type_suffice_where_they_differ() -> None:
    calls = [call(X, tensor(4)), call(tensor(9, 4), tensor(4)), call(tensor(8, 4, dtype="int8"))]
    assert ids(calls) == ["8x4-4-float32", "9x4-4-float32", "8x4-int8"]


def test_a_number_a_type_and_an_option_are_named() -> None:
    calls = [call(X, eps=value("1e-05")), call(X, eps=value("0.0")), call(tensor(7))]
    assert ids(calls) == ["8x4-float32-eps=1e-05", "8x4-float32-eps=0.0", "7-float32"]
    calls = [call(X, tensor(4)), call(X, tensor(4, dtype="float16"))]
    assert ids(calls) == ["8x4-4-float32-w=float32", "8x4-4-float32-w=float16"]
    calls = [call(X, dtype=value("torch.float16")), call(X, dtype=value("None")), call(X)]
    told = ["8x4-float32-dtype=float16", "8x4-float32-dtype=None", "8x4-float32"]
    assert ids(calls) == told
    calls = [call(X, b=tensor(4)), call(X, b=value("None"))]
    assert ids(calls) == ["8x4-4-float32", "8x4-float32"]


def test_layout_and_alignment_are_named_where_nothing_else_differs() -> None:
    turned = tensor(8, 4, strides=[1, 8])
    calls = [call(X), call(turned), call(tensor(8, 4, aligned=False))]
    assert ids(calls) == [
        "8x4-float32-x=strides4x1",
        "8x4-float32-x=strides1x8",
        "8x4-float32-x=strides4x1-x=unaligned",
    ]
    calls = [call(X, turned), call(X, tensor(8, 4, strides=[1, 8], memory=1))]
    assert ids(calls) == ["8x4-float32-w=memory0", "8x4-float32-w=memory1"]


def test_no_more_is_named_than_tells_them_apart() -> None:
    calls = [call(X, a=value(f"{n}"), b=value(f"{n}")) for n in range(2)]
    assert ids(calls) == ["8x4-float32-a=0", "8x4-float32-a=1"]
    calls = [call(X, a=value(a), b=value(b)) for a, b in ("12", "13", "23")]
    assert ids(calls) == ["8x4-float32-a=1-b=2", "8x4-float32-a=1-b=3", "8x4-float32-a=2"]


def test_what_lies_inside_of_others_is_named_by_its_place() -> None:
    pairs = [{"kind": "tuple", "items": [value("1"), value(each)]} for each in ("2", "3")]
    assert ids([call(X, size=pair) for pair in pairs]) == [
        "8x4-float32-size.1=2",
        "8x4-float32-size.1=3",
    ]
    assert ids([call(X, own=value("'a b[1]'")), call(X, own=value("''"))]) == [
        "8x4-float32-own.0=ab1",
        "8x4-float32-own.0=empty",
    ]


def test_a_counter_is_left_for_what_no_text_says() -> None:
    assert ids([call(X), call(X)]) == ["8x4-float32", "8x4-float32_2"]
