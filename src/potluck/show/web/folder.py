"""A run's folder as a feed: what its nodes have written, and what they write while it is read."""

import shlex
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import msgspec

from potluck.reports import EvaluationReport
from potluck.reports.answers import control_command
from potluck.reports.events import EventLine, Once, PeerChange
from potluck.reports.runs import (
    EVALUATION,
    EVENTS,
    METRICS,
    STATUS,
    RecipeRead,
    RunReadError,
    read_recipe,
    read_status,
)
from potluck.reports.status import FolderStatus
from potluck.reports.tail import Change, Line, Tail
from potluck.show.terminal.show import title_of
from potluck.show.web.bounds import MOST_EVENTS, MOST_FUNCTIONS, MOST_NODES, MOST_ROWS, NAME
from potluck.show.web.controls import WatchedControls
from potluck.show.web.entries import run_changed_s
from potluck.show.web.feed import NotHereError, Sections, Steps
from potluck.show.web.metrics import NodeMetrics, column_of, damaged_line, read_pairs
from potluck.show.web.states import GONE_S, Here, facts_of, node_views
from potluck.show.web.texts import NodeTexts
from potluck.show.web.views import (
    Columns,
    ControlView,
    EventView,
    NodeView,
    PairView,
    RecipeView,
    RunView,
    TextsView,
)
from potluck.types import NODE_NAME

FILES = (METRICS, STATUS, EVENTS, EVALUATION)
"""Files of which one at least is in a node's folder."""
JOINED, LOCAL_SWARM = "join.json", "_swarm"
"""Recipe of a node that was started by itself; folder of a run whose nodes have a process each."""
ONCE = ("message", "checkpoint", *get_args(PeerChange))
"""Kinds of events that several nodes tell of one thing."""


