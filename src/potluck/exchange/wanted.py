"""What is to be fetched: batches that their authors announced and of which none is here yet.

Pure: whoever calls says what time it is, in seconds of a clock that never goes back.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass

from potluck.exchange.announcement import MAX_OFFERS, Offer

AT_ONCE = 2
"""Batches that are fetched from one author at the same time."""
IN_ALL = 16
"""Batches that are fetched at the same time."""
OF_STRANGERS = IN_ALL // 4
"""Of those, whatever strangers announce: they must not keep the members' batches away."""
REMEMBERED = 4 * MAX_OFFERS
"""Rounds of an author of which is known what came: more than it can announce."""


@dataclass(frozen=True, slots=True)
class Errand:
    """One batch to fetch, by one try."""

    author: str
    offer: Offer


@dataclass(slots=True)
class _Open:
    offer: Offer
    not_before_s: float
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Settled:
    digest: bytes
    valid: bool


def everybody(name: str) -> bool:
    """Nobody is a stranger."""
    return True


class Wanted:
    """Members before strangers, newest rounds first, two of an author at once.

    Args:
        comes_first: of an author, whether it is not to be treated as a stranger.
    """

    def __init__(self, me: str, comes_first: Callable[[str], bool] = everybody) -> None:
        self._me, self._comes_first = me, comes_first
        self._open: dict[str, dict[int, _Open]] = {}
        # Beside what is open: who is forgotten, and heard again, still has what it had under way.
        self._under_way: dict[str, dict[int, Offer]] = {}
        self._settled: dict[str, dict[int, _Settled]] = {}

    def hear(
        self, author: str, offers: Iterable[Offer], wants: Callable[[int], bool], now_s: float
    ) -> list[Offer]:
        """Takes note of all that ``author`` has; ``wants`` says of a round whether it is of use.

        Returns those of a round of which another batch of the author came, as valid. The first
        stays: else it could say one thing to who asks early and another to who asks late.
        """
        ours, settled = self._open.setdefault(author, {}), self._settled.setdefault(author, {})
        under_way = self._under_way.get(author, {})
        offered = {offer.round: offer for offer in offers}
        for round in [r for r in ours if r not in offered and r not in under_way]:
            del ours[round]  # It is no longer to be had.
        changed = []
        forgotten = min(settled) if len(settled) >= REMEMBERED else -1
        for round, offer in offered.items():
            before = settled.get(round)
            if before is not None and before.digest == offer.digest:
                continue
            if before is not None and before.valid:
                changed.append(offer)
                settled[round] = _Settled(offer.digest, valid=True)  # Said once is enough.
            elif round in ours and (ours[round].offer == offer or round in under_way):
                continue  # Another one is heard of again, when that one has come or failed.
            elif round > forgotten and wants(round):
                ours[round] = _Open(offer, now_s)
        return changed

    def forget(self, author: str) -> None:
        """Nothing of ``author`` is fetched until it is heard again."""
        self._open.pop(author, None)

    def drop(self, unwanted: Callable[[str, int], bool]) -> None:
        for author, ours in self._open.items():
            for round in [r for r in ours if unwanted(author, r)]:
                del ours[round]

    def only(self, authors: Set[str]) -> None:
        """All others are forgotten."""
        for known in (self._open, self._settled):
            for author in known.keys() - authors:
                del known[author]

    def ready(self, now_s: float) -> int:
        """How many more may be under way at once."""
        first = others = 0
        for author, ours in self._free():
            due = sum(one.not_before_s <= now_s for one in ours.values())
            count = min(AT_ONCE - len(self._under_way.get(author, {})), due)
            if self._comes_first(author):
                first += count
            else:
                others += count
        return first + min(OF_STRANGERS - self._strangers_under_way(), others)

    def take(self, now_s: float) -> Errand | None:
        """The next batch to fetch, which counts as under way from now."""
        ready = [
            # By its own name: else all would ask the same one first.
            (not self._comes_first(author), -round, author < self._me, author)
            for author, ours in self._free()
            for round, one in ours.items()
            if one.not_before_s <= now_s
        ]
        if not ready:
            return None
        _, negative, _, author = min(ready)
        offer = self._open[author][-negative].offer
        self._under_way.setdefault(author, {})[offer.round] = offer
        return Errand(author, offer)

    def next_s(self) -> float:
        """When ``take`` may have something that it has not now; infinity: not by itself."""
        waiting = (one.not_before_s for _, ours in self._free() for one in ours.values())
        return min(waiting, default=float("inf"))

    def again(self, errand: Errand, now_s: float, *, jitter: float) -> None:
        """It did not come, or not as announced: again after 0.1 to 0.5 s, later up to 4 s.

        Args:
            jitter: from 0 to 1; readers that fail together should not come back together.
        """
        self._is_back(errand.author, errand.offer)
        one = self._open.get(errand.author, {}).get(errand.offer.round)
        if one is not None and one.offer == errand.offer:
            pause_s = (0.1 + 0.4 * jitter) * 2 ** min(one.failures, 3)
            one.failures += 1
            one.not_before_s = now_s + pause_s

    def _free(self) -> Iterator[tuple[str, dict[int, _Open]]]:
        """The authors of whom more may be under way, each with what is not."""
        strangers_too = self._strangers_under_way() < OF_STRANGERS
        for author, ours in self._open.items():
            under_way = self._under_way.get(author, {})
            if len(under_way) < AT_ONCE and (strangers_too or self._comes_first(author)):
                yield author, {r: one for r, one in ours.items() if r not in under_way}

    def _strangers_under_way(self) -> int:
        return sum(len(o) for author, o in self._under_way.items() if not self._comes_first(author))

    def _is_back(self, author: str, offer: Offer) -> None:
        under_way = self._under_way.get(author, {})
        if under_way.get(offer.round) == offer:
            del under_way[offer.round]
        if not under_way:
            self._under_way.pop(author, None)

    def settle(self, author: str, offer: Offer, *, valid: bool) -> bool:
        """It came, or will never be fetched; returns whether that is the first word on it."""
        self._is_back(author, offer)
        ours, settled = self._open.get(author, {}), self._settled.setdefault(author, {})
        if offer.round in ours and (ours[offer.round].offer == offer or valid):
            del ours[offer.round]
        before = settled.get(offer.round)
        if before is not None and (before.valid or before.digest == offer.digest):
            return False
        settled[offer.round] = _Settled(offer.digest, valid)
        while len(settled) > REMEMBERED:
            del settled[min(settled)]
        return True

    def lose(self, author: str, round: int) -> None:
        """What came was not kept; it may be fetched again."""
        self._settled.get(author, {}).pop(round, None)

    def is_settled(self, author: str, round: int) -> bool:
        return round in self._settled.get(author, {})

    def came(self, author: str, round: int) -> bool:
        """Whether a valid batch did."""
        one = self._settled.get(author, {}).get(round)
        return one is not None and one.valid

    def is_open(self, author: str) -> bool:
        """Whether something of ``author`` is still to come."""
        return bool(self._open.get(author))

    def is_to_come(self, author: str, round: int) -> bool:
        """Whether its batch of ``round`` is."""
        return round in self._open.get(author, {})
