"""What `tileir apply` changes in a kernel before it has configs, by entries of the playbook.

Dots load and store through tensor descriptors, which Tile IR needs for TMA; block pointers become
descriptors, because Tile IR has none; exponentials are powers of two. Each entry refuses what it
cannot do; and a descriptor whose tile could begin anywhere is refused here, because CUDA 13.1
rounds its offset in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.kinds import Kind, classify
from agent.analysis.triton.operations import entry_kernels
from agent.playbook import get
from agent.proposers.playbook import edited
from agent.syntax import Source
from agent.tileir import configs
from agent.tileir.compatibility import BLOCK_POINTERS, Obstacle, check, stops
from agent.tileir.exponentials import in_base_two

BLACKWELL = Hardware(sm=100)
"""What the file is prepared for, whatever this machine has."""
BLOCKS, HOST, DEVICE = "block-descriptors", "host-descriptors", "tile-descriptors"
FOLDED, TUNED = "folded-exp2", "add-autotune"
TILES: Sequence[Params] = ({"tiles": "loads and stores"}, {"tiles": "loads"})
TOLD = {
    BLOCKS: "block pointers are tensor descriptors (TMA) now",
    HOST: "tiles go through tensor descriptors that the host makes (TMA) now",
    DEVICE: "tiles go through tensor descriptors that the kernel makes (TMA) now",
    FOLDED: "log2(e) is folded into the scales of exponents, and tl.exp is tl.exp2",
    TUNED: "its tile is chosen by an autotuner, whose one config is what the launch gave",
}


@dataclass
class Moved:
    """A file on its way."""

    origin: Source
    """As the user has it, whose lines are told."""
    source: Source = field(init=False)
    changes: list[str] = field(default_factory=list)
    undescribed: dict[str, str] = field(default_factory=dict)
    """Kernel with a dot or block pointers -> why it has no descriptors."""
    free: set[str] = field(default_factory=set)
    """Kernels that were shown to take any tile."""

    def __post_init__(self) -> None:
        self.source = self.origin

    @classmethod
    def of(cls, source: Source) -> Moved:
        """Change all that can be."""
        moved = cls(source)
        moved.exponentials()
        moved.tiles()
        moved.descriptors()
        return moved

    def prepare(self) -> configs.PreparedConfigs:
        """The configs, written into what the file is now."""
        found = configs.prepare(
            self.source, classify(self.source), check(self.source), free=self.free
        )
        line = self.origin.line
        lines = {k.name: line(k.function.node) for k in entry_kernels(self.origin)}
        changes = tuple(f"line {lines[name]}: {name} {text}" for name, text in found.changed)
        return replace(found, changes=changes)

    def exponentials(self) -> None:
        """Fold log2(e) into a scale where there is one, and multiply by it elsewhere."""
        names = self._movable(check(self.source))
        for name in names:
            self._try(FOLDED, {}, (name,))
        text, changes = in_base_two(
            self.source, [k for k in entry_kernels(self.source) if k.name in names]
        )
        self._becomes(text)
        self.changes += changes

    def tiles(self) -> None:
        """Let an autotuner give the tile of a product that a plain launch gives, if it may grow."""
        for name in self._movable(check(self.source), (Kind.DOT,)):
            try:
                text = self._applied(TUNED, {"configs": "present"}, (name,))
            except NotApplicable:
                continue
            tuned = Source(text, self.source.path)
            found = configs.prepare(tuned, classify(tuned), check(tuned), free=(name,))
            if configs.LARGER in dict(found.changed).get(name, ""):
                self.free |= set(self._take(TUNED, text, (name,)))

    def descriptors(self) -> None:
        """Describe block pointers, then tiles of dots: by the host, else by the kernel."""
        findings = check(self.source)
        pointed = {f.kernel for f in findings if BLOCK_POINTERS in f.text}
        for name in [n for n in self._movable(findings) if n in pointed]:
            self._describe(((BLOCKS, {}),), (name,))
        products = (Kind.DOT, Kind.ATTENTION)
        names = [n for n in self._movable(check(self.source), products) if n not in pointed]
        if loading := [n for n in names if n in self._slow()]:
            self._describe([(HOST, params) for params in TILES], loading)
        for name in [n for n in loading if n in self._slow()]:
            self._describe([(DEVICE, params) for params in TILES], (name,))
        self.undescribed = {
            n: reason for n, reason in self.undescribed.items() if n in pointed | self._slow()
        }

    def _describe(self, entries: Sequence[tuple[str, Params]], names: Sequence[str]) -> None:
        """The first entry that does something for one of them, and misplaces no tile."""
        before = {n: self._rounded(self.source).get(n, ()) for n in names}
        for entry, params in entries:
            left = list(names)
            while left:
                try:
                    text = self._applied(entry, params, left)
                except NotApplicable as refusal:
                    for name in left:
                        self.undescribed.setdefault(name, str(refusal))
                    break
                rounded = self._rounded(Source(text, self.source.path))
                wrong = [n for n in left if len(rounded.get(n, ())) > len(before[n])]
                if not wrong:
                    self._why_not(entry, params, set(left) - {*self._take(entry, text, left)})
                    return
                self.undescribed |= {n: rounded[n][0].text for n in wrong}
                left = [n for n in left if n not in wrong]

    def _why_not(self, entry: str, params: Params, names: Collection[str]) -> None:
        """Ask for the reasons of kernels that an entry left alone while it changed others."""
        for name in names:
            try:
                self._applied(entry, params, (name,))
            except NotApplicable as refusal:
                self.undescribed.setdefault(name, str(refusal))

    def _rounded(self, source: Source) -> Mapping[str, list[Obstacle]]:
        found: dict[str, list[Obstacle]] = {}
        for finding in check(source):
            if finding.kind == "descriptor":
                found.setdefault(finding.kernel, []).append(finding)
        return found

    def _slow(self) -> set[str]:
        """The kernels whose dots load through pointers still."""
        return {f.kernel for f in check(self.source) if f.kind == "speed"}

    def left(self, findings: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
        """What was found in the file, less what is mended."""
        now = check(self.source)
        slow = self._slow()
        pointed = {f.kernel for f in now if BLOCK_POINTERS in f.text}
        return tuple(
            f
            for f in findings
            if (f.kind != "speed" or f.kernel in slow)
            and (BLOCK_POINTERS not in f.text or f.kernel in pointed)
        )

    def _movable(self, findings: Collection[Obstacle], kinds: Collection[Kind] = ()) -> list[str]:
        """The kernels that nothing stops but what is changed here."""
        stopped = {f.kernel for f in stops(tuple(findings)) if BLOCK_POINTERS not in f.text}
        found = {each.kernel: each.kind for each in classify(self.source)}
        return [n for n in found if n not in stopped and (not kinds or found[n] in kinds)]

    def _try(self, entry: str, params: Params, names: Sequence[str]) -> Sequence[str]:
        try:
            return self._take(entry, self._applied(entry, params, names), names)
        except NotApplicable:
            return ()

    def _applied(self, entry: str, params: Params, names: Sequence[str]) -> str:
        """What an entry makes of some of the kernels."""
        chosen = Source(self.source.text, self.source.path, tuple(names))
        return edited(get(entry), Subject(chosen, KernelClass.COMPUTE, BLACKWELL), params)

    def _take(self, entry: str, text: str, names: Sequence[str]) -> Sequence[str]:
        """Go on with a text; the kernels that it changed are told of."""
        before = dict(self._codes(names))
        self._becomes(text)
        changed = [n for n, code in self._codes(names) if code != before[n]]
        self.changes += [f"{name}: {TOLD[entry]}" for name in changed]
        return changed

    def _codes(self, names: Collection[str]) -> Iterator[tuple[str, str]]:
        for kernel in TRITON.kernels(self.source):
            if kernel.name in names:
                yield kernel.name, _code(self.source, kernel)

    def _becomes(self, text: str) -> None:
        self.source = Source(text, self.source.path)


def _code(source: Source, kernel: Kernel) -> str:
    return source.module.code_for_node(kernel.function.node)
