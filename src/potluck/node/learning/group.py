"""Several processes that are one node: their group, and what travels between them.

Started by ``torchrun`` or ``accelerate launch``, each with a GPU of its own. The first one
leads: it alone talks to other nodes, grades, keeps records and shows how far it is. The others
follow: they wait for a command (``workers.run_worker`` has all) and take part in it.

A model is spread over all of them (``model/sharding.py``), so each of its passes is made by
all or by none: what decides whether one is made must be the same everywhere, which ``all_gather``
is for. What travels here is pickled, by torch: these processes are one user's own.
"""

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as distributed

from potluck.types import PotluckError

T = TypeVar("T")

TIMEOUT = timedelta(days=7)
"""A follower waits while the leader grades, and while it waits for other nodes."""


SILENT_S = 10.0
"""Time after which it is told that processes do not find each other yet."""


class ProcessGroupError(PotluckError):
    """The processes of one node cannot work together."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process, as a member of those that train together: torch's default group, or it alone."""

    rank: int = 0
    """0 is the leader."""
    size: int = 1

    def all_gather(self, mine: T) -> list[T]:
        """All-gather ``mine``, ordered by rank. A collective: every rank must call it."""
        every = [mine] * self.size
        if self.size > 1:
            distributed.all_gather_object(every, mine)
        return every

    def broadcast(self, *command: object) -> None:
        """Broadcast a command from rank 0. On other ranks this does nothing."""
        if self.size > 1 and self.rank == 0:
            self._broadcast(command)

    def receive(self) -> object:
        """Return the leader's next command; raise ProcessGroupError if the leader is gone."""
        try:
            return self._broadcast(None)
        except RuntimeError as error:
            raise ProcessGroupError("the leading process has ended, and has said why") from error

    def _broadcast(self, command: object) -> object:
        box = [command]
        distributed.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def process_group(say: Callable[[str], None] = lambda text: None) -> Iterator[ProcessGroup]:
    """Join the processes that the environment tells of; yield SINGLE_PROCESS if it tells of none.
    Raise ProcessGroupError if they do not find each other; ``say`` is told while they do not."""
    if int(os.environ.get("WORLD_SIZE") or 1) <= 1:
        yield SINGLE_PROCESS
        return
    if not distributed.is_initialized():
        _init_process_group(say)
    yield ProcessGroup(distributed.get_rank(), distributed.get_world_size())
    # Not now: torchrun's processes find each other once, and another run may follow. Nor after
    # an error, where the others may be in the middle of something and this would wait for them.
    atexit.unregister(_destroy_process_group)
    atexit.register(_destroy_process_group)


def _init_process_group(say: Callable[[str], None]) -> None:
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    waiting = (
        f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, so this process waits for the others at {place}"
        f"; torchrun starts them all. To run without it, unset WORLD_SIZE and RANK"
    )
    late = threading.Timer(SILENT_S, say, [waiting])
    late.daemon = True
    late.start()
    # While torch waits no handler of Python's is called. Nothing is begun yet that could be lost.
    is_main = threading.current_thread() is threading.main_thread()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_main and is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    backend = "gloo"
    try:
        if torch.cuda.is_available():
            torch.cuda.set_device(_local_rank())
            backend = "cpu:gloo,cuda:nccl"
        distributed.init_process_group(backend, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise ProcessGroupError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but the processes do not find each other "
            f"({str(error).splitlines()[0]}); start them with torchrun, or unset it"
        ) from error
    finally:
        late.cancel()
        if is_main and is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _destroy_process_group() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def device_of(named: str) -> torch.device:
    """Return this process's device for a recipe's "auto", "cuda" or "cpu"."""
    if named == "cuda" or (named == "auto" and torch.cuda.is_available()):
        return torch.device("cuda", _local_rank())
    return torch.device("cpu")


def _local_rank() -> int:
    """Return this process's number on its machine, which is its GPU's as well."""
    return int(os.environ.get("LOCAL_RANK") or 0)
