"""The trackers of a run's nodes as one display: the numbers of each node go to its own."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from typing import Any, Self

from potluck.files import one_line
from potluck.reports import as_line
from potluck.reports.events import Alert, Display, Evaluated, Event, Notice, RoundDone
from potluck.reports.runs import COMPLETIONS, RECORDED
from potluck.reports.tail import Tail, newest
from potluck.reports.tokens import Recorded
from potluck.show.trackers import libraries
from potluck.show.trackers.libraries import About, Recording, Tracker
from potluck.types import PotluckError

TRACKERS: Mapping[str, Callable[[About], Tracker]] = {
    "tensorboard": libraries.TensorBoard,
    "wandb": libraries.Wandb,
    "trackio": libraries.Trackio,
}
"""Trackers by their name in ``[log] to``, the library's and the extra's."""
MOST_RECORDED_BYTES = 1 << 20


def require_trackers(names: Sequence[str], *, wandb_mode: str) -> None:
    """Raise PotluckError if a library is not here, or W&B knows no account."""
    for name in names:
        if find_spec(name) is None:
            raise PotluckError(
                f"[log] to names {name!r}, whose library is not here; "
                f"pip install 'potluck[{name}]', or take it out"
            )
    if "wandb" in names:
        libraries.require_own_wandb_settings()
    # Left to itself W&B would ask on the terminal, in the middle of the display.
    if "wandb" in names and wandb_mode == "online" and not libraries.has_credentials():
        raise PotluckError(
            "[log] to names 'wandb', which knows no account here; call `wandb login`, or set "
            "wandb_mode = 'offline'"
        )


class NewCompletions:
    """Reader of the lines that a node adds to its completions.jsonl."""

    def __init__(self, about: About) -> None:
        self._about = about
        self._tail = Tail(about.folder / about.node / COMPLETIONS, dict[str, Any])
        self._turns: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
        """Messages of each episode of the round whose ``rows`` were asked for last."""

    def rows(self, round: int) -> list[dict[str, Any]]:
        """Return the first completions of the node itself in ``round``, as rows of a table."""
        self._tail.look()
        lines = [line for line in self._tail.read() if line["round"] == round]
        self._turns = {
            (line["problem"], line["author"], line["index"]): line["turns"]
            for line in lines
            if line.get("turns")
        }
        own = (line for line in lines if line.pop("author") == self._about.node)
        return [*islice(own, self._about.completions)]

    def recorded(self, round: int) -> list[Recording]:
        """Return the first of all authors' completions that are recorded of ``round``."""
        lines = newest(self._tail.path.with_name(RECORDED), Recorded, MOST_RECORDED_BYTES)
        these = (line for line in lines if line.round == round)
        return [*map(self._recording, islice(these, self._about.completions))]

    def _recording(self, line: Recorded) -> Recording:
        answer = [{"role": "assistant", "content": line.text}]
        said = self._turns.get((line.problem, line.author, line.index), answer)
        return Recording(line, [{"role": "user", "content": line.question}, *map(_message, said)])


def _message(said: Mapping[str, Any]) -> dict[str, Any]:
    """Write a message of an episode as trackers know it from chats."""
    calls = [{"type": "function", "function": call} for call in said.get("calls", ())]
    message = {name: said[name] for name in ("role", "content")}
    return message | ({"tool_calls": calls} if calls else {})


class Tracked:
    """Display that draws curves: it is shown everything, and hands on the numbers. If a tracker
    fails inside the ``with`` block, the run goes on without it, with a message on ``display``."""

    def __init__(self, display: Display, names: Sequence[str], nodes: Sequence[About]) -> None:
        self._display, self._nodes = display, nodes
        self._names = tuple(dict.fromkeys(names))
        self._open: list[tuple[str, str, Tracker]] = []
        self._new = {each.node: NewCompletions(each) for each in nodes if each.completions}

    def __enter__(self) -> Self:
        for about in self._nodes:
            for name in self._names:
                try:
                    tracker = TRACKERS[name](about)
                except BaseException as error:  # Ctrl-C too: those that are open are closed
                    self._close(failed=True)
                    if not isinstance(error, Exception):
                        raise
                    raise PotluckError(
                        f"[log] {name} does not start for node {about.node!r}: {_said(error)}; "
                        f"mend it or take it out of 'to', then go on with --resume"
                    ) from error
                self._open.append((name, about.node, tracker))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(failed=kind is not None)

    def show(self, event: Event) -> None:
        match event:
            case RoundDone(node=node, report=report):
                round, values = report.round, libraries.round_values(as_line(report))
                self._tell(node, lambda its: its.log(round, values))
                if new := self._new.get(node):
                    rows, recorded = new.rows(round), new.recorded(round)
                    if rows:
                        self._tell(node, lambda its: its.table(round, rows, recorded))
            case Evaluated(node=node, report=evaluation):
                values = libraries.evaluation_values(as_line(evaluation))
                self._tell(node, lambda its: its.log(evaluation.round, values))
            case Alert(node=node):
                title = f"{node}: {event.kind}"
                self._tell(node, lambda its: its.alert(event.round, title, event.text))

    def _tell(self, node: str, tell: Callable[[Tracker], None]) -> None:
        for entry in [entry for entry in self._open if entry[1] == node]:
            name, _, tracker = entry
            try:
                tell(tracker)
            # Three libraries, their network and their disk: they raise what they like.
            except Exception as error:
                self._open.remove(entry)
                why = f"{name} failed for node {node!r} ({_said(error)})"
                ahead = f"the run goes on without it, and its numbers are in {node}/metrics.jsonl"
                self._display.show(Notice(f"{why}; {ahead}"))
                with suppress(Exception):  # it is given up, its last words included
                    tracker.close(failed=True)

    def _close(self, *, failed: bool) -> None:
        while self._open:
            name, node, tracker = self._open.pop(0)
            try:
                tracker.close(failed=failed)
            except Exception as error:
                why = f"{name} of node {node!r} did not close ({_said(error)})"
                self._display.show(Notice(why))


def _said(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__
