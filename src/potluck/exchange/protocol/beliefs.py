"""Which announcements are believed, and which nodes are asked whether they are there. The caller
holds the mailbox's lock.

A node believes another's announcements in one session only: the one that the other's key has signed
together with a random challenge of this node. A recorder can repeat what it heard, but not answer:
a recording is of another session, or old.
"""

import secrets
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from potluck.exchange.base import Reason, WireError
from potluck.exchange.keys.keys import STRANGERS, KnownKeys, verify
from potluck.exchange.protocol.mailbox import Mailbox
from potluck.exchange.protocol.peers import NOBODY, announcement_pause_s
from potluck.exchange.protocol.signed import (
    CHALLENGE_BYTES,
    HELLO,
    WHAT,
    Announcement,
    Payload,
    has_form,
    has_form_of_answer,
    read_signed,
    split_answer,
)
from potluck.exchange.transport import Agreement
from potluck.types import NODE_NAME

ASKED_AT_ONCE = 4
PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
"""Seconds between two questions to a node; twice as long after each that told nothing new."""
WRONG_SIGNATURES = 10
"""Announcements under one name that are verified in a second and then not believed."""
FAILURES_TOLD = 2
"""Questions without an answer after which that is counted as a refusal."""
NEWCOMERS = 20
"""Announcements of names without a known key that are verified in a second, in all."""
OF_ONE_SOURCE = 4
"""Answers to one question, by one program, that are verified."""
ANSWER_BYTES = 32 << 20
"""Bytes of answers to one question that are looked at."""
PAST_SESSIONS = 16
"""Sessions of a node that are remembered as not its present one."""


@dataclass(frozen=True, slots=True)
class Question:
    name: str
    challenge: bytes
    about: bytes
    """Session of announcements under that name that led to the question; may be empty."""


@dataclass(slots=True)
class _Asked:
    """State of one name beside what is believed of it: its questions, and sessions that it left."""

    not_before_s: float = float("-inf")
    pauses: int = 0
    failures: int = 0
    unconfirmed: bytes = b""
    """Newest session that was announced under the name and is not confirmed."""
    past: list[bytes] = field(default_factory=list)


