"""The queue of batches to fetch: announced by their authors, and not here yet."""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from potluck.exchange.protocol.signed import MAX_OFFERS, Offer

AT_ONCE = 2
"""Most batches that are fetched from one author at the same time."""
IN_ALL = 16
"""Most batches that are fetched at the same time."""
OF_STRANGERS = IN_ALL // 4
"""Most of those that strangers have: they must not keep the members' batches away."""
REMEMBERED = 4 * MAX_OFFERS
"""Rounds of an author that are remembered as settled: more than it can announce."""


@dataclass(frozen=True, slots=True)
class FetchJob:
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


class FetchQueue:
    """Members (``has_priority``) before strangers, newest rounds first, two of each author."""

    def __init__(self, me: str, has_priority: Callable[[str], bool] = lambda name: True) -> None:
        self._me, self._comes_first = me, has_priority
        self._open: dict[str, dict[int, _Open]] = {}
        # Beside what is open: an author that is forgotten, and heard again, keeps it.
        self._under_way: dict[str, dict[int, Offer]] = {}
        self._settled: dict[str, dict[int, _Settled]] = {}
        self._failing: set[str] = set()

    def update_offers(
        self, author: str, offers: Iterable[Offer], wants: Callable[[int], bool], now_s: float
    ) -> list[Offer]:
        """Note all offers of ``author`` of rounds that ``wants`` wants; return those of rounds of
        which another valid batch came. The first stays: an author may not replace what it sent."""
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
        if not ours:
            del self._open[author]  # Thousands of authors of whom nothing is wanted cost nothing.
        return changed

    def forget(self, author: str) -> None:
        """Fetch nothing of ``author`` until it is heard again."""
        self._open.pop(author, None)

    def drop(self, unwanted: Callable[[str, int], bool]) -> None:
        for author, ours in self._open.items():
            for round in [r for r in ours if unwanted(author, r)]:
                del ours[round]

    def only(self, authors: Set[str]) -> None:
        self._failing &= authors
        for known in (self._open, self._settled):
            for author in known.keys() - authors:
                del known[author]

    def take(self, now_s: float) -> FetchJob | None:
        """Return the next batch to fetch, which counts as under way from now."""
        counts = {author: len(offers) for author, offers in self._under_way.items()}
        if sum(counts.values()) >= IN_ALL:
            return None
        of_strangers = sum(n for author, n in counts.items() if not self._comes_first(author))
        ready = [
            # Names after this node's own go first: else all would ask the same one first.
            (not self._comes_first(author), -round, author < self._me, author)
            for author, ours in self._open.items()
            if counts.get(author, 0) < AT_ONCE
            if self._comes_first(author) or of_strangers < OF_STRANGERS
            for round, one in ours.items()
            if one.not_before_s <= now_s and round not in self._under_way.get(author, {})
        ]
        if not ready:
            return None
        _, negative, _, author = min(ready)
        offer = self._open[author][-negative].offer
        self._under_way.setdefault(author, {})[offer.round] = offer
        return FetchJob(author, offer)

    def again(self, job: FetchJob, now_s: float, *, jitter: float) -> None:
        """Retry a batch that did not come, or not as announced: in 0.1 to 0.5 s, later up to 4 s.
        ``jitter``, 0 to 1, keeps readers that fail together from coming back together."""
        self._is_back(job.author, job.offer)
        self._failing.add(job.author)
        one = self._open.get(job.author, {}).get(job.offer.round)
        if one is not None and one.offer == job.offer:
            pause_s = (0.1 + 0.4 * jitter) * 2 ** min(one.failures, 3)
            one.failures += 1
            one.not_before_s = now_s + pause_s

    def _is_back(self, author: str, offer: Offer) -> None:
        under_way = self._under_way.get(author, {})
        if under_way.get(offer.round) == offer:
            del under_way[offer.round]
        if not under_way:
            self._under_way.pop(author, None)

    def settle(self, author: str, offer: Offer, *, valid: bool) -> bool:
        """Note that it came, or will never be fetched; return whether that is news."""
        self._is_back(author, offer)
        self._failing.discard(author)
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
        """Let a batch that came and was not kept be fetched again."""
        self._settled.get(author, {}).pop(round, None)

    def has_arrived(self, author: str, round: int) -> bool:
        one = self._settled.get(author, {}).get(round)
        return one is not None and one.valid

    def came(self, author: str, offer: Offer) -> bool:
        one = self._settled.get(author, {}).get(offer.round)
        return one == _Settled(offer.digest, valid=True)

    def promising(self) -> list[str]:
        """Return the author of each batch that is to come, but for authors that failed last."""
        return [name for name in self._open.keys() - self._failing for _ in self._open[name]]

    def to_come(self, author: str) -> Set[int]:
        """Return the rounds of which a batch of ``author`` is still to come."""
        return self._open.get(author, {}).keys()
