"""Events of a running run, and one protocol for everything that shows them.

    nodes --Event--> Display (a terminal, trackers, lines of JSON for another process, several)

``show/terminal/__init__.py`` has the displays that ``--display`` can name.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

import msgspec

from potluck.reports import EvaluationReport, RoundReport

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


Event = PhaseProgress | RoundDone | Evaluated | Notice


class Display(Protocol):
    """Receiver of a run's events. An error that it raises ends the run."""

    def show(self, event: Event) -> None:
        """Show an event, at once: a run calls this many times a second."""


class Silent:
    """Display that shows nothing: the default of ``run``."""

    def show(self, event: Event) -> None: ...


class Fanout:
    """Display that hands every event to several displays, in their order."""

    def __init__(self, displays: Sequence[Display]) -> None:
        self._displays = tuple(displays)

    def show(self, event: Event) -> None:
        for display in self._displays:
            display.show(event)


class EventLines:
    """Display that writes a line of JSON for each event.

    When the other end of the pipe is closed, the process that started this node is gone. The node
    then stops as after Ctrl-C: an orphaned process must not go on.
    """

    def __init__(self, out: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._shown_s: dict[tuple[str, str], float] = {}

    def show(self, event: Event) -> None:
        if isinstance(event, PhaseProgress):
            now_s, key = self._clock(), (event.node, event.phase)
            before_s = self._shown_s.get(key, -PHASE_EVERY_S)
            if event.done < event.total and now_s - before_s < PHASE_EVERY_S:
                return
            self._shown_s[key] = now_s
        try:
            print(encode_event(event), file=self._out, flush=True)
        except BrokenPipeError:
            os.kill(os.getpid(), signal.SIGTERM)


def encode_event(event: Event) -> str:
    """Return the event as one line of ASCII.

    >>> encode_event(Notice("hello"))
    '{"event": "message", "text": "hello"}'
    """
    return json.dumps(msgspec.to_builtins(event))


def decode_event(line: str) -> Event | None:
    """Return the event that ``encode_event`` wrote; None for any other line."""
    try:
        event: Event = msgspec.convert(json.loads(line), Event)
    except (ValueError, RecursionError):
        return None
    return event
