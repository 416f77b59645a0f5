"""How far results may be from the origin's, and what a larger difference means. Pure.

A difference is told in units of the last place (ulps) of the result's type, at the size of the
values around it. What an honest edit does to a result is bounded by that type: sums in another
order move a float32 by some ulps and leave a float16 or bfloat16, which was rounded once at the
end, nearly always as it was. Where the origin differs from itself by more, as atomic additions do,
or where the last bits of its inputs count for more, as in a sum of values that cancel, that is the
bound instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

OWN_DIFFERENCES = 4.0
"""A candidate may be this much further from the origin than the origin is from itself."""
IMPRECISE = 2.0**-7
"""A relative error, root mean square, below which a result is less precise, not another one."""
ROUNDED_SHARE = 1e-3
"""Of integers of eight bits: a quantized value near the middle of two may become either."""


@dataclass(frozen=True)
class Precision:
    """What results of one type are compared by."""

    rms_ulps: float
    max_ulps: float
    epsilon: float
    """The distance from one to the next number."""


PRECISIONS = {
    "float64": Precision(64, 4096, 2.0**-52),
    "float32": Precision(64, 4096, 2.0**-23),
    "complex64": Precision(64, 4096, 2.0**-23),
    "complex128": Precision(64, 4096, 2.0**-52),
    "float16": Precision(1.0, 32, 2.0**-10),
    "bfloat16": Precision(1.0, 16, 2.0**-7),
    "float8_e4m3fn": Precision(0.5, 4, 2.0**-3),
    "float8_e4m3fnuz": Precision(0.5, 4, 2.0**-3),
    "float8_e5m2": Precision(0.5, 4, 2.0**-2),
    "float8_e5m2fnuz": Precision(0.5, 4, 2.0**-2),
}
"""Limits of the project's own: above what reordered sums and other exponentials were seen to do,
below an accumulator of half the width. `benchmarks/mutations.py` tries them."""


class ResultFault(StrEnum):
    """What a difference is."""

    WRONG = "wrong"
    IMPRECISE = "imprecise"


@dataclass(frozen=True)
class ResultDifference:
    """One result beside the origin's."""

    name: str
    dtype: str
    elements: int = 0
    unequal: int = 0
    """Elements that differ at all."""
    misplaced: int = 0
    """Elements of which only one is finite, or which are infinite or NaN in another way."""
    rms_ulps: float = 0.0
    max_ulps: float = 0.0
    problem: str = ""
    """Why the two cannot be compared: another type, another shape, not handed out."""

    def fault(
        self, own: ResultDifference | None = None, rounding: float = 0.0
    ) -> ResultFault | None:
        """What is wrong with it, if anything.

        Args:
            own: the origin beside itself, on the same inputs.
            rounding: a relative error, root mean square, that an edit has by design.
        """
        if self.problem:
            return ResultFault.WRONG
        own = own or ResultDifference(self.name, self.dtype)
        precision = PRECISIONS.get(self.dtype)
        if precision is None:
            within = max(OWN_DIFFERENCES * own.unequal, self._rounded())
            return None if self.unequal <= within else ResultFault.WRONG
        if self.misplaced > OWN_DIFFERENCES * own.misplaced:
            return ResultFault.WRONG
        allowed_ulps = rounding / precision.epsilon
        most_rms = max(precision.rms_ulps, OWN_DIFFERENCES * own.rms_ulps, allowed_ulps)
        most = max(precision.max_ulps, OWN_DIFFERENCES * own.max_ulps, 16 * allowed_ulps)
        if self.rms_ulps <= most_rms and self.max_ulps <= most:
            return None
        small = max(IMPRECISE / precision.epsilon, 4 * precision.rms_ulps)
        if self.rms_ulps <= small and self.max_ulps <= 16 * small:
            return ResultFault.IMPRECISE
        return ResultFault.WRONG

    def or_larger(self, other: ResultDifference) -> ResultDifference:
        """The larger of each figure."""
        return replace(
            self,
            unequal=max(self.unequal, other.unequal),
            misplaced=max(self.misplaced, other.misplaced),
            rms_ulps=max(self.rms_ulps, other.rms_ulps),
            max_ulps=max(self.max_ulps, other.max_ulps),
        )

    def _rounded(self) -> float:
        """Elements that rounding may have moved to the next integer."""
        near = self.dtype in ("int8", "uint8") and self.max_ulps <= 1
        return ROUNDED_SHARE * self.elements if near else 0.0

    def __str__(self) -> str:
        """In words, with the figures."""
        if self.problem:
            return f"{self.name}: {self.problem}"
        if self.misplaced:
            return f"{self.name}: {self.misplaced} of {self.elements} elements are not finite alike"
        if self.dtype not in PRECISIONS:
            return f"{self.name}: {self.unequal} of {self.elements} elements differ"
        return (
            f"{self.name}: {self.unequal} of {self.elements} elements differ, by "
            f"{self.rms_ulps:.3g} ulps of {self.dtype} (root mean square; {self.max_ulps:.3g} at "
            "most)"
        )


_OPERATORS = """
    _addmm_activation _fft_c2c _fft_r2c _fused_sdp_choice _int_mm _log_softmax
    _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_mm _softmax _thnn_fused_lstm_cell addbmm
    addmm addmv addr amax argmax argmin baddbmm batch_norm bmm celu conv1d conv2d conv3d
    convolution cos cudnn_convolution dot einsum elu embedding erf erfc exp exp2 expm1 gelu glu
    group_norm hardsigmoid hardswish hardtanh layer_norm leaky_relu linear log log1p log_sigmoid
    log_softmax logcumsumexp logsumexp matmul mish mm mv native_batch_norm native_group_norm
    native_layer_norm nll_loss_forward prod relu relu_ rms_norm rsqrt scaled_dot_product_attention
    selu sigmoid sigmoid_ silu silu_ sin softmax softplus std tanh tanh_ var var_mean vdot
"""
LIBRARY_OPERATORS = frozenset(_OPERATORS.split())
"""Operators of torch that do a kernel's work; an edit of a kernel brings in none of them."""
