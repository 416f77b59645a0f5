"""What cuda.tile offers, as data: lint has to answer on a machine that lacks it.

`tests/lint/test_api.py` holds these tables to the cuda.tile that is installed.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache

VERSION = "1.7"
"""The release of cuda-tile that the tables were read from."""

_SIGNATURES = """
abs(x, /)
add(x, y, /, *, rounding_mode=0, flush_to_zero=0)
arange(size, /, *, dtype, start=0, step=0)
argmax(x, /, axis=0, *, keepdims=0, propagate_nan=0)
argmin(x, /, axis=0, *, keepdims=0, propagate_nan=0)
assert_(cond, /, message=0)
assume_divisible_by(x, divisor)
astile(value, /, *, dtype)
astype(x, dtype, /, *, rounding_mode=0)
atan2(x1, x2, /)
atomic_add(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_and(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_cas(array, indices, expected, desired, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_max(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_min(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_or(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_xchg(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
atomic_xor(array, indices, update, /, *, check_bounds=0, memory_order=0, memory_scope=0)
bid(axis)
bitcast(x, /, dtype)
bitwise_and(x, y, /)
bitwise_lshift(x, y, /)
bitwise_not(x, /)
bitwise_or(x, y, /)
bitwise_rshift(x, y, /)
bitwise_xor(x, y, /)
broadcast_to(x, /, shape)
cat(tiles, /, axis)
cdiv(x, y, /)
ceil(x, /)
compiler_timeout(timeout_sec)
cos(x, /)
cosh(x, /)
cumprod(x, /, axis=0, *, reverse=0, rounding_mode=0, flush_to_zero=0)
cumsum(x, /, axis=0, *, reverse=0, rounding_mode=0, flush_to_zero=0)
divmod(x, y, /)
ensure_constant(value, /)
equal(x, y, /)
exp(x, /, *, rounding_mode=0)
exp2(x, /, *, flush_to_zero=0)
expand_dims(x, /, axis)
extract(x, /, index, shape)
floor(x, /)
floordiv(x, y, /)
foreign_pointer_dtype(pointee_dtype)
full(shape, fill_value, dtype)
function(func=0, /, *, host=0, tile=0)
gather(array, indices, /, *, mask=0, padding_value=0, check_bounds=0, latency=0)
greater(x, y, /)
greater_equal(x, y, /)
grid_dependency_control_launch_dependents()
grid_dependency_control_wait()
insert(x, /, index, value)
isnan(x, /)
kernel(function=0, /, *, num_ctas=0, occupancy=0, opt_level=0, num_worker_warps=0)
launch(stream, grid, kernel, kernel_args, /, *, programmatic_dependent_launch=0)
less(x, y, /)
less_equal(x, y, /)
load(array, /, index, shape, *, order=0, padding_mode=0, check_bounds=0, latency=0, \
allow_tma=0, memory_order=0, memory_scope=0)
load_advanced_indexing(array, indices, /, *, padding_mode=0, latency=0, allow_tma=0)
log(x, /)
log2(x, /)
matmul(x, y, /)
max(x, /, axis=0, *, keepdims=0, flush_to_zero=0, propagate_nan=0)
maximum(x, y, /, *, flush_to_zero=0, propagate_nan=0)
min(x, /, axis=0, *, keepdims=0, flush_to_zero=0, propagate_nan=0)
minimum(x, y, /, *, flush_to_zero=0, propagate_nan=0)
mma(x, y, /, acc, *, use_fast_acc=0)
mma_scaled(x, x_scale, y, y_scale, /, acc)
mod(x, y, /)
mul(x, y, /, *, rounding_mode=0, flush_to_zero=0)
negative(x, /)
not_equal(x, y, /)
num_blocks(axis)
num_tiles(array, /, axis, shape, order=0)
ones(shape, dtype)
pack_to_bytes(x, /)
permute(x, /, axes)
pow(x, y, /)
print(*args, sep=0, end=0)
printf(format, *args)
prod(x, /, axis=0, *, keepdims=0, rounding_mode=0, flush_to_zero=0)
reduce(x, /, axis, func, identity, *, keepdims=0)
reshape(x, /, shape)
rsqrt(x, /, *, flush_to_zero=0)
scan(x, /, axis, func, identity, *, reverse=0)
scatter(array, indices, value, /, *, mask=0, check_bounds=0, latency=0)
sin(x, /)
sinh(x, /)
sqrt(x, /, *, rounding_mode=0, flush_to_zero=0)
static_assert(condition, message=0, /)
static_eval(expr, /)
static_exception(exc, /)
static_iter(iterable)
store(array, /, index, tile, *, order=0, check_bounds=0, latency=0, \
allow_tma=0, memory_order=0, memory_scope=0)
store_advanced_indexing(array, indices, tile, /, *, latency=0, allow_tma=0)
sub(x, y, /, *, rounding_mode=0, flush_to_zero=0)
sum(x, /, axis=0, *, keepdims=0, rounding_mode=0, flush_to_zero=0)
tan(x, /)
tanh(x, /, *, rounding_mode=0)
transpose(x, /, axis0=0, axis1=0)
truediv(x, y, /, *, rounding_mode=0, flush_to_zero=0)
unpack_from_bytes(x, /, dtype)
where(cond, x, y, /)
zeros(shape, dtype)
"""
"""A default is written as 0, whatever it is."""

_OTHERS = """
Array ArrayAnnotation ByTarget Constant ConstantAnnotation DType IndexedWithInt64 ListAnnotation
MemoryOrder MemoryScope PaddingMode RoundingMode Scalar ScalarInt64 Slice StaticException Tile
TileCompilerExecutionError TileCompilerTimeoutError TileError TileInternalError TileRecursionError
TileStaticAssertionError TileStaticEvalError TileSyntaxError TileTypeError
TileUnsupportedFeatureError TileValueError TiledView bfloat16 bool_ compilation float16 float32
float4_e2m1fn float64 float8_e4m3fn float8_e5m2 float8_e5m3fnu float8_e8m0fnu int16 int32 int64
int8 tfloat32 tune uint16 uint32 uint64 uint8
"""
"""Types, enums, element types and submodules."""
_TUNE = {"exhaustive_search", "Measurement", "TuningResult"}
_COMPILATION = {
    "ArrayConstraint",
    "CallingConvention",
    "ConstantConstraint",
    "ConstantValue",
    "KernelSignature",
    "ListConstraint",
    "ParameterConstraint",
    "ScalarConstraint",
    "TupleConstraint",
    "demangle_kernel_name",
    "export_kernel",
    "mangle_kernel_name",
}
_SEARCH = (
    "exhaustive_search(search_space, stream, grid_fn, kernel, args_fn, hints_fn=0, *, quiet=0, "
    "single_run_timeout_sec=0, flush_l2=0)"
)

RESULT = frozenset({"best", "successes", "failures", "summary"})
"""What a TuningResult has."""
MEASUREMENT = frozenset({"config", "mean_us", "num_samples", "error_margin_us"})
"""What its `best` has."""
HINTS = ("num_ctas", "occupancy", "opt_level", "num_worker_warps")
"""The compiler options of a kernel."""
BUILTINS = frozenset(
    {
        "abs", "bool", "divmod", "float", "getattr", "int", "len", "max", "min", "print", "range",
        "str", "tuple",
    }
)  # fmt: skip
"""The functions of Python that a kernel may call."""


@cache
def signatures() -> dict[str, inspect.Signature]:
    """Function of cuda.tile, 'load' or 'tune.exhaustive_search' -> how it is called."""
    found = {text.partition("(")[0]: _signature(text) for text in _SIGNATURES.split("\n") if text}
    return found | {"tune.exhaustive_search": _signature(_SEARCH)}


@cache
def names() -> frozenset[str]:
    """Every public name below cuda.tile, submodules' by their dotted names."""
    return frozenset(
        {*signatures(), *_OTHERS.split()}
        | {f"tune.{name}" for name in _TUNE}
        | {f"compilation.{name}" for name in _COMPILATION}
    )


def _signature(text: str) -> inspect.Signature:
    (definition,) = ast.parse(f"def {text}: ...").body
    assert isinstance(definition, ast.FunctionDef)
    given = definition.args
    plain = [*given.posonlyargs, *given.args]
    required = len(plain) - len(given.defaults)
    parameters = [
        inspect.Parameter(
            argument.arg,
            inspect.Parameter.POSITIONAL_ONLY
            if number < len(given.posonlyargs)
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if number < required else 0,
        )
        for number, argument in enumerate(plain)
    ]
    if given.vararg is not None:
        parameters.append(inspect.Parameter(given.vararg.arg, inspect.Parameter.VAR_POSITIONAL))
    for argument, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        default = inspect.Parameter.empty if value is None else 0
        parameters.append(
            inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY, default=default)
        )
    return inspect.Signature(parameters)
