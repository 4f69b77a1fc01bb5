"""The progress of a run as lines of JSON: how a node tells the process that started it.

{"phase": {"node": ..., "name": ..., "done": ..., "total": ...}}
{"round_done": {"node": ..., "metrics": {...}}}
{"evaluated": {"node": ..., "evaluation": {...}}}
{"say": {"text": ...}}
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

PHASE_EVERY_S = 0.1
"""A phase is told of this often at most, but for its end."""


class Shows(Protocol):
    """What can show the progress of a run: ``LiveDisplay``, say."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: Mapping[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: Mapping[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


class EventLines:
    """A display that writes lines.

    When nobody reads them any more, whoever started this node is gone: it is asked to stop as
    Ctrl-C would, so that no process is left behind that nobody knows of.
    """

    def __init__(self, out: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._said_s: dict[tuple[str, str], float] = {}

    def phase(self, node: str, name: str, done: int, total: int) -> None:
        now_s = self._clock()
        if done < total and now_s - self._said_s.get((node, name), -PHASE_EVERY_S) < PHASE_EVERY_S:
            return
        self._said_s[node, name] = now_s
        self._write("phase", {"node": node, "name": name, "done": done, "total": total})

    def round_done(self, node: str, metrics: Mapping[str, Any]) -> None:
        self._write("round_done", {"node": node, "metrics": metrics})

    def evaluated(self, node: str, evaluation: Mapping[str, Any]) -> None:
        self._write("evaluated", {"node": node, "evaluation": evaluation})

    def say(self, text: str) -> None:
        self._write("say", {"text": text})

    def _write(self, event: str, fields: Mapping[str, Any]) -> None:
        try:
            print(json.dumps({event: fields}), file=self._out, flush=True)
        except BrokenPipeError:
            os.kill(os.getpid(), signal.SIGTERM)


def show_event(line: str, display: Shows) -> str:
    """Shows what a line tells; returns which event it is, "" for something printed in between."""
    try:
        ((event, fields),) = json.loads(line).items()
        if event not in ("phase", "round_done", "evaluated", "say"):
            return ""
        getattr(display, event)(**fields)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return ""
    return str(event)
