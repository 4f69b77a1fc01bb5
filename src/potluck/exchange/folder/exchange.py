"""One node at a folder or bucket: it writes its card and its batches under its own name only, so a
bucket's owner can forbid the rest, and reads those of the others. Challenges are as on a network:
an answer, in the card of the asked node, proves that it is there. One thread looks, writes and
waits: after something has come, for a tenth of the time since then.
"""

import math
import random
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Literal

import msgspec

from potluck.exchange.base import ExchangeError, WireError, require_at_most, unpacked
from potluck.exchange.folder.store import Store, check_endpoints, free_endpoints, try_endpoint
from potluck.exchange.keys.keys import STRANGERS
from potluck.exchange.process import CLOSE_S, Answers, ProcessExchange
from potluck.exchange.protocol.beliefs import Question
from potluck.exchange.protocol.fetch_queue import FetchJob
from potluck.exchange.protocol.outbox import file_name
from potluck.exchange.protocol.peers import heard_s
from potluck.exchange.protocol.signed import CHALLENGE_BYTES, encode_answer
from potluck.exchange.transport import Membership
from potluck.reports.events import Notice
from potluck.types import NODE_NAME

__all__ = ["FolderExchange", "check_endpoints", "free_endpoints", "open_exchange", "try_endpoint"]

SHORTEST_S, LONGEST_S = 0.2, 5.0
"""Seconds between two looks at the others' cards."""
BEAT_S = 4.0
"""Seconds after which a node writes its card again: others await it for 15 s without."""
ANSWER_S = 20.0
"""Seconds in which a node that is there has looked at a question, and its answer was seen."""
PLACE_S = 30.0
"""Seconds that a stranger's place is kept for it while it has not proven that it is there."""
CARD, CARD_BYTES = "card", 1 << 17
OWN_FILE = re.compile(r"[0-9]{6,10}\.ptlk|\..*\.part")
"""Files that a node removes from its own folder: batches, and what a killed one did not finish."""
HANGS_S, SURE_S = 30.0, 5.0
"""Seconds without a look at the others after which a node says so, once they have gone on for
``SURE_S`` since that was seen: after a pause of the whole process the thread looks at once."""
HANGS = (
    f"the folder of the others has not been read or written for {HANGS_S:g} s: its file system "
    f"does not answer (is a network mount away?); nothing of the others comes until it does"
)
MOST_ANSWERS = 48
"""Answers in a card, of 2 kilobytes at most."""


