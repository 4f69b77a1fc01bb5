"""A run's display in company: what the run tells is told to the trackers of its nodes too."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self

from potluck.trackers.base import About, Tracker, TrackerError, evaluation_values, round_values
from potluck.trackers.tensorboard import open_tensorboard
from potluck.trackers.trackio import open_trackio
from potluck.trackers.wandb import has_credentials, open_wandb

TRACKERS: Mapping[str, Callable[[About], Tracker]] = {
    "tensorboard": open_tensorboard,
    "wandb": open_wandb,
    "trackio": open_trackio,
}
"""By the name in ``[log] to``, which is that of the library and of the extra as well."""


class Shows(Protocol):
    """What a run tells its display."""

    def phase(self, node: str, name: str, done: int, total: int) -> None: ...
    def round_done(self, node: str, metrics: dict[str, Any]) -> None: ...
    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...


def require_trackers(names: Sequence[str], *, wandb_mode: str) -> None:
    """Looks for what would keep a tracker from starting, before anything is written.

    Raises:
        TrackerError: a library is not here, or W&B does not know who is logging.
    """
    for name in names:
        if find_spec(name) is None:
            raise TrackerError(
                f"[log] to names {name!r}, whose library is not here; "
                f"pip install 'potluck[{name}]', or take it out"
            )
    # Left to itself W&B would ask on the terminal, in the middle of the display.
    if "wandb" in names and wandb_mode == "online" and not has_credentials():
        raise TrackerError(
            "[log] to names 'wandb', which knows no account here; call `wandb login`, or set "
            "wandb_mode = 'offline'"
        )


class Tracked:
    """Passes everything on to a display, and the numbers to trackers as well.

    Trackers are open from ``with`` to the end of the block, whatever ends it. They are for
    looking at: one that fails in between is left behind with a word about it, and the run
    goes on. Its numbers are in metrics.jsonl and evaluation.jsonl all the same.
    """

    def __init__(self, display: Shows, names: Sequence[str], nodes: Sequence[About]) -> None:
        self._display, self._nodes = display, nodes
        self._names = tuple(dict.fromkeys(names))
        self._open: list[tuple[str, str, Tracker]] = []

    def __enter__(self) -> Self:
        for about in self._nodes:
            for name in self._names:
                try:
                    tracker = TRACKERS[name](about)
                except BaseException as error:  # Ctrl-C too: those that are open are closed
                    self._close(failed=True)
                    if not isinstance(error, Exception):
                        raise
                    raise TrackerError(
                        f"[log] {name} does not start for node {about.node!r}: "
                        f"{_one_line(error)}; mend it or take it out of 'to', then go on "
                        f"with --resume"
                    ) from error
                self._open.append((name, about.node, tracker))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(failed=kind is not None)

    def phase(self, node: str, name: str, done: int, total: int) -> None:
        self._display.phase(node, name, done, total)

    def round_done(self, node: str, metrics: dict[str, Any]) -> None:
        self._display.round_done(node, metrics)
        self._log(node, metrics["round"], round_values(metrics))

    def evaluated(self, node: str, evaluation: dict[str, Any]) -> None:
        self._display.evaluated(node, evaluation)
        self._log(node, evaluation["round"], evaluation_values(evaluation))

    def say(self, text: str) -> None:
        self._display.say(text)

    def _log(self, node: str, round: int, values: Mapping[str, float]) -> None:
        for entry in list(self._open):
            name, of, tracker = entry
            if of != node:
                continue
            try:
                tracker.log(round, values)
            # Three libraries, their network and their disk: they raise what they like.
            except Exception as error:
                self._open.remove(entry)
                self._display.say(
                    f"{name} failed for node {node!r} ({_one_line(error)}); the run goes on "
                    f"without it, and its numbers are in {node}/metrics.jsonl"
                )
                with suppress(Exception):  # it is given up, its last words included
                    tracker.close(failed=True)

    def _close(self, *, failed: bool) -> None:
        while self._open:
            name, node, tracker = self._open.pop(0)
            try:
                tracker.close(failed=failed)
            except Exception as error:
                self._display.say(f"{name} of node {node!r} did not close ({_one_line(error)})")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
