"""Whether a tensor is what a reference gives, to within its dtype and its scale.

An absolute tolerance made for numbers near one passes zeros for a softmax of 8192 columns, whose
numbers are near 0.0001. So it shrinks with the reference's own size, and where that is nothing but
rounding, as a sum that cancels, it is what the reference itself is off. What every single element
allows, such as a factor of 1.01 in float16 or a constant, all of them together do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EXACT = (0.0, 0.0)
TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1e-3, 1e-3),
    "float16": (1e-2, 1e-2),
    "bfloat16": (2e-2, 2e-2),
}
"""dtype of a result -> its relative and absolute tolerance; all others have to be equal, but for
the 8-bit floating-point types."""
EIGHT_BIT = (0.125, 0.125)
HALVES = ("bfloat16", "float16")
TOGETHER = 0.25
"""Of the relative tolerance of an element, that of all together. Honest kernels (softmax, product,
GELU, logsumexp, sums) took 0.04 of it at most as a factor, and of 16 bits 0.17 root mean square."""
FEWEST_TOGETHER = 16
"""Elements below which nothing is said of all of them together."""
OWN_ERRORS = 2
"""How far a result may be from a truth that is lost in rounding, in what the reference is off at
the most."""
SPREAD = 2.0
"""Of the reference around its mean, in steps of its dtype, below which it may be taken for one."""
COARSEST_STEP = 1e-5
"""As if a dtype had no smaller steps: approximations of the device are no finer."""


@dataclass(frozen=True)
class Tolerance:
    """What is near enough; what is None follows from the dtype and from the reference's size.

    Attributes:
        rtol: the relative tolerance.
        atol: the absolute one.
        computed_in: a dtype that decides in place of the result's, as that of a sum that is stored
            in a wider one.
    """

    rtol: float | None = None
    atol: float | None = None
    computed_in: Any = None

    def difference(
        self, one: Any, other: Any, exact: Any
    ) -> tuple[str | None, tuple[float, float] | None]:
        """Compare a result with the reference.

        Args:
            one: the result, of any shape and dtype.
            other: the reference in its own dtype; the result has to have that, and its shape.
            exact: the reference in float64, or again `other`; near to either is near.

        Returns:
            What is wrong, and the largest absolute and relative difference from the nearer one;
            None where nothing is, and where there is nothing to compare.
        """
        import torch

        if one.shape != other.shape:
            return f"has shape {list(one.shape)}, the reference {list(other.shape)}", None
        if one.dtype != other.dtype:
            return f"is {_name(one.dtype)}, the reference {_name(other.dtype)}", None
        if one.numel() == 0:
            return None, (0.0, 0.0)
        wide = torch.complex128 if one.is_complex() else torch.float64
        if (
            not (one.is_floating_point() or one.is_complex())
            and (self.rtol, self.atol) == (None,) * 2
        ):
            return _counted(one, other, one == other)  # of 64 bits, float64 holds 53
        a, b, truth = one.to(wide), other.to(wide), exact.to(wide)
        kind = self.computed_in or one.dtype
        relative, absolute = self._allowed(kind, b, truth)
        to_b, to_truth = _gap(a, b), _gap(a, truth)
        gap = torch.minimum(to_b, to_truth)
        finite = gap.isfinite()
        near = _within(to_b, b, absolute, relative) | (gap == 0)
        near |= _within(to_truth, truth, absolute, relative)
        ratio = gap[finite] / truth.abs()[finite].clamp_min(1e-12)
        largest = (_most(gap[finite]), _most(ratio[ratio.isfinite()]))
        if bool(near.all()):
            return self._together(kind, a, b, truth, relative), largest
        place = tuple(int(i) for i in (~near).nonzero()[0])
        return (
            f"{int((~near).sum())} of {one.numel()} elements differ by more than {absolute:.3g} + "
            f"{relative:g} of the reference, first at {[*place]}: {one[place].item():g}, not "
            f"{other[place].item():g}",
            largest,
        )

    def _allowed(self, dtype: Any, b: Any, truth: Any) -> tuple[float, float]:
        """The relative and the absolute tolerance."""
        relative, absolute = _of_dtype(dtype)
        if absolute and _is_lost(b, truth, relative):
            absolute = min(absolute, OWN_ERRORS * _most(_finite(b - truth).abs()))
        elif absolute and (size := _size(truth)) > 0:
            absolute *= min(size, 1.0)
        return (
            relative if self.rtol is None else self.rtol,
            absolute if self.atol is None else self.atol,
        )

    def _together(self, dtype: Any, a: Any, b: Any, truth: Any, relative: float) -> str | None:
        """What is wrong with the whole: a multiple of the reference, or its mean; rounding leaves
        no such trace."""
        if _is_lost(b, truth, relative):
            return None
        both = a.isfinite() & truth.isfinite()
        a, truth = a[both], truth[both]
        largest = _most(truth.abs())
        if a.numel() < FEWEST_TOGETHER or largest == 0 or relative == 0:
            return None
        a, truth = a / largest, truth / largest  # their squares neither overflow nor vanish
        power = float(truth.abs().square().sum())
        factor = float((a * truth.conj()).sum().real) / power
        share = TOGETHER if self.rtol is None else 1.0
        if abs(factor - 1) > share * relative:
            return f"is {factor:.4g} times the reference, taken as a whole"
        off, size = _root_mean_square(a - truth), _root_mean_square(truth)
        if self.rtol is None and _name(dtype) in HALVES and off > share * relative * size:
            return f"is off by {off / size:.2%} of the reference, root mean square"
        spread = _root_mean_square(truth - truth.mean())
        step = max(_step(dtype), COARSEST_STEP) * size
        if spread >= SPREAD * step and off > spread / 2:
            return f"is off by {off / spread:.2g} of what the reference varies by, as a constant is"
        return None


def _counted(one: Any, other: Any, near: Any) -> tuple[str | None, tuple[float, float]]:
    """The same of what has to be equal."""
    gap = (one.double() - other.double()).abs()
    largest = (_most(gap), _most(gap / other.double().abs().clamp_min(1e-12)))
    if bool(near.all()):
        return None, largest
    place = tuple(int(i) for i in (~near).nonzero()[0])
    return (
        f"{int((~near).sum())} of {one.numel()} elements differ, first at {[*place]}: "
        f"{one[place].item()}, not {other[place].item()}",
        largest,
    )


def _gap(a: Any, b: Any) -> Any:
    """How far apart, element by element; two NaN are not."""
    import torch

    same = (a == b) | (a.isnan() & b.isnan())
    far = torch.where(same, 0.0, (a - b).abs())
    return torch.where(far.isnan(), torch.inf, far)


def _within(gap: Any, reference: Any, absolute: float, relative: float) -> Any:
    return gap.isfinite() & (gap <= absolute + relative * reference.abs())


def _is_lost(b: Any, truth: Any, relative: float) -> bool:
    """Whether the reference in its own dtype is all rounding: what it computes cancels."""
    return _root_mean_square(b - truth) > relative * _root_mean_square(truth)


def _finite(tensor: Any) -> Any:
    return tensor[tensor.isfinite()]


def _size(tensor: Any) -> float:
    """The mean of the magnitudes that are finite: a few large numbers do not speak for all."""
    finite = _finite(tensor).abs()
    return float(finite.mean()) if finite.numel() else 0.0


def _root_mean_square(tensor: Any) -> float:
    """Of what is finite; of numbers of any size."""
    finite = _finite(tensor).abs()
    largest = _most(finite)
    return largest * float((finite / largest).square().mean().sqrt()) if largest else 0.0


def _step(dtype: Any) -> float:
    """The relative distance of neighbouring numbers; of complex numbers, of their parts."""
    import torch

    return float(torch.finfo(dtype).eps) if dtype.is_floating_point or dtype.is_complex else 0.0


def _most(values: Any) -> float:
    return float(values.max()) if values.numel() else 0.0


def _of_dtype(dtype: Any) -> tuple[float, float]:
    name = _name(dtype)
    return EIGHT_BIT if name.startswith("float8") else TOLERANCES.get(name, EXACT)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