class Card(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that a node says, as one file. Its parts are signed, but for the challenges."""

    version: Literal[1]
    leaves: bool
    announcement: bytes
    status: bytes
    questions: dict[str, bytes]
    """Challenges by the name of the node that is asked."""
    answers: dict[str, bytes]


class FolderExchange(ProcessExchange):
    """One node's files in ``store``, and what the others' say."""

    def __init__(self, store: Store, own: Membership) -> None:
        super().__init__(own)
        self._store, self._run = store, own.agreement.run
        self._others_lines: dict[str, list[bytes]] = {}
        self._known = own.known_keys.names() - {self._me}
        self._strangers: list[str] = []
        self._seen: dict[str, int] = {}
        self._leaving: set[str] = set()
        self._questions: dict[str, bytes] = {}
        self._answered: dict[str, bytes] = {}
        self._answers: dict[str, tuple[bytes, bytes]] = {}
        self._hurried_s: dict[str, float] = {}
        """Seconds at which a card was written at once because of a name's question."""
        self._places_s: dict[str, float] = {}
        """Strangers that are looked at, each with the second from which on."""
        self._active_s, self._is_away = time.monotonic(), False
        self._looked_s = self._active_s
        self._hangs_since_s: float | None = None
        """Second in which the thread was first seen not to have looked for long."""
        self._hang_is_told = False
        names = store.names(f"{self._run}/{self._me}")
        self._there = set(filter(OWN_FILE.fullmatch, names))
        if CARD not in names and self._there:
            # A recipe may name any place, and a node of that name: rounds kept by another run.
            raise FileExistsError(
                f"{self._run}/{self._me} there has {min(self._there)}, but no card of a node; "
                f"remove it, or name another folder in swarm.connect"
            )
        self._written: set[str] = set()
        self._write()
        self._workers.start("look at the others", self._run_until_closed)

    def _get_batches(self, job: FetchJob) -> Answers:
        path = f"{self._run}/{job.author}/{file_name(job.offer.round)}"
        try:
            yield from self._store.read({path: job.offer.size_bytes}).items()
        except OSError:  # It is asked for again.
            return

    def _get_answers(self, question: Question) -> Answers:
        name = question.name
        with self._lock:
            self._questions[name], self._due_s = question.challenge, 0.0
            self._to_announce.notify()
            came = lambda: name in self._answered or self._closed.is_set()  # noqa: E731
            self._changed.wait_for(came, ANSWER_S)
            del self._questions[name]
            answer = self._answered.pop(name, None)
        if answer is not None:
            yield name, answer

    def _take_lines(self) -> dict[str, list[bytes]]:
        with self._lock:
            taken, self._others_lines = self._others_lines, {}
            return taken

    def _leave(self) -> None:
        self._workers.join(CLOSE_S)
        with suppress(OSError):  # Then the others notice that it is silent.
            self._write(leaves=True)

    def _notify_all(self) -> None:
        self._tell_of_hang(time.monotonic())
        super()._notify_all()

    def _tell_of_hang(self, now_s: float) -> None:
        """Tell once that the thread that looks at the others does not come back."""
        if now_s - self._looked_s < HANGS_S:
            self._hangs_since_s, self._hang_is_told = None, False
            return
        if self._hangs_since_s is None:
            self._hangs_since_s = now_s
        if now_s - self._hangs_since_s >= SURE_S and not self._hang_is_told:
            self._hang_is_told = True
            self._own.notify(Notice(HANGS))

    def _run_until_closed(self) -> None:
        while not self._closed.is_set():
            try:
                if time.monotonic() >= self._due_s:
                    self._write()
                self._look()
                self._is_away = False
                self._looked_s = time.monotonic()
            except OSError as error:
                if not self._is_away:
                    said = f"the folder of the others cannot be used: {error}; trying on"
                    with self._lock:
                        self._mailbox.news.append(Notice(said))
                self._is_away = True
                self._looked_s = time.monotonic()
            with self._to_announce:
                now_s = time.monotonic()
                pause_s = min(max(SHORTEST_S, (now_s - self._active_s) / 10), LONGEST_S)
                until_due_s = pause_s if self._is_away else self._due_s - now_s
                if until_due_s > 0 and not self._closed.is_set():
                    self._to_announce.wait(min(pause_s, until_due_s))

    def _write(self, *, leaves: bool = False) -> None:
        """Write the batches, then the card that announces them; remove those of older rounds."""
        with self._lock:  # Before it looks at the outbox: what comes after is due at once.
            now_s = time.monotonic()
            self._active_s = self._active_s if self._due_s else now_s
            self._due_s, self._newest = now_s + BEAT_S, self._announcement()
            answers = {name: answer for name, (_, answer) in self._answers.items()}
            said = self._line or b"", dict(self._questions), answers
        offered = {file_name(each.round): each.round for each in self._outbox.offers()}
        for name in offered.keys() - self._written:
            if (signed := self._outbox.get(offered[name])) is not None:
                self._store.write(f"{self._run}/{self._me}/{name}", signed)
                self._written.add(name)
        card = msgspec.msgpack.encode(Card(1, leaves, self._newest, *said))
        self._store.write(f"{self._run}/{self._me}/{CARD}", card)
        for name in (self._there | self._written) - offered.keys():
            with suppress(OSError):
                self._store.remove(f"{self._run}/{self._me}/{name}")
        self._there, self._written = set(), self._written & offered.keys()
        if self._own.known_keys.open:
            strange = {*filter(NODE_NAME.fullmatch, self._store.names(self._run))} - self._known
            self._give_places(strange - {self._me}, time.monotonic())

    def _give_places(self, there: set[str], now_s: float) -> None:
        """Choose the strangers that are looked at: those that are here, those that had less than
        ``PLACE_S`` to answer, and of the others any. So no made-up names keep one out for good."""
        with self._lock:
            live = self._mailbox.peers.live()
        kept = {
            name: since_s
            for name, since_s in self._places_s.items()
            if name in there and (name in live or now_s - since_s < PLACE_S)
        }
        waiting = sorted(there - kept.keys())
        chosen = random.sample(waiting, min(len(waiting), STRANGERS - len(kept)))
        self._places_s = kept | dict.fromkeys(chosen, now_s)
        self._strangers = sorted(self._places_s)

    def _look(self) -> None:
        paths = {f"{self._run}/{n}/{CARD}": n for n in (*self._known, *self._strangers)}
        found = self._store.read(dict.fromkeys(paths, CARD_BYTES))
        now_s = time.monotonic()
        with self._lock:
            for path, data in found.items():
                name, mark = paths[path], hash(data)
                if self._seen.get(name) != mark:
                    self._seen[name] = mark
                    try:
                        require_at_most(CARD_BYTES, len(data), f"a card has {len(data)} bytes")
                        self._hear(name, unpacked(data, Card, "a card is"), now_s)
                    except WireError as error:
                        self._mailbox.refuse(name, error, now_s)
            self._see(now_s)
            if self._wake():
                self._active_s = now_s
            self._changed.notify_all()

    def _hear(self, name: str, card: Card, now_s: float) -> None:
        self._leaving.discard(name)
        if card.leaves:
            self._leaving.add(name)
        # Nobody answers for a card that was left behind.
        if not card.leaves or name in self._mailbox.peers.confirmed():
            self._beliefs.hear(name, [card.announcement], now_s)
        challenge = card.questions.get(self._me, b"")
        answered = self._answers.pop(name, (b"", b""))
        most = MOST_ANSWERS if name in self._known else MOST_ANSWERS // 2
        if len(challenge) == CHALLENGE_BYTES and len(self._answers) < most:
            if challenge != answered[0]:
                answered = challenge, encode_answer(self._own.key, challenge, self._newest)
                # A member that asks anew at each look has one answer soon, the others in time.
                if now_s - self._hurried_s.get(name, -math.inf) >= BEAT_S:
                    recent = {n: s for n, s in self._hurried_s.items() if now_s - s < BEAT_S}
                    self._hurried_s = recent | {name: now_s}
                    self._due_s = min(self._due_s, now_s)
            self._answers[name] = answered
        answer = card.answers.get(self._me, b"")
        if name in self._questions and self._questions[name] in answer:
            self._answered[name] = answer
        if card.status and self._own.watches_status:
            self._others_lines[name] = [card.status]

    def _see(self, now_s: float) -> None:
        for name, peer in sorted((peers := self._mailbox.peers).items()):
            if not peer.announcement:
                continue
            has_left = name in self._leaving and not self._mailbox.fetch_queue.to_come(name)
            is_here = not has_left and now_s - peer.heard_s <= heard_s(len(peers))
            if is_here and not peer.live:
                self._mailbox.on_join(name)
                self._mailbox.on_announcement(peer.announcement, now_s)
            elif peer.live and not is_here:
                self._mailbox.on_leave(name)


@contextmanager
def open_exchange(own: Membership) -> Iterator[FolderExchange]:
    (address,) = {*own.listen, *own.connect}
    try:
        exchange = FolderExchange(Store(address), own)
    except OSError as error:
        raise ExchangeError(f"{address} cannot be used: {error}") from error
    with closing(exchange):
        yield exchange
