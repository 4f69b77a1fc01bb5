"""A run's folder as a feed: what its nodes have written, and what they write while it is read."""

import shlex
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec.structs import asdict, replace

from potluck.files import JOINED, LOCAL_SWARM
from potluck.reports import EvaluationReport, RoundReport, runs
from potluck.reports.answers import CONTROLS, answers, control_command
from potluck.reports.doubts import habit_told
from potluck.reports.events import EventLine, Once, PeerChange
from potluck.reports.right import binary_of
from potluck.reports.statistics import EARNED_NOTHING
from potluck.reports.status import FolderStatus
from potluck.reports.tail import Change, Tail, newest
from potluck.right import merged
from potluck.show.terminal.show import title_of
from potluck.show.web import views
from potluck.show.web.rounds import MOST_ROWS, NodeRounds, numbers_in, pair_columns
from potluck.show.web.states import GONE_S, MOST_NODES, Here, facts_of, node_views
from potluck.show.web.texts import texts_of
from potluck.types import NODE_NAME, PotluckError

ONCE = ("message", "checkpoint", *get_args(PeerChange))
"""Kinds of events that several nodes tell of one thing."""
MOST_EVENTS = 500
PAIR_BYTES = 256 << 20
"""Most of a file that is read for pairs, from its end."""


class NotHereError(PotluckError):
    """A run, node or experiment that was asked for and is not here."""


class NodeFolder:
    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.status: FolderStatus | None = None
        self.rounds, self.graded = NodeRounds(), NodeRounds()
        self.binary: dict[str, bool] = {}
        """Of each reward function whether it paid nothing but 0 and 1."""
        self.events = defaultdict[str, deque[views.EventView]](partial(deque, maxlen=MOST_EVENTS))
        """Events by the file that tells them, or that has a damaged line: they end with it."""
        self._step = 0
        self._files: tuple[tuple[Tail[Any], Callable[[Any], None], Callable[[], None]], ...] = (
            (Tail(folder / runs.METRICS, RoundReport), self._add_round, self._clear_rounds),
            (Tail(folder / runs.EVALUATION, EvaluationReport), self._add_graded, self.graded.clear),
            (Tail(folder / runs.EVENTS, EventLine), self._add_event, lambda: None),
        )

    def look(self, step: int) -> bool:
        self._step, before, is_new = step, self.status, False
        self.status = runs.read_status(self.folder)
        for tail, add, clear in self._files:
            if (change := tail.look()) is Change.NOTHING:
                continue
            is_new = True
            if change is Change.ANEW:
                clear()
                self.events[tail.path.name].clear()
            for line in tail.read(partial(self._damaged, tail)):
                add(line)
        return is_new or before != self.status

    def _damaged(self, tail: Tail[Any], _: Exception) -> None:
        text = f"{tail.path.name}, line {tail.number} cannot be read; it is left out"
        self._add_event(EventLine(round=self.rounds.done, text=text), tail.path.name)

    def _clear_rounds(self) -> None:
        self.rounds.clear()
        self.binary.clear()

    def _add_round(self, line: RoundReport) -> None:
        self.binary |= merged(self.binary, binary_of([line]))
        counts = {"missing": len(line.missing), "refused": sum(line.refused.values())}
        phases = {f"seconds/{phase}": seconds for phase, seconds in line.seconds.items()}
        # A round without any names none; a run of 0.2.0 never does.
        is_noted = line.partial is not None or line.own_earned_nothing
        kinds = [*EARNED_NOTHING] if is_noted else []
        nothing = {
            f"own_earned_nothing/{kind}": float(line.own_earned_nothing.get(kind, 0))
            for kind in kinds
        }
        numbers = numbers_in(line) | counts | phases | nothing
        self.rounds.add(self._step, line.round, numbers, line.sources)

    def _add_graded(self, line: EvaluationReport) -> None:
        functions = {f"rewards/{name}": value for name, value in line.rewards.items()}
        self.graded.add(self._step, line.round, numbers_in(line) | functions)

    def _add_event(self, line: EventLine, file: str = runs.EVENTS) -> None:
        cut = {"kind": line.kind[:32], "text": line.text[:500], "peer": line.peer[:64]}
        self.events[file].append(views.EventView(node=self.name, **asdict(line) | cut))

    def here(self) -> Here:
        return Here(self.status, self.rounds.done, _changed_s(self.folder / JOINED) or None)

    def habits(self) -> list[str]:
        authors = self.rounds.authors.items()
        told = (habit_told(self.name, name, [report for _, report in its]) for name, its in authors)
        return [sentence for sentence in told if sentence]


