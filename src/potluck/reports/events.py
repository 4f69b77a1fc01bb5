"""Events of a running run, and one protocol for everything that shows them."""

import json
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, Protocol, TextIO

import msgspec

from potluck.files import is_of_no_reader, write_nowhere
from potluck.reports.rounds import EvaluationReport, RoundReport

PHASE_EVERY_S = 0.1
"""Least time between two lines about one phase of one node, but for its end."""


class _Event(msgspec.Struct, frozen=True, tag_field="event", forbid_unknown_fields=True):
    pass


class PhaseProgress(_Event, frozen=True, tag="phase"):
    """Progress of a node in a phase of its round: "wait", "write", "learn" or "evaluate"."""

    node: str
    phase: str
    done: int
    total: int


class RoundDone(_Event, frozen=True, tag="round_done"):
    node: str
    report: RoundReport


class Evaluated(_Event, frozen=True, tag="evaluated"):
    node: str
    report: EvaluationReport


class Notice(_Event, frozen=True, tag="message"):
    """A line of text for the user."""

    text: str


PeerChange = Literal[
    "joined", "left", "overdue", "back", "reset", "refused", "unknown", "quarantined"
]
_WORDS: dict[PeerChange, str] = {
    "joined": "{peer!r} joined",
    "left": "{peer!r} left",
    "overdue": "{peer!r} was not in time in round {why}: it is not waited for until it is",
    "back": "{peer!r} is waited for again",
    "reset": "{peer!r} has begun anew: its rounds count from 0 again",
    "refused": "refused from {peer!r}: {why}",
    "unknown": "announcements of names that may not take part are ignored; {peer!r} is the first: "
    "{why}",
    "quarantined": "{peer!r} is not listened to for {why}",
}


class PeerNews(_Event, frozen=True, tag="peer"):
    """A change of another node, as this node's exchange sees it."""

    kind: PeerChange
    peer: str
    why: str = ""
    """Reason, or the round, in words."""

    @property
    def text(self) -> str:
        """The news as a line for the user."""
        return _WORDS[self.kind].format(peer=self.peer, why=self.why)


class Alert(_Event, frozen=True, tag="alert"):
    """A line about what to look at, and what to do: see ``reports/doubts.py``."""

    node: str
    kind: str
    """"silent", "alone", "reward", "entropy", "unheard", or a field of a report."""
    round: int
    text: str


Told = Notice | PeerNews | Alert
Event = PhaseProgress | RoundDone | Evaluated | Told

ONE_EVENT_S = 10.0
"""Seconds within which equal messages of several nodes are about one event."""


class Once:
    """Memory of what was told a moment ago: several nodes tell of one event, "'west' left"."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def is_new(self, text: str, time_s: float) -> bool:
        """Tell if nobody told ``text`` within ``ONE_EVENT_S`` of ``time_s``."""
        is_new = abs(time_s - self._told_s.get(text, -math.inf)) >= ONE_EVENT_S
        if is_new:
            recent = {t: s for t, s in self._told_s.items() if abs(time_s - s) < ONE_EVENT_S}
            self._told_s = recent | {text: time_s}
        return is_new


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of events.jsonl; those of 0.2.0 have only the kinds "message" and "checkpoint"."""

    round: int = 0
    time_s: float | None = None
    kind: str = "message"
    """"message", "alert", "checkpoint", or a ``PeerChange``."""
    text: str = ""
    peer: str = ""


class Display(Protocol):
    """Receiver of a run's events. An error that it raises ends the run."""

    def show(self, event: Event) -> None:
        """Show an event, at once: a run calls this many times a second."""


class Fanout:
    """Display that hands every event to several displays, in their order; to none as a default."""

    def __init__(self, displays: Sequence[Display] = ()) -> None:
        self._displays = tuple(displays)

    def show(self, event: Event) -> None:
        for display in self._displays:
            display.show(event)


class EventLines:
    """Display that writes a line of JSON for each event. When the other end of the pipe is closed,
    the process that started this node is gone: then it stops as after Ctrl-C."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_closed = False
        self._shown_s = defaultdict[tuple[str, str], float](lambda: -PHASE_EVERY_S)

    def show(self, event: Event) -> None:
        if self._is_closed:
            return
        if isinstance(event, PhaseProgress):
            now_s, key = time.monotonic(), (event.node, event.phase)
            if event.done < event.total and now_s - self._shown_s[key] < PHASE_EVERY_S:
                return
            self._shown_s[key] = now_s
        try:
            print(encode_event(event), file=self._out, flush=True)
        except OSError as error:
            if not is_of_no_reader(error):
                raise
            self._is_closed = True  # once: a second signal means "at once"
            write_nowhere(self._out)
            os.kill(os.getpid(), signal.SIGTERM)


def encode_event(event: Event) -> str:
    """Return the event as one line of ASCII."""
    return json.dumps(msgspec.to_builtins(event))


def decode_event(line: str) -> Event | None:
    """Return the event that ``encode_event`` wrote; None for any other line."""
    with suppress(ValueError, RecursionError):
        return msgspec.convert(json.loads(line), Event)  # type: ignore[no-any-return]
    return None
