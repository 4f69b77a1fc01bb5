"""Channels of samples under many names, each name's newest, until somebody looks. Zenoh's threads
fill them and call no Python, so a flood costs its bytes and little more. Each known name has one of
its own: a flood under one name pushes out no other name's samples."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import zenoh

LONE_NAMES = 64
"""Most known names that have a channel each: every node holds the subscriptions of all others."""
LONE = 8
"""Samples of one such name that are kept."""


def names_alone(known: Collection[str]) -> list[str]:
    return sorted(known) if len(known) <= LONE_NAMES else []


class Channels:
    """Subscriptions of ``prefix/<name>``, for all names."""

    def __init__(
        self,
        session: zenoh.Session,
        prefix: str,
        known: Collection[str],
        *,
        others: int,
        lone: int = LONE,
    ) -> None:
        """Keep ``lone`` samples of each of the ``known`` names, if they are few, and ``others`` of
        all that have no channel of their own."""
        sizes = dict.fromkeys(names_alone(known), lone) | {"*": others}
        self._subscribers = {
            name: session.declare_subscriber(
                f"{prefix}/{name}",
                zenoh.handlers.RingChannel(size),
                allowed_origin=zenoh.Locality.REMOTE,
            )
            for name, size in sizes.items()
        }
        # Of the handlers, not of what was declared: that could not be undeclared meanwhile.
        self._channels = {n: (each.handler, sizes[n]) for n, each in self._subscribers.items()}

    def take(self) -> dict[str, list[zenoh.ZBytes]]:
        by_name: dict[str, list[zenoh.ZBytes]] = {}
        for alone, (channel, most) in self._channels.items():
            if alone != "*":
                if payloads := [sample.payload for sample in _drained(channel, most)]:
                    by_name[alone] = payloads
                continue
            for sample in _drained(channel, most):
                name = str(sample.key_expr).rpartition("/")[2]
                if name not in self._channels:  # Else it is in its own channel, too.
                    by_name.setdefault(name, []).append(sample.payload)
        return by_name

    def overran(self, name: str, payloads: Sequence[zenoh.ZBytes]) -> bool:
        """Tell whether more may have come under ``name`` than was kept: its own channel is full."""
        return name in self._channels and len(payloads) == self._channels[name][1]

    def undeclare(self) -> None:
        for each in self._subscribers.values():
            each.undeclare()


def _drained(channel: zenoh.handlers.Handler[zenoh.Sample], most: int) -> Iterator[zenoh.Sample]:
    """Yield what is in a channel now, ``most`` at most; nothing of one that is closed."""
    with suppress(zenoh.ZError):
        for _ in range(most):
            if (sample := channel.try_recv()) is None:
                return
            yield sample
