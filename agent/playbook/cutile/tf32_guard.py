"""Give float32 operands of a tile product to the tensor cores, as TF32.

When: a cuTile kernel whose `ct.mma`, `ct.matmul` or `@` may be handed float32 tiles. cuda-tile
    never casts them itself.
Do: cast both operands to `ct.tfloat32` where they are float32, and leave every other type alone.
    What `ct.matmul` and `@` give has the type of their operands: for float32 matrices, and batches
    of them, they become a `ct.mma` that sums up in float32.
Risk: changes rounding. TF32 keeps 10 bits of the 23 of a float32's mantissa, as PyTorch does with
    `torch.backends.cuda.matmul.allow_tf32`; sums stay float32.
Source: TileGym's cuTile playbook, item D, which names about 2x. Compiled with cuda-tile 1.7, a
    64 x 64 x 32 float32 product has 1024 scalar multiplications for sm_80, and spills 1008 bytes
    of stack for sm_90 and 952 for sm_100; guarded it has 128 HMMA, 12 HGMMA and 4 UTCHMMA
    instructions and spills nothing. In float16 the guard leaves the machine code as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.spelling import tile_module
from agent.analysis.cutile.tile_shapes import edges_of
from agent.playbook.base import TF32_ROUNDING, Optimization
from agent.playbook.trial import F32, TILE_PRODUCT, TileTrial
from agent.rewriting.common.insertion import free_name
from agent.rewriting.cutile.insertion import before_kernels
from agent.syntax import Function, Source, argument, assigned, descendants, names_in

TF32 = f"{CT}tfloat32"
OTHER_TYPES = tuple(
    f"{CT}{name}"
    for name in ("bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
)
Ranks: TypeAlias = tuple[int | None, int | None]
"""How many axes the two operands of a product have, as far as the code tells."""


class Tf32Guard(Optimization):
    """`ct.mma(a, b, acc)` -> `ct.mma(as_tf32(a), as_tf32(b), acc)`."""

    name = "tf32-guard"
    title = "TF32 for float32 products"
    backend = "cutile"
    family = "precision"
    priority: ClassVar = {
        KernelClass.MEMORY: 190,
        KernelClass.BALANCED: 50,
        KernelClass.COMPUTE: -40,
    }
    expected = "about 2x or more for float32 operands (TileGym); nothing for others"
    hypothesis = "Tensor cores take TF32 but not float32, which is multiplied one by one."
    changes_rounding = TF32_ROUNDING
    example: ClassVar[Params] = {}
    before = TILE_PRODUCT.replace("M, N, K = 128, 128, 64", "M, N, K = 64, 64, 32")
    after = before.replace(
        "@ct.kernel\n",
        '''\
def as_tf32(tile):
    """A float32 tile in the format of the tensor cores; any other tile as it is."""
    return ct.astype(tile, ct.tfloat32 if tile.dtype == ct.float32 else tile.dtype)


@ct.kernel
''',
    ).replace("ct.mma(left, right, sum)", "ct.mma(as_tf32(left), as_tf32(right), sum)")

    trial = TileTrial(kernel="matmul_kernel", arguments=((F32, 2), (F32, 2), (F32, 2)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: with the guard, where something was launched with float32."""
        self.apply(subject, {})
        types = {t.dtype for launch in subject.launches for t in launch.tensors.values()}
        if types and "float32" not in types:
            raise NotApplicable(f"what was launched is given {', '.join(sorted(types))}")
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Guard the operands of every product in the launched kernels and their helpers."""
        source = subject.source
        operands, products = _operands(source), _products(source)
        if not operands and not products:
            raise NotApplicable(
                "no launched kernel multiplies tiles that may be float32 and are not cast yet"
            )
        tile, helpers = tile_module(source), []
        edits: dict[Any, Any] = {}
        if operands:
            guard = free_name(source, "as_tf32")
            helpers.append(_guard(tile, guard))
            edits |= {o: lambda old: cst.Call(cst.Name(guard), [cst.Arg(old)]) for o in operands}
        if products:
            product = free_name(source, "tf32_product")
            matrices = all(ranks == (2, 2) for ranks in products.values())
            helpers.append(_product(tile, product, batches=not matrices))
            edits |= {node: _called(product) for node in products}
        return source.rewrite(
            edits | {source.module: before_kernels(source, *helpers, module=tile)}
        )


def _guard(tile: str, name: str) -> str:
    x = "tile" if tile != "tile" else "x"
    return (
        f"def {name}({x}):\n"
        '    """A float32 tile in the format of the tensor cores; any other tile as it is."""\n'
        f"    return {tile}.astype("
        f"{x}, {tile}.tfloat32 if {x}.dtype == {tile}.float32 else {x}.dtype)\n"
    )


def _product(tile: str, name: str, *, batches: bool) -> str:
    """The helper; `batches`: what it multiplies may have three axes."""
    whole = "float32 matrices"
    batched = ""
    if batches:
        whole += ", or batches of them,"
        batched = (
            "    elif float32 and x.ndim == 3 and y.ndim == 3:\n"
            "        shape = (max(x.shape[0], y.shape[0]), x.shape[1], y.shape[2])\n"
            f"        zeros = {tile}.zeros(shape, dtype={tile}.float32)\n" + _multiplied(tile)
        )
    return (
        f"def {name}(x, y):\n"
        f'    """The product of {whole} on the tensor cores; any other as it is."""\n'
        f"    float32 = x.dtype == {tile}.float32 and y.dtype == {tile}.float32\n"
        "    if float32 and x.ndim == 2 and y.ndim == 2:\n"
        f"        zeros = {tile}.zeros((x.shape[0], y.shape[1]), dtype={tile}.float32)\n"
        f"{_multiplied(tile)}{batched}"
        "    else:\n"
        f"        result = {tile}.matmul(x, y)\n"
        "    return result\n"
    )


def _multiplied(tile: str) -> str:
    return (
        f"        left = {tile}.astype(x, {tile}.tfloat32)\n"
        f"        right = {tile}.astype(y, {tile}.tfloat32)\n"
        f"        result = {tile}.mma(left, right, zeros)\n"
    )


def _called(name: str) -> Callable[[Any], cst.CSTNode]:
    """`a @ b` or `ct.matmul(a, b)` as a call of the helper."""

    def edit(product: cst.Call | cst.BinaryOperation) -> cst.Call:
        if isinstance(product, cst.Call):
            return product.with_changes(func=cst.Name(name))
        comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return cst.Call(
            cst.Name(name), [cst.Arg(product.left, comma=comma), cst.Arg(product.right)]
        )

    return edit


def _products(source: Source) -> dict[cst.Call | cst.BinaryOperation, Ranks]:
    """Where the launched kernels and their helpers multiply with `ct.matmul` or `@`.

    A function that deals with TF32 itself, and one that sets an operand's type, is left alone, and
    so is a product of other tiles than the helper multiplies: a vector, a batch and one matrix.
    """
    found: dict[cst.Call | cst.BinaryOperation, Ranks] = {}
    reached = {f.name: f for k in CUTILE.chosen(source) for f in CUTILE.reached(source, k)}
    for function in reached.values():
        body = function.node.body
        calls = list(CUTILE.find(source, body, (f"{CT}matmul",)))
        signs = [
            b
            for b in descendants(body, cst.BinaryOperation)
            if isinstance(b.operator, cst.MatrixMultiply)
        ]
        if not (calls or signs) or _reaches_tf32(source, body):
            continue
        values = _assigned_values(function)
        pairs: dict[cst.Call | cst.BinaryOperation, Sequence[cst.BaseExpression | None]] = {
            **{c: (argument(c, 0, "x"), argument(c, 1, "y")) for c in calls if len(c.args) == 2},
            **{sign: (sign.left, sign.right) for sign in signs},
        }
        for node, pair in pairs.items():
            if any(o is None or _is_settled(source, o, values) for o in pair):
                continue
            left, right = (_rank(source, operand) for operand in pair)
            if {left, right} <= {2, None} or {left, right} <= {3, None}:
                found[node] = left, right
    return found


def _rank(source: Source, operand: cst.BaseExpression | None) -> int | None:
    """How many axes a tile has; None where the code does not tell."""
    edges = edges_of(source, operand) if operand is not None else None
    return len(edges) if edges else None  # none of them: what looks like a scalar is no operand


def _operands(source: Source) -> list[cst.BaseExpression]:
    """What the launched kernels and their helpers multiply.

    No operand of a product is among them when one of the two is cast already: both have one type.
    """
    found: dict[cst.BaseExpression, None] = {}
    reached = {f.name: f for k in CUTILE.chosen(source) for f in CUTILE.reached(source, k)}
    for function in reached.values():
        products = list(CUTILE.find(source, function.node.body, (f"{CT}mma",)))
        values = _assigned_values(function) if products else {}
        for call in products:
            pair = [argument(call, 0, "x"), argument(call, 1, "y")]
            operands = [operand for operand in pair if operand is not None]
            if len(operands) == 2 and not any(_is_settled(source, o, values) for o in operands):
                found |= dict.fromkeys(operands)
    return list(found)


def _assigned_values(function: Function) -> dict[str, list[cst.BaseExpression]]:
    """Local name -> all it is assigned."""
    values: dict[str, list[cst.BaseExpression]] = {}
    for target, value in assigned(function.node.body):
        if isinstance(target, cst.Name):
            values.setdefault(target.value, []).append(value)
    return values


def _is_settled(
    source: Source, operand: cst.BaseExpression, assigned_to: Mapping[str, list[cst.BaseExpression]]
) -> bool:
    """Whether the text says that an operand is TF32, or of a type that is not float32."""
    values: list[cst.BaseExpression] = [operand]
    seen: set[str] = set()
    for value in values:
        names = names_in(value) - seen
        seen |= names
        values += [given for name in sorted(names) for given in assigned_to.get(name, ())]
    is_tf32 = any(_reaches_tf32(source, value) for value in values)
    own = [operand, *(assigned_to.get(operand.value, ()) if isinstance(operand, cst.Name) else ())]
    return is_tf32 or any(_casts(source, value, OTHER_TYPES) for value in own)


def _reaches_tf32(source: Source, value: cst.CSTNode) -> bool:
    helpers = [source.function_of(call.func) for call in descendants(value, cst.Call)]
    bodies = [helper.node.body for helper in helpers if helper is not None]
    return any(
        source.name(name) == TF32
        for node in (value, *bodies)
        for name in descendants(node, cst.Attribute)
    )


def _casts(source: Source, value: cst.BaseExpression, types: Collection[str]) -> bool:
    """Whether a value is a cast to one of the types, as a function or as a method."""
    if not isinstance(value, cst.Call) or not value.args:
        return False
    is_cast = source.name(value.func) == f"{CT}astype" or (
        isinstance(value.func, cst.Attribute) and value.func.attr.value == "astype"
    )
    return is_cast and source.name(value.args[-1].value) in types
