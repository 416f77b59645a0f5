"""Whether a tensor is what a reference gives, to within its dtype and its scale.

An absolute tolerance made for numbers near one passes zeros for a softmax of 8192 columns, whose
numbers are near 0.0001. So it shrinks with the reference's own size. What every single element
allows, such as a factor of 1.01 in float16, all of them together do not.
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
FEWEST_TOGETHER = 16
"""Elements below which nothing is said of all of them together."""


@dataclass(frozen=True)
class Tolerance:
    """What is near enough; what is None follows from the dtype and from the reference's size."""

    rtol: float | None = None
    atol: float | None = None

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
        a, b, truth = one.to(wide), other.to(wide), exact.to(wide)
        relative, absolute = self._allowed(one.dtype, truth)
        gap = torch.minimum(_gap(a, b), _gap(a, truth))
        finite = gap.isfinite()
        near = (gap == 0) | (finite & (gap <= absolute + relative * b.abs()))
        ratio = gap[finite] / b.abs()[finite].clamp_min(1e-12)
        largest = (_most(gap[finite]), _most(ratio))
        if bool(near.all()):
            return self._factor(a, truth, relative), largest
        place = [int(i) for i in (~near).nonzero()[0]]
        return (
            f"{int((~near).sum())} of {one.numel()} elements differ by more than {absolute:.3g} + "
            f"{relative:g} of the reference, first at {place}: {one[tuple(place)].item():g}, not "
            f"{other[tuple(place)].item():g}",
            largest,
        )

    def _allowed(self, dtype: Any, truth: Any) -> tuple[float, float]:
        """The relative and the absolute tolerance."""
        relative, absolute = _of_dtype(dtype)
        if (size := _size(truth)) > 0:
            absolute *= min(size, 1.0)
        return (
            relative if self.rtol is None else self.rtol,
            absolute if self.atol is None else self.atol,
        )

    def _factor(self, a: Any, truth: Any, relative: float) -> str | None:
        """Whether the whole is a multiple of the reference; rounding leaves no such trace."""
        both = a.isfinite() & truth.isfinite()
        a, truth = a[both], truth[both]
        power = float(truth.abs().square().sum())
        if a.numel() < FEWEST_TOGETHER or power == 0 or relative == 0:
            return None
        factor = float((a * truth.conj()).sum().real) / power
        if abs(factor - 1) <= relative:
            return None
        return f"is {factor:.4g} times the reference, taken as a whole"


def _gap(a: Any, b: Any) -> Any:
    """How far apart, element by element; two NaN are not."""
    import torch

    same = (a == b) | (a.isnan() & b.isnan())
    far = torch.where(same, 0.0, (a - b).abs())
    return torch.where(far.isnan(), torch.inf, far)


def _size(tensor: Any) -> float:
    """The root of the mean square of what is finite."""
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _most(values: Any) -> float:
    return float(values.max()) if values.numel() else 0.0


def _of_dtype(dtype: Any) -> tuple[float, float]:
    name = _name(dtype)
    return EIGHT_BIT if name.startswith("float8") else TOLERANCES.get(name, EXACT)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