class NodeFolder:
    """One node's files, as far as they were read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.metrics = NodeMetrics(folder)
        self.texts = NodeTexts(folder)
        self.status: FolderStatus | None = None
        self.evaluations: dict[int, EvaluationReport] = {}
        self.steps, self.curves = Steps(), self.metrics.curves
        self._evaluation = Tail(folder / EVALUATION, EvaluationReport)
        self._events = Tail(folder / EVENTS, EventLine)
        self._told: deque[EventView] = deque(maxlen=MOST_EVENTS)

    def look(self, step: int) -> bool:
        """Read what is new; return whether there was anything."""
        first = self.metrics.look()
        if first is not None:
            self.steps.append((step, first))
        before, self.status = self.status, read_status(self.folder)
        changes = [self._evaluation.look(), self._events.look()]
        if changes[0] is Change.ANEW:
            self.evaluations.clear()
        if changes[1] is Change.ANEW:
            self._told.clear()
        for line in self._lines(self._evaluation, changes[0]):
            if len(self.evaluations) < MOST_ROWS:
                self.evaluations[line.round] = line
        for told in self._lines(self._events, changes[1]):
            self._tell(told.time_s, told.round, told.kind[:32], told.text[:500])
        return first is not None or before != self.status or {*changes} != {Change.NOTHING}

    def _lines(self, tail: Tail[Line], change: Change) -> Iterable[Line]:
        def damaged(error: Exception) -> None:
            self._tell(None, self.metrics.done, "message", damaged_line(tail))

        return () if change is Change.NOTHING else tail.read(damaged)

    def _tell(self, time_s: float | None, round: int, kind: str, text: str) -> None:
        event = EventView(time_s=time_s, round=round, node=self.name, kind=kind, text=text)
        self._told.append(event)

    def events(self) -> list[EventView]:
        return [*self.metrics.events, *self._told]

    def here(self) -> Here:
        began_s = _changed_s(self.folder / JOINED)
        return Here(self.status, self.metrics.done, began_s or None)

    def evaluation_columns(self) -> Columns:
        rows = [self.evaluations[at] for at in sorted(self.evaluations)]
        names = [field.name for field in fields(EvaluationReport) if field.name != "rewards"]
        functions = dict.fromkeys(name for row in rows for name in row.rewards)
        return {name: [getattr(row, name) for row in rows] for name in names} | {
            f"rewards/{name[:NAME]}": column_of(row.rewards.get(name) for row in rows)
            for name in islice(functions, MOST_FUNCTIONS)
        }


def _changed_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _recipe_view(recipe: RecipeRead) -> RecipeView:
    return RecipeView(method=title_of(recipe.objective), settings=dict(recipe.settings))


class WatchedRun:
    """Feed of one run from its folder; ``begins`` tells that it may not have been made yet."""

    def __init__(self, folder: Path, run: str = "", *, begins: bool = False) -> None:
        self.folder, self.id = folder, run
        self._begins, self._began_s = begins, time.time()
        self._lock = threading.Lock()
        self._recipe: RecipeRead | None = None
        self._nodes: dict[str, NodeFolder] = {}
        self._matrix: dict[str, dict[str, dict[str, float | None]]] = {}
        self._sections = Sections()
        self._controls = WatchedControls(folder)
        self._step = 0
        self._now_s = 0.0

    def look(self) -> int:
        with self._lock:
            self._now_s, step = time.time(), self._step + 1
            with suppress(RunReadError):
                self._recipe = read_recipe(self.folder)  # a resume may change it
            self._find_nodes()
            changed = [node for node in self._nodes.values() if node.look(step)]
            if self._take(step, changed) or changed:
                self._step = step
            return self._step

    def _find_nodes(self) -> None:
        try:
            folders = sorted(p for p in self.folder.iterdir() if NODE_NAME.fullmatch(p.name))
        except OSError:
            return
        for folder in folders:
            new = folder.name not in self._nodes and len(self._nodes) < MOST_NODES
            # A link may lead out of the run.
            if new and not folder.is_symlink() and any((folder / name).is_file() for name in FILES):
                self._nodes[folder.name] = NodeFolder(folder)

    def _take(self, step: int, changed: list[NodeFolder]) -> bool:
        """Make the sections anew that may be others; return whether one is."""
        recipe = self._recipe
        facts = facts_of(recipe, self._now_s)
        nodes = node_views({name: node.here() for name, node in self._nodes.items()}, facts)
        controls = self._controls.look()
        made: dict[str, Any] = {
            "recipe": _recipe_view(recipe) if recipe else None,
            "controls": controls,
            "control_command": control_command(self.folder),
            "nodes": [msgspec.structs.replace(n, back=self._back(n, nodes)) for n in nodes],
            "is_over": self._is_over(nodes) and not self._makes(controls),
        }
        if changed or not self._step:
            for node in changed:
                self._matrix[node.name] = node.metrics.authors()
            made["matrix"] = self._whole_matrix()
            made["habits"] = {n: its.metrics.habits() for n, its in self._nodes.items()}
            made["events"] = self._newest_events()
            made["evaluations"] = {
                name: node.evaluation_columns()
                for name, node in self._nodes.items()
                if node.evaluations
            }
        return self._sections.take(made, step)

    def _back(self, node: NodeView, nodes: list[NodeView]) -> str:
        """Return the command that brings back a node of this folder that is gone; else nothing."""
        if node.name not in self._nodes or node.state not in ("stopped", "silent"):
            return ""
        is_local = (self.folder / LOCAL_SWARM).is_dir()
        file = f"{LOCAL_SWARM}/recipe.json" if is_local else f"{node.name}/{JOINED}"
        where, begin = shlex.quote(str(self.folder)), "run {}/recipe.json"
        others_go_on = any(each.state in ("training", "recovering") for each in nodes)
        if (others_go_on or not is_local) and (self.folder / file).is_file():
            begin = f"join {{}}/{file} --as {node.name}"
        return f"potluck {begin.format(where)} --out {where} --resume"

    def _makes(self, controls: list[ControlView]) -> bool:
        """Tell whether controls are being made: they are asked for or begun, and told nothing."""
        asked = self._recipe.settings.get("control", "[]") != "[]" if self._recipe else False
        if all(each.answer for each in controls) and (controls or not asked):
            return False
        last_s = max(map(run_changed_s, (self.folder, *self.folder.glob("control.*"))))
        return self._begins or self._now_s - last_s < GONE_S

    def _is_over(self, nodes: list[NodeView]) -> bool:
        here = [node for node in nodes if node.name in self._nodes]
        if self._begins and len(here) < len(nodes):
            return False  # some have not begun
        for node in here:
            if node.state not in ("ended", "stopped", "unknown"):
                return False
            status = self._nodes[node.name].status
            if self._begins and status and status.own.time_s < self._began_s:
                return False  # that is how it ended before this start
            # A release without status.json: as long as its files change it lives.
            if node.state == "unknown" and self._now_s - self._changed_s(node.name) < GONE_S:
                return False
        return bool(here) or not self._begins

    def _changed_s(self, node: str) -> float:
        """Return when a node last wrote, in seconds since 1970; 0: never."""
        return max(_changed_s(self.folder / node / name) for name in FILES)

    def _whole_matrix(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Add to what is here what nodes of other machines say of their authors."""
        whole = dict(self._matrix)
        for node in self._nodes.values():
            peers = node.status.peers if node.status else {}
            for name, peer in peers.items():
                if peer.line and name not in self._nodes and NODE_NAME.fullmatch(name):
                    whole[name] = {
                        author: msgspec.structs.asdict(its)
                        for author, its in peer.line.authors.items()
                        if author in self._nodes or author in peers  # none is made up
                    }
        return whole

    def _newest_events(self) -> list[EventView]:
        every = [event for node in self._nodes.values() for event in node.events()]
        every.sort(key=lambda event: (event.round, event.time_s or 0.0))
        once = Once()  # what one node tells another one may have told a moment before
        new = [
            event
            for event in every
            if event.kind not in ONCE
            or event.time_s is None
            or once.is_new(event.text, event.time_s)
        ]
        return new[-MOST_EVENTS:]

    def view(self, since: int = 0) -> RunView:
        with self._lock:
            recipe = self._recipe
            return RunView(
                name=recipe.name if recipe else self.folder.name,
                run=self.id,
                now_s=self._now_s,
                rounds=recipe.end if recipe else 0,
                **self._sections.since(since, self._nodes),
            )

    def _node(self, name: str) -> NodeFolder:
        if name in self._nodes:
            return self._nodes[name]
        here: Mapping[str, object] = self._nodes
        raise NotHereError(
            f"the folder of node {name[:40]!r} is not here; these are: {', '.join(here) or 'none'}"
        )

    def pair(self, learner: str, author: str) -> PairView:
        if found := read_pairs(self._node(learner).folder, author):
            return found[author]
        raise NotHereError(f"{learner} has seen nothing of {author[:40]!r}")

    def texts(self, node: str, round: int | None = None) -> TextsView:
        return self._node(node).texts.of_round(round)

    def search(self, node: str, words: str) -> TextsView:
        return self._node(node).texts.search(words)
