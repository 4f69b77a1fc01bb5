"""Several processes that are one participant: who they are, and what they say to each other.

Started by ``torchrun`` or ``accelerate launch``, each with a GPU of its own. The first one
leads: it alone talks to other nodes, grades, keeps records and shows how far it is. The others
follow: they wait for a ``Write``, ``Learn`` or ``Save`` and take part in it, until ``Stop``.

A model is spread over all of them (``rollout/sharding.py``), so each of its passes is made by
all or by none: what decides whether one is made must be the same everywhere, which ``gather``
is for. What travels here is pickled, by torch: these processes are one user's own.
"""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

import torch
import torch.distributed as distributed

from potluck.node.batch import Batch
from potluck.rollout import Order
from potluck.types import PotluckError

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""A follower waits while the leader grades, and while it waits for other nodes."""


class Team(Protocol):
    """One process, as a member of those that train together."""

    @property
    def rank(self) -> int:
        """0 is the leader."""
        ...

    @property
    def size(self) -> int: ...

    def gather(self, mine: T) -> list[T]:
        """What each process has, by rank. All call it, or none."""
        ...

    def call(self, command: object) -> None:
        """The leader says what all do next. Where a follower comes by, nothing happens."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A process with nobody to ask or to lead."""

    rank: int = 0
    size: int = 1

    def gather(self, mine: T) -> list[T]:
        return [mine]

    def call(self, command: object) -> None: ...


ALONE = Alone()


@dataclass(frozen=True, slots=True)
class Processes:
    """A process of torch's default group."""

    rank: int
    size: int

    def gather(self, mine: T) -> list[T]:
        every: list[T | None] = [None] * self.size
        distributed.all_gather_object(every, mine)
        return every  # type: ignore[return-value]  # all are filled by now

    def call(self, command: object) -> None:
        if self.rank == 0:
            self._hear(command)

    def listen(self) -> object:
        """What the leader calls next.

        Raises:
            TeamError: it is gone.
        """
        try:
            return self._hear(None)
        except RuntimeError as error:
            raise TeamError("the leading process has ended, and has said why") from error

    def _hear(self, command: object) -> object:
        box = [command]
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]


class TeamError(PotluckError):
    """The processes of one node cannot work together."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Load the models, as they were after ``first`` rounds."""

    first: int


@dataclass(frozen=True, slots=True)
class Dice:
    """What ``Sampled`` draws by. Its generator stays at home; each process gets a seed."""

    seeds: tuple[int, ...]
    temperature: float
    top_k: int
    top_p: float


@dataclass(frozen=True, slots=True)
class Write:
    """Write your part of the orders."""

    node: str
    orders: tuple[Order, ...]
    dice: Dice | None
    """None: the likeliest token each time."""
    author: str
    max_new_tokens: int
    max_total_tokens: int
    dtype: torch.dtype
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Learn:
    """Learn from the batch: each process some of its rows."""

    node: str
    batch: Batch
    seed: int
    """Of dropout; each process adds its rank."""


@dataclass(frozen=True, slots=True)
class Save:
    """Give your part of the weights and moments for a checkpoint."""

    node: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The run has ended, with this result or by this error."""

    outcome: object


def asked_for() -> bool:
    """Whether this process was started as one of several."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1


@contextmanager
def assembled() -> Iterator[Team]:
    """The processes that the environment tells of; ALONE where it tells of none.

    Raises:
        TeamError: they do not find each other.
    """
    if not asked_for():
        yield ALONE
        return
    if not distributed.is_initialized():
        _find_each_other()
    yield Processes(distributed.get_rank(), distributed.get_world_size())
    # Not now: torchrun's processes find each other once, and another run may follow. Nor after
    # an error, where the others may be in the middle of something and this would wait for them.
    atexit.unregister(_part)
    atexit.register(_part)


def _find_each_other() -> None:
    backend = "gloo"
    try:
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank())
            backend = "cpu:gloo,cuda:nccl"
        distributed.init_process_group(backend, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise TeamError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but the processes do not find each other "
            f"({str(error).splitlines()[0]}); start them with torchrun, or unset it"
        ) from error


def _part() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def device_of(named: str) -> torch.device:
    """What a recipe's "auto", "cuda" or "cpu" is to this one of several processes."""
    if named == "cuda" or (named == "auto" and torch.cuda.is_available()):
        return torch.device("cuda", local_rank())
    return torch.device("cpu")


def local_rank() -> int:
    """Which of the processes on this machine this is, and which GPU it has."""
    return int(os.environ.get("LOCAL_RANK") or 0)
