"""What is to be fetched: batches that their authors announced and of which none is here yet.

Pure: whoever calls says what time it is, in seconds of a clock that never goes back.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass

from potluck.exchange.announcement import MAX_OFFERS, Offer

AT_ONCE = 2
"""Batches that are fetched from one author at the same time."""
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
    under_way: bool = False


@dataclass(frozen=True, slots=True)
class _Settled:
    digest: bytes
    valid: bool


class Wanted:
    """Newest rounds first, two of an author at once."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._open: dict[str, dict[int, _Open]] = {}
        self._settled: dict[str, dict[int, _Settled]] = {}

    def hear(
        self, author: str, offers: Iterable[Offer], wants: Callable[[int], bool], now_s: float
    ) -> list[Offer]:
        """Takes note of all that ``author`` has; ``wants`` says of a round whether it is of use.

        Returns those of a round of which another batch of the author came, as valid. The first
        stays: else it could say one thing to who asks early and another to who asks late.
        """
        ours, settled = self._open.setdefault(author, {}), self._settled.setdefault(author, {})
        offered = {offer.round: offer for offer in offers}
        for round in [r for r in ours if r not in offered and not ours[r].under_way]:
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
            elif round in ours and ours[round].offer == offer:
                continue
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
        count = 0
        for _, ours in self._free():
            under_way = sum(one.under_way for one in ours.values())
            due = sum(not o.under_way and o.not_before_s <= now_s for o in ours.values())
            count += min(AT_ONCE - under_way, due)
        return count

    def take(self, now_s: float) -> Errand | None:
        """The next batch to fetch, which counts as under way from now."""
        ready = [
            (-round, author < self._me, author)  # Else all would ask the same one first.
            for author, ours in self._free()
            for round, one in ours.items()
            if not one.under_way and one.not_before_s <= now_s
        ]
        if not ready:
            return None
        negative, _, author = min(ready)
        one = self._open[author][-negative]
        one.under_way = True
        return Errand(author, one.offer)

    def next_s(self) -> float:
        """When ``take`` may have something that it has not now; infinity: not by itself."""
        waiting = (
            one.not_before_s
            for _, ours in self._free()
            for one in ours.values()
            if not one.under_way
        )
        return min(waiting, default=float("inf"))

    def again(self, errand: Errand, now_s: float, *, jitter: float) -> None:
        """It did not come, or not as announced: again after 0.1 to 0.5 s, later up to 4 s.

        Args:
            jitter: from 0 to 1; readers that fail together should not come back together.
        """
        one = self._open.get(errand.author, {}).get(errand.offer.round)
        if one is not None and one.offer == errand.offer:
            pause_s = (0.1 + 0.4 * jitter) * 2 ** min(one.failures, 3)
            one.under_way, one.failures = False, one.failures + 1
            one.not_before_s = now_s + pause_s

    def _free(self) -> Iterator[tuple[str, dict[int, _Open]]]:
        """The authors of whom not enough is under way."""
        for author, ours in self._open.items():
            if sum(one.under_way for one in ours.values()) < AT_ONCE:
                yield author, ours

    def settle(self, author: str, offer: Offer, *, valid: bool) -> bool:
        """It came, or will never be fetched; returns whether that is the first word on it."""
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