def _changed_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def run_changed_s(folder: Path) -> float:
    """Return when a run last wrote; 0: it is gone."""
    return max(map(_changed_s, (folder, *folder.glob("*/*.jsonl"))))


def read_pairs(folder: Path, wanted: str | None = None) -> dict[str, views.PairView]:
    """Read one learner's view of each author over the rounds, or of the ``wanted`` one."""
    rounds = NodeRounds(MOST_ROWS)
    for line in newest(folder / runs.METRICS, RoundReport, PAIR_BYTES):
        of = {a: its for a, its in line.sources.items() if wanted is None or a == wanted}
        rounds.add(0, line.round, {}, of)
    return {
        author: views.PairView(learner=folder.name, author=author, columns=pair_columns(reports))
        for author, reports in sorted(rounds.authors.items())
    }


class WatchedRun:
    """One run from its folder: sections of its view that each look makes anew, and the rounds of
    its nodes. All pages that show it share one look."""

    def __init__(self, folder: Path, *, begins: bool = False) -> None:
        """Begin to watch; ``begins`` tells that the run may not have been made yet."""
        self.folder = folder
        self._lock = threading.RLock()
        self._step, self._now_s, self._looked_s = 0, 0.0, float("-inf")
        self._sections: dict[str, Any] = {}
        self._changed: dict[str, int] = {}
        """Step in which each section was last another one."""
        self._messages: dict[int, tuple[bytes, bool]] = {}
        """Messages of the present step, by the step that their readers have."""
        self._begins, self._began_s = begins, time.time()
        self._recipe: runs.RecipeRead | None = None
        self._nodes: dict[str, NodeFolder] = {}
        self._controls: dict[tuple[str, str], NodeFolder] = {}
        """Folders <run>/control.KIND.NODE/NODE, or control.own-part/NODE, by node and kind."""
        self._matrix: views.Matrix = {}

    def look(self, *, every_s: float = 0.0) -> int:
        """Take in what is new, at most every ``every_s``; return the state's number, from 1."""
        # While one reader looks, which can take seconds, the others keep no thread waiting.
        if not self._lock.acquire(blocking=not (every_s and self._step)):
            return self._step
        try:
            if time.monotonic() - self._looked_s < every_s:
                return self._step
            self._now_s, step = time.time(), self._step + 1
            made = self._make(step)
            new = {name for name, it in made.items() if self._sections.get(name) != it}
            self._sections |= made
            self._changed |= dict.fromkeys(new, step)
            if new or any(node.rounds.newest_step == step for node in self._nodes.values()):
                self._step = step
                self._messages.clear()
            self._looked_s = time.monotonic()
            return self._step
        finally:
            self._lock.release()

    def view(self, since: int = 0) -> views.RunView:
        """Return what changed after the state of number ``since``; all of it if that is 0."""
        with self._lock:
            rows = {name: node.rounds.since(since) for name, node in self._nodes.items()}
            return views.RunView(
                now_s=self._now_s,
                curves={name: its for name, its in rows.items() if its} or None,
                **{name: self._sections[name] for name, at in self._changed.items() if at > since},
            )

    def message(self, since: int) -> tuple[bytes, bool]:
        """Return (that view as JSON, whether the run is over). All readers share one."""
        with self._lock:
            if since not in self._messages:
                view = self.view(since)
                self._messages[since] = msgspec.json.encode(view), view.is_over
            return self._messages[since]

    def _make(self, step: int) -> dict[str, Any]:
        """Take in what is new; return the sections that may be others now."""
        with suppress(runs.RunReadError):
            self._recipe = runs.read_recipe(self.folder)  # a resume may change it
        self._find_nodes()
        changed = [node for node in self._nodes.values() if node.look(step)]
        recipe = self._recipe
        facts = facts_of(recipe, self._now_s)
        nodes = node_views({name: node.here() for name, node in self._nodes.items()}, facts)
        controls = self._look_at_controls(step)
        made: dict[str, Any] = {
            "name": recipe.name if recipe else self.folder.name,
            "rounds": facts.rounds,
            "controls": controls,
            "control_command": control_command(self.folder),
            "nodes": [replace(n, back=self._back(n, nodes)) for n in nodes],
            "is_over": self._is_over(nodes) and not self._makes(controls),
        }
        if recipe:
            made |= {"method": title_of(recipe.objective), "settings": dict(recipe.settings)}
        if changed or not self._step:
            self._matrix |= {node.name: node.rounds.matrix() for node in changed}
            made["matrix"] = self._whole_matrix()
            made["habits"] = {name: node.habits() for name, node in self._nodes.items()}
            made["events"] = self._newest_events()
            made["evaluations"] = {
                name: node.graded.shown()
                for name, node in self._nodes.items()
                if node.graded.newest_step
            }
        return made

    def _find_nodes(self) -> None:
        try:
            folders = sorted(p for p in self.folder.iterdir() if NODE_NAME.fullmatch(p.name))
        except OSError:
            return
        for folder in folders:
            new = folder.name not in self._nodes and len(self._nodes) < MOST_NODES
            files = (runs.METRICS, runs.STATUS, runs.EVENTS, runs.EVALUATION)
            # A link may lead out of the run.
            if new and not folder.is_symlink() and any((folder / name).is_file() for name in files):
                self._nodes[folder.name] = NodeFolder(folder)

    def _look_at_controls(self, step: int) -> list[views.ControlView]:
        """Read what is new of the controls; return each node beside each of them."""
        for file in islice(self.folder.glob(f"control.*/*/{runs.METRICS}"), MOST_NODES):
            key = file.parent.name, file.parts[-3].split(".")[1]
            self._controls.setdefault(key, NodeFolder(file.parent)).look(step)
        told = {(each.node, each.control): each for each in answers(self.folder)[:MOST_NODES]}
        found = []
        for node, kind in sorted({*told, *self._controls}):
            own, answer = self._controls.get((node, kind)), told.get((node, kind))
            columns = own.rounds.columns if own else {}
            shown = {name: [*columns.get(name, ())] for name in ("round", "own_reward_mean")}
            found.append(
                views.ControlView(
                    node=node,
                    kind=kind,
                    how=CONTROLS.get(kind, "in another control"),
                    columns=shown,
                    answer=answer,
                    verdict=answer.verdict if answer else "",
                )
            )
        return found

    def _back(self, node: views.NodeView, nodes: list[views.NodeView]) -> str:
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

    def _makes(self, controls: list[views.ControlView]) -> bool:
        """Tell whether controls are being made: they are asked for or begun, and told nothing."""
        asked = self._recipe.settings.get("control", "[]") != "[]" if self._recipe else False
        if all(each.answer for each in controls) and (controls or not asked):
            return False
        last_s = max(map(run_changed_s, (self.folder, *self.folder.glob("control.*"))))
        return self._begins or self._now_s - last_s < GONE_S

    def _is_over(self, nodes: list[views.NodeView]) -> bool:
        here = [node for node in nodes if node.name in self._nodes]
        if self._begins and (not here or len(here) < len(nodes)):
            return False  # some have not begun
        began_s = self._began_s if self._begins else 0.0  # before, another start ended
        return all(
            node.state in ("ended", "stopped", "unknown")
            and (node.heard_s is None or node.heard_s >= began_s)
            for node in here
        )

    def _whole_matrix(self) -> views.Matrix:
        """Add to what is here what nodes of other machines say of their authors."""
        whole = dict(self._matrix)
        for node in self._nodes.values():
            peers = node.status.peers if node.status else {}
            for name, peer in peers.items():
                if peer.line and name not in self._nodes and NODE_NAME.fullmatch(name):
                    whole[name] = {
                        author: asdict(its)
                        for author, its in peer.line.authors.items()
                        if author in self._nodes or author in peers  # none is made up
                    }
        return whole

    def _newest_events(self) -> list[views.EventView]:
        every = [e for node in self._nodes.values() for e in chain(*node.events.values())]
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

    def _node(self, name: str) -> NodeFolder:
        if name in self._nodes:
            return self._nodes[name]
        here = ", ".join([*self._nodes]) or "none"
        raise NotHereError(f"the folder of node {name[:40]!r} is not here; these are: {here}")

    def pair(self, learner: str, author: str) -> views.PairView:
        if found := read_pairs(self._node(learner).folder, author):
            return found[author]
        raise NotHereError(f"{learner} has seen nothing of {author[:40]!r}")

    def texts(self, node: str, round: int | None = None) -> views.TextsView:
        """Return a round's completions, of the newest round if it is not given."""
        with self._lock:
            binary = merged(*(each.binary for each in self._nodes.values()))
        return texts_of(self._node(node).folder, round, recipe=self._recipe, binary=binary)
