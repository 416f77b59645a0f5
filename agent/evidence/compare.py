"""What changed between two artifacts, in the words of an engineer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from agent.evidence.model import Artifact, CompiledLaunch, NotCompiled, Result

LAUNCH_ATTRIBUTES = ("num_ctas", "launch_pdl", "launch_cooperative_grid")
"""Options that change how the code is launched, and need not change the code."""
SIZE_CHANGE = 0.02
"""Relative change in the number of instructions below which nothing is said of it."""
_COUNTS: tuple[tuple[str, Callable[[Artifact], int]], ...] = (
    ("cp.async", lambda a: a.instructions.async_copies),
    ("floating-point operations", lambda a: a.instructions.float_ops),
    ("special functions", lambda a: a.instructions.special_functions),
    ("barriers", lambda a: a.instructions.barriers),
    ("atomics", lambda a: a.instructions.atomics),
    ("waits for a round before", lambda a: sum(wait.round_before for wait in a.waits)),
)


def changes(before: Artifact, after: Artifact) -> tuple[str, ...]:
    """One line each; none when the code is the same."""
    return tuple(_changes(before, after)) if before.digest != after.digest else ()


def pairs(before: Sequence[Result], after: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    """Results of the same launch for the same GPU.

    The same kernel with the same arguments, else by the order in which a kernel was launched: an
    edit may change a constant, and the launch it is part of is still the same one.
    """
    for sm in dict.fromkeys(result.sm for result in after):
        old = [result for result in before if result.sm == sm]
        new = [result for result in after if result.sm == sm]
        for kernel in dict.fromkeys(result.launch.kernel for result in new):
            left = [result for result in old if result.launch.kernel == kernel]
            rest = []
            for result in (result for result in new if result.launch.kernel == kernel):
                same = next((o for o in left if _alike(o.launch, result.launch)), None)
                if same is None:
                    rest.append(result)
                else:
                    left.remove(same)
                    yield same, result
            yield from zip(left, rest, strict=False)


def unchanged(before: Sequence[Result], after: Sequence[Result]) -> bool:
    """Whether two sources give the same code for the same launches, in the same order.

    Then the kernel's own time cannot differ. What the host does between launches is not seen here.
    Of code that nobody has seen nothing is said, though the reason is the same.
    """
    if any(isinstance(r, NotCompiled) and r.inconclusive for r in (*before, *after)):
        return False
    return bool(after) and [_identity(r) for r in before] == [_identity(r) for r in after]


def ignored_options(before: Artifact, after: Artifact) -> tuple[str, ...]:
    """Compiler options that differ between two artifacts whose code is the same: no effect here."""
    if before.digest != after.digest:
        return ()
    old, new = dict(before.launch.options), dict(after.launch.options)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return tuple(f"{name}={new.get(name, 'default')}" for name in names)


def _identity(result: Result) -> tuple[object, ...]:
    if isinstance(result, NotCompiled):
        return (result.sm, result.reason)
    launch = result.launch
    attributes = [option for option in launch.options if option[0] in LAUNCH_ATTRIBUTES]
    return (result.sm, launch.kernel, result.digest, launch.grid, tuple(attributes))


def _alike(one: CompiledLaunch, other: CompiledLaunch) -> bool:
    return (one.arguments, one.grid, one.test) == (other.arguments, other.grid, other.test)


def _changes(before: Artifact, after: Artifact) -> Iterator[str]:
    old, new = before.instructions, after.instructions
    for name, was, now in (
        ("registers", before.registers, after.registers),
        ("threads a block", before.threads, after.threads),
        ("shared memory", before.shared_bytes, after.shared_bytes),
    ):
        if was != now:
            yield f"{name} {was} -> {now}{' bytes' if name == 'shared memory' else ''}"
    if bool(before.stack_bytes) != bool(after.stack_bytes):
        yield f"spills {'gone' if before.stack_bytes else f'{after.stack_bytes} bytes a thread'}"
    elif before.stack_bytes != after.stack_bytes:
        yield f"spilled {before.stack_bytes} -> {after.stack_bytes} bytes a thread"
    was_blocks, now_blocks = (a.occupancy and a.occupancy.warps for a in (before, after))
    if was_blocks != now_blocks:
        yield f"warps a multiprocessor {was_blocks} -> {now_blocks}"
    yield from _mix(old.tensor_core, new.tensor_core)
    yield from _mix(old.tma, new.tma)
    for what, was_of, now_of in (
        ("loads", old.global_loads, new.global_loads),
        ("stores", old.global_stores, new.global_stores),
    ):
        widths = sorted({*was_of, *now_of}, reverse=True)
        named = [
            {f"{bits}-bit {what}": of.get(bits, 0) for bits in widths} for of in (was_of, now_of)
        ]
        yield from _mix(*named)
    yield from _mix(old.special, new.special)
    for what, count in _COUNTS:
        if count(before) != count(after):
            yield f"{what} {count(before)} -> {count(after)}"
    if abs(new.total - old.total) > SIZE_CHANGE * max(old.total, 1):
        yield f"instructions {old.total} -> {new.total}"


def _mix(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name, 0) != after.get(name, 0):
            yield f"{name} {before.get(name, 0)} -> {after.get(name, 0)}"
