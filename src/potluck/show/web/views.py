"""Views: the data of the page, the same from a run's folder or a file that was kept.

Times are seconds since 1970, shares 0..1, sizes bytes. None is "not known". All text of models and
peers is as it came: the page shows it as text nodes only.
"""

from typing import Literal

from msgspec import Struct

from potluck.reports.answers import ControlAnswer
from potluck.reports.events import EventLine
from potluck.reports.tokens import Recorded

State = Literal[
    "training", "recovering", "silent", "quarantined", "ended", "stopped", "awaited", "unknown"
]
"""State of a node, see ``states.py``. Recovering: behind the others; quarantined: its messages are
not read for now; stopped: before all rounds were done, or silent for very long; awaited: nothing
was heard of it, and no round is done."""
Columns = dict[str, list[float | None]]
"""Numbers over the rounds: equally long lists by name, one of them "round"."""
Matrix = dict[str, dict[str, dict[str, float | None]]]
"""Cells by learner and author, means over the author's last ten rounds: the numbers of
``AuthorReport``, and "staleness": rounds since something of it came."""


class NodeView(Struct, frozen=True, kw_only=True):
    """A node now: a line of "who is here"."""

    name: str
    model: str = ""
    parameters: int = 0
    version: str = ""
    state: State = "unknown"
    why: str = ""
    """Reason for a state other than "training", in words; may be empty."""
    heard_s: float | None = None
    round: int = 0
    phase: str = ""
    done: int = 0
    total: int = 0
    begins_s: float | None = None
    """Time at which a node that waits for the others begins without them."""
    back: str = ""
    """Command that brings back a node that stopped or fell silent."""


class CurvesView(Struct, frozen=True, kw_only=True):
    """Rows ``first``, ``first`` + 1, ... of a node's curves; they replace all rows from there."""

    first: int
    columns: Columns
    """Numbers of ``RoundReport``; "seconds/write" and so on; "missing" and "refused" are counts."""


class EventView(EventLine, frozen=True, kw_only=True):
    node: str


class ControlView(Struct, frozen=True, kw_only=True):
    """A control of one node: what it learned without the others' completions."""

    node: str
    kind: str
    how: str
    """The kind in words."""
    columns: Columns
    """Its "own_reward_mean" over the rounds, as far as it has come."""
    answer: ControlAnswer | None = None
    verdict: str = ""


class RunView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as it is now. In a message about a change a section that did not change is None."""

    now_s: float
    name: str = ""
    rounds: int = 0
    method: str | None = None
    settings: dict[str, str] | None = None
    """Every key of the recipe, dotted, with its value as text."""
    controls: list[ControlView] | None = None
    control_command: str | None = None
    nodes: list[NodeView] | None = None
    curves: dict[str, CurvesView] | None = None
    evaluations: dict[str, Columns] | None = None
    matrix: Matrix | None = None
    habits: dict[str, list[str]] | None = None
    """Findings of each learner's habit test, in words."""
    events: list[EventView] | None = None
    is_over: bool = False


class PairView(Struct, frozen=True, kw_only=True):
    """One learner and one author over the rounds."""

    learner: str
    author: str
    columns: Columns


class TextView(Struct, frozen=True, kw_only=True):
    """One completion as one learner saw it."""

    round: int
    problem: str
    author: str
    index: int
    reward: float
    right: bool | None = None
    """None: no reward function decides it."""
    text: str
    end: str = ""
    question: str = ""
    answer: str = ""
    """Right answer; empty: the task has none."""
    turns: list[tuple[str, str]] = []
    """Messages of an episode, each with its role; "assistant": its model wrote it."""
    recorded: Recorded | None = None
    """Record of its fate and its tokens. Their texts are those of single tokens, the stop token's
    too, so they may differ from ``text``."""


class TextsView(Struct, frozen=True, kw_only=True):
    """Completions of a round."""

    node: str
    rounds: list[int] = []
    """Rounds that have completions, newest last; 1,000 at most."""
    texts: list[TextView] = []
    right: str = ""
    """Which of them are right, in words; empty: those that the task pays 1."""
    is_cut: bool = False


class RunEntry(Struct, frozen=True, kw_only=True):
    """A run of a folder, on the start page."""

    run: str
    name: str
    rounds: int = 0
    done: int = 0
    """Rounds of the node that has come furthest."""
    nodes: list[str] = []
    state: State = "unknown"
    reward: dict[str, float | None] = {}
    """Own sampled reward of each node, mean of its last five rounds."""
    accuracy: dict[str, float | None] = {}
    """Mean reward of each node's last greedy answers."""
    is_partial: bool = False
    """True: rewards are not all 0 or 1, so no mean is a share of right answers."""
    changed_s: float | None = None
    error: str = ""


class ExperimentEntry(Struct, frozen=True, kw_only=True):
    """A line of the start page for what another distribution shows."""

    experiment: str
    name: str
    done: int
    total: int | None = None
    running: list[str] = []
    changed_s: float | None = None


class StartView(Struct, frozen=True, kw_only=True):
    place: str
    runs: list[RunEntry] = []
    experiments: list[ExperimentEntry] = []
    is_cut: bool = False


class KeptTable(Struct, frozen=True, kw_only=True):
    """A table that stands at the head of a kept page."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


class KeptRun(Struct, frozen=True, kw_only=True):
    view: RunView
    pairs: list[PairView] = []
    texts: list[TextsView] = []
    """Completions of the newest round of each node."""


class Kept(Struct, frozen=True, kw_only=True):
    """All that a page without a server shows."""

    title: str
    lead: list[str] = []
    table: KeptTable | None = None
    labels: dict[str, str] = {}
    runs: dict[str, KeptRun]