class Beliefs:
    """Fed with what comes under each name; fills ``mailbox`` with what is believed."""

    def __init__(
        self, agreement: Agreement, session: bytes, known_keys: KnownKeys, mailbox: Mailbox
    ) -> None:
        self._agreement, self._session = agreement, session
        self._known_keys, self._mailbox = known_keys, mailbox
        self._asked: dict[str, _Asked] = {}
        self._wanted: set[str] = set()
        self._under_way: set[str] = set()
        self._wrong: Counter[str] = Counter()
        self._newcomers, self._counted_since_s = 0, float("-inf")

    def hear(self, name: str, payloads: Sequence[Payload], now_s: float) -> bool:
        """Look at what came under ``name`` since the last call, oldest first; return whether one of
        them was believed: no more is looked at then, as it says all. No signature of a key that the
        name does not have, or of an old or doubled announcement, is looked at."""
        try:
            self._known_keys.admit(name)
        except WireError as error:
            known = name if NODE_NAME.fullmatch(name) else NOBODY
            self._mailbox.refuse(known, error, now_s, count=len(payloads))
            return False
        if self._mailbox.peers.is_quarantined(name, now_s):
            return False
        if now_s - self._counted_since_s >= 1:
            self._wrong.clear()
            self._newcomers, self._counted_since_s = 0, now_s
        formed, odd = list[Payload](), list[Payload]()
        for payload in payloads:
            (formed if has_form(Announcement, payload) else odd).append(payload)
        # One is read for all that are odd: in a flood an error for each costs too much.
        looked_at = [(payload, len(odd)) for payload in odd[:1]]
        looked_at += [(payload, 1) for payload in reversed(formed)]
        refused: dict[Reason, tuple[WireError, int]] = {}
        believed = False
        for payload, count in looked_at:
            try:
                announcement = self._read(name, payload)
                if self._is_newcomer(name):
                    self._meet(announcement, bytes(payload))
                    continue
                if not self._is_worth_a_look(announcement):
                    continue
                if self._wrong[name] >= WRONG_SIGNATURES:
                    self.ask(name)  # A flood under its name does not silence a node.
                    break
                self._believe(announcement, bytes(payload), now_s)
                believed = True
                break  # Its node can sign without end, with clocks that go down.
            except WireError as error:
                first, before = refused.get(error.reason, (error, 0))
                refused[error.reason] = first, before + count
        for first, count in refused.values():
            self._mailbox.refuse(name, first, now_s, count=count)
        return believed

    def ask_the_silent(self, now_s: float) -> None:
        """Have all connected peers asked that were not heard for three announcements."""
        peers = self._mailbox.peers
        silent_s = 3 * announcement_pause_s(len(peers))
        for name in peers.live():
            if (peer := peers.get(name)) and now_s - peer.heard_s > silent_s:
                self.ask(name)

    def take_question(self, now_s: float) -> Question | None:
        """Return the next question, which counts as under way from now: of this round's partners
        first, then of members, then of strangers; of each first to one that failed least."""
        waiting = self._wanted - self._under_way
        if not waiting or len(self._under_way) >= ASKED_AT_ONCE:
            return None
        peers, cohort = self._mailbox.peers, self._mailbox.cohort()
        due = {n: one for n, one in self._asked.items() if n in waiting}
        failed = {n: one.failures for n, one in due.items() if one.not_before_s <= now_s}
        if not failed:
            return None
        # Of equals the one longest in its place: a made-up name may begin with any letter.
        name = min(failed, key=lambda n: (n not in cohort, not peers.has_priority(n), failed[n]))
        self._wanted.discard(name)
        self._under_way.add(name)
        return Question(name, secrets.token_bytes(CHALLENGE_BYTES), self._asked[name].unconfirmed)

    def worth_reading(
        self, question: Question, answers: Iterable[tuple[Hashable, Payload]]
    ) -> Iterator[Payload]:
        """Yield those of ``answers``, (source, answer), that may be the asked node's: others may
        serve its key too, and be quicker. Needs no lock."""
        public = self._known_keys.known(question.name) or b""
        by_source, size_bytes = Counter[Hashable](), 0
        for source, payload in answers:
            size_bytes += len(payload)
            if has_form_of_answer(payload, question.challenge, public):
                by_source[source] += 1
                if by_source[source] <= OF_ONE_SOURCE:
                    yield payload
            if size_bytes > ANSWER_BYTES:
                return

    def read_answer(self, question: Question, payload: Payload) -> Announcement:
        """Return the announcement in an answer that the asked node has signed; raise WireError for
        any other. Needs no lock: other threads go on while a key is pinned."""
        answer = bytes(payload)
        inner = split_answer(answer, question.challenge)
        announcement = self._read(question.name, inner)
        verify(HELLO, answer, announcement.public)
        self._known_keys.public_key(question.name, announcement.public)
        return announcement

    def answered(self, question: Question, announcement: Announcement, now_s: float) -> None:
        """Believe the announcement in an answer, and its session from now on."""
        one, peer = self._asked[question.name], self._mailbox.peers.get(question.name)
        before = peer.announcement.session if peer and peer.announcement else b""
        is_news = self._mailbox.confirm(announcement, now_s)
        # A session that was heard of only after the question was asked may be a later one.
        for session in (before, question.about):
            if session not in (b"", announcement.session, *one.past):
                one.past = [*one.past, session][-PAST_SESSIONS:]
        if question.about not in (b"", announcement.session):
            self._mailbox.refuse(question.name, _other_session(question.name), now_s)
        one.past = [session for session in one.past if session != announcement.session]
        one.unconfirmed, one.failures, one.pauses = b"", 0, 0 if is_news else one.pauses + 1
        one.not_before_s = now_s + min(PAUSE_S * 2 ** min(one.pauses, 9), LONGEST_PAUSE_S)
        self._under_way.discard(question.name)

    def unanswered(self, question: Question, now_s: float) -> None:
        """Note that no answer came; the next announcement, or its silence, has it asked again."""
        one = self._asked[question.name]
        one.unconfirmed, one.failures = b"", one.failures + 1
        self._under_way.discard(question.name)
        one.not_before_s = now_s + min(PAUSE_S * 2 ** min(one.failures, 9), LONGEST_PAUSE_S)
        if question.about and one.failures >= FAILURES_TOLD:
            what = f"{question.name!r} does not answer that its announcements are of this run"
            why = "are they replayed, or can it not be reached?"
            self._mailbox.refuse(question.name, WireError(f"{what}; {why}", "other run"), now_s)

    def _read(self, name: str, payload: Payload) -> Announcement:
        """Read an announcement by the key that ``name`` has; its signature is not looked at yet."""
        announcement = read_signed(Announcement, payload, run=self._agreement.run, node=name)
        if self._known_keys.known(name) not in (None, announcement.public):
            self._known_keys.public_key(name, announcement.public)  # Tells both keys.
        self._agreement.require_same_task(name, announcement.task)
        return announcement

    def _is_newcomer(self, name: str) -> bool:
        """Return whether ``name`` must sign before it is asked: made-up names cost nothing."""
        has_place = name in self._asked or name in self._mailbox.peers
        is_known = name == self._agreement.node or self._known_keys.known(name) is not None
        return not (has_place or is_known)

    def _meet(self, announcement: Announcement, data: bytes) -> None:
        if self._newcomers < NEWCOMERS:
            self._newcomers += 1
            verify(WHAT, data, announcement.public)
            if one := self.ask(announcement.node):
                one.unconfirmed = announcement.session

    def _is_worth_a_look(self, announcement: Announcement) -> bool:
        name = announcement.node
        if name == self._agreement.node:
            return announcement.session != self._session  # Else it is its own word, repeated.
        peer = self._mailbox.peers.get(name)
        last = peer.announcement if peer else None
        if last and last.session == announcement.session:
            return announcement.clock_s > last.clock_s
        if (one := self._asked.get(name)) and announcement.session in one.past:
            raise _other_session(name)
        if one := self.ask(name):
            one.unconfirmed = announcement.session
        return False

    def _believe(self, announcement: Announcement, data: bytes, now_s: float) -> None:
        self._wrong[announcement.node] += 1
        verify(WHAT, data, announcement.public)
        if announcement.node == self._agreement.node:
            raise WireError(
                "what this node did not announce comes with its name and signature; is it started "
                "twice, or are recordings of it repeated?",
                "forged",
            )
        self._mailbox.on_announcement(announcement, now_s)
        self._wrong[announcement.node] -= 1

    def ask(self, name: str) -> _Asked | None:
        """Have ``name`` asked soon; return None if it is this node, or one stranger too many."""
        if name == self._agreement.node:
            return None
        if name not in self._asked:
            known = self._mailbox.peers.keys()
            if name not in known and not self._make_room(known):
                return None
            self._asked[name] = _Asked()
        self._wanted.add(name)
        return self._asked[name]

    def _make_room(self, known: Set[str]) -> bool:
        """Let the stranger that failed most to answer give up its place if all are taken; one that
        was not asked yet keeps it. Return whether a place is free."""
        if len(others := self._asked.keys() - known) < STRANGERS:
            return True
        failed = {n: self._asked[n].failures for n in others - self._under_way}
        free = [(count, n) for n, count in failed.items() if count or n not in self._wanted]
        if free:
            _, worst = max(free)
            del self._asked[worst]
            self._wanted.discard(worst)
        return bool(free)


def _other_session(name: str) -> WireError:
    what = f"an announcement of {name!r} is of an earlier start of it, or of another one"
    return WireError(f"{what}; is it replayed, or {name!r} started twice?", "other run")
