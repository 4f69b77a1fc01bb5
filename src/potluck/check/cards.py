"""Whether nodes fit on a GPU, and what would make them fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_field

from msgspec.structs import replace

from potluck.check.memory import Memory, Prompts, at_once, memory_of, together
from potluck.config import ConfigError, LoraConfig, NodeConfig, RunConfig
from potluck.rollout.shape import Shape

GIB = 2**30
CARDS = {
    "a10": 22,
    "a100-40gb": 39,
    "a100-80gb": 79,
    "b200": 178,
    "h100": 79,
    "h200": 139,
    "l4": 22,
    "l40s": 44,
    "rtx3090": 23,
    "rtx4090": 23,
    "rtx5090": 31,
    "rtxa6000": 47,
    "t4": 14,
    "v100-16gb": 15,
    "v100-32gb": 31,
}
"""GiB that CUDA reports of each, rounded down: less than the sheet's figure, which counts in
powers of ten or includes what error correction takes."""
OF_ITSELF = GIB * 3 // 4
"""CUDA's own: its kernels and the work space of its libraries."""
TIGHT = 0.9
"""Share of a card beyond which an estimate is no promise."""


def card_gib(name: str) -> float:
    """GiB of a card by its name, or by the number itself.

    Raises:
        ConfigError: there is no such card.
    """
    if name.lower() in CARDS:
        return CARDS[name.lower()]
    try:
        gib = float(name)
    except ValueError:
        gib = 0.0
    if not 0 < gib < 10_000:
        raise ConfigError(
            f"--gpu is {name!r}; choose one of {', '.join(CARDS)}, or its memory in GiB"
        )
    return gib


def by_device(config: RunConfig, *, gpu: bool) -> dict[str, list[str]]:
    """The names of the nodes on each device, under the name that it really has."""
    first = "cuda:0" if gpu else "cpu"
    real = {"auto": first, "cuda": "cuda:0"}
    devices: dict[str, list[str]] = {}
    for name, node in config.node.items():
        devices.setdefault(real.get(node.device, node.device), []).append(name)
    return devices


@dataclass(frozen=True, slots=True)
class Bench:
    """Nodes that share a device, and how much memory they would need if they were changed."""

    config: RunConfig
    names: Sequence[str]
    shapes: Mapping[str, Shape]
    prompts: Prompts
    apart: bool
    """Whether each node is a process of its own, which does not wait for another one's memory."""

    def memory(self, name: str) -> Memory:
        return memory_of(self.config, name, self.shapes[name], self.prompts)

    def needs(self) -> int:
        """Bytes."""
        memories = [self.memory(name) for name in self.names]
        if self.apart:
            return at_once(memories) + OF_ITSELF * len(memories)
        return together(memories) + OF_ITSELF

    def changed(self, change: "Change") -> "Bench":
        nodes = {
            name: change.make(node) if name in self.names else node
            for name, node in self.config.node.items()
        }
        return replace_field(self, config=replace(self.config, node=nodes))

    def with_all(self, changes: "Sequence[Change]") -> "Bench":
        bench = self
        for change in changes:
            bench = bench.changed(change)
        return bench


@dataclass(frozen=True, slots=True)
class Change:
    """Something to set for every node of a device."""

    text: str
    make: Callable[[NodeConfig], NodeConfig]


def _at_most_tokens(most: int) -> Change:
    def make(node: NodeConfig) -> NodeConfig:
        return replace(node, micro_batch_tokens=min(most, node.micro_batch_tokens))

    return Change(f"micro_batch_tokens = {most}", make)


def _at_most_rows(most: int) -> Change:
    def make(node: NodeConfig) -> NodeConfig:
        return replace(node, sampling_rows=min(most, node.sampling_rows))

    return Change(f"sampling_rows = {most}", make)


# From what costs nothing to what changes the experiment.
CHANGES = (
    Change("gradient_checkpointing = true", lambda n: replace(n, gradient_checkpointing=True)),
    *map(_at_most_tokens, (4096, 1024)),
    *map(_at_most_rows, (128, 64, 32, 16)),
    Change('dtype = "bfloat16"', lambda n: replace(n, dtype="bfloat16")),
    Change(
        'optimizer = "adamw-8bit"',
        lambda n: n if n.lora else replace(n, optimizer="adamw-8bit"),
    ),
    Change("a table lora", lambda n: n if n.lora else replace(n, lora=LoraConfig())),
)


def advice(bench: Bench, gib: float) -> list[Change] | None:
    """The changes that make the nodes fit, none of which can be spared; None: nothing does.

    They are tried in order, the harmless ones first, until it fits; then each is tried
    without.
    """
    room = gib * GIB
    taken: list[Change] = []
    for change in CHANGES:
        if bench.with_all([*taken, change]).needs() < bench.with_all(taken).needs():
            taken.append(change)
        if bench.with_all(taken).needs() <= room:
            break
    else:
        return None
    for change in list(taken):
        rest = [other for other in taken if other is not change]
        if bench.with_all(rest).needs() <= room:
            taken = rest
    return taken


def verdict(bench: Bench, gib: float) -> str:
    """Whether it fits, with the figures, and what to do where it does not."""
    needs = bench.needs() / GIB
    figures = f"{needs:,.0f} of {gib:g} GiB"
    if needs <= TIGHT * gib:
        return f"fits: {figures}"
    if needs <= gib:
        return f"just fits: {figures}; an estimate, so leave it room"
    ways = []
    alone = [replace_field(bench, names=[name]) for name in bench.names]
    if bench.apart and len(alone) > 1:
        turns = replace_field(bench, apart=False).needs() / GIB
        if turns <= gib:
            ways.append(f"would fit ({turns:,.0f} GiB) in turns, with --one-process")
    if len(alone) > 1 and all(one.needs() <= gib * GIB for one in alone):
        ways.append("would fit with a device for each node")
    if changes := advice(bench, gib):
        less = bench.with_all(changes).needs() / GIB
        settings = ", ".join(change.text for change in changes)
        ways.append(f"would fit ({less:,.0f} GiB) with {settings}")
    if not ways:
        ways.append("no setting of a node is enough: a larger card, or smaller models")
    return "\n  ".join([f"does not fit: {figures}", *ways])
