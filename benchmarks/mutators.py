"""The faults: each mutator puts one of a kind into a kernel, at every place that it fits.

They are what goes wrong in kernels: a mask that is off by one, a tail that is left out, a stride of
another dimension, an accumulator in half precision, two programs that write the same place. None
of them looks at whether its fault shows; `benchmarks.mutations` finds that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.address_mutators import ADDRESS_MUTATORS
from benchmarks.mutation_code import KernelCode, Place
from benchmarks.value_mutators import VALUE_MUTATORS

Mutator = Callable[[KernelCode], Iterator[Place]]

MUTATORS: dict[str, Mutator] = {
    function.__name__.replace("_", "-"): function
    for function in (*ADDRESS_MUTATORS, *VALUE_MUTATORS)
}
