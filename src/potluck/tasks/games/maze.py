"""Mazes in text: a game of 4 to 12 turns for models of a tenth of a million weights.

    it says    k31x02@10es>    a key lies in row 3, column 1, the exit is at 02, one stands at 10
    model      e
    it says    11nw>           from 11 one can go north or west

Walls are seen beside a cell alone. In mazes of "keys" the exit opens for those that took the key:
"k", where it lies; in those of "portals" it is walled off, and "o", in the portal, leads to the
other side. Whatever else is said costs a turn, as running against a wall does. The exit earns 1
within the shortest way and SPARE turns more.
"""

import random
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple
from zlib import crc32

from msgspec import Meta

from potluck.fields import Count
from potluck.tasks.base import Split, TaskError
from potluck.tasks.environments.host import EnvironmentKind
from potluck.tasks.environments.task import NumberedOptions

MazeKind = Literal["keys", "portals", "any"]
Size = Annotated[int, Meta(ge=3, le=9)]
KINDS: tuple[MazeKind, ...] = ("keys", "portals")
MOVES = {"n": (-1, 0), "e": (0, 1), "s": (1, 0), "w": (0, -1)}
SPARE, HELD_OUT, WALLED = 4, 8, 0.2
"""Turns beyond the shortest way; ways to begin of which one is held out; chance of a wall."""

Spot = tuple[int, int]


class MazeOptions(NumberedOptions, frozen=True, kw_only=True, tag_field="name", tag="maze"):
    """Mazes of many turns, made up: a game for small models, with nothing to download."""

    problems: Count = 2000
    """Problems to train on."""
    kind: MazeKind = "any"
    """Kind of maze, in training and validation: every second one of each, or one of them."""
    other_kind: MazeKind = "any"
    """The same, out of distribution."""
    size: Size = 4
    """Cells of each side, in training and validation. The shortest way has as many moves, or up to
    twice as many, and there are 4 turns more."""
    other_size: Size = 6
    """The same, out of distribution."""

    def play(self) -> tuple[EnvironmentKind, str]:
        return "game", f"{__name__}:{Maze.__name__}"

    def columns(self, split: Split) -> Mapping[str, Any]:
        if (self.kind, self.size) == (self.other_kind, self.other_size):
            raise TaskError(
                f"maze has size = other_size = {self.size} and kind = other_kind = {self.kind!r}; "
                "one of them has to be another out of distribution"
            )
        if split == "out-of-distribution":
            held_out = self.other_size == self.size
            return {"kind": self.other_kind, "size": self.other_size, "held_out": held_out}
        return {"kind": self.kind, "size": self.size, "held_out": split == "validation"}


class Standing(NamedTuple):
    """What a player can change."""

    cell: Spot
    has_key: bool = False


class Layout:
    """A maze that is drawn: walls, things, and the ways through it."""

    def __init__(self, kind: MazeKind, size: int, generator: random.Random) -> None:
        """Draw one; nothing promises that there is a way."""
        cells = [(row, column) for row in range(size) for column in range(size)]
        middle = size // 2
        sides = [[c for c in cells if (c[1] < middle) == left] for left in (True, False)]
        generator.shuffle(sides)
        here, there = sides if kind == "portals" else (cells, cells)
        self.kind, self.ways = kind, {cell: dict[str, Spot]() for cell in cells}
        for cell in cells:
            for letter, back in (("e", "w"), ("s", "n")):
                beside = (cell[0] + MOVES[letter][0], cell[1] + MOVES[letter][1])
                if beside not in self.ways or generator.random() < WALLED:
                    continue
                if (cell in here) == (beside in here):
                    self.ways[cell][letter], self.ways[beside][back] = beside, cell
        self.start, self.thing = generator.sample(here, 2)
        left = [cell for cell in there if cell not in (self.start, self.thing)]
        self.exit, self.far_portal = generator.sample(left, 2)

    def options(self, state: Standing) -> dict[str, Standing]:
        """List the moves that change something, and where each leads."""
        ways = self.ways[state.cell].items()
        options = {letter: Standing(to, state.has_key) for letter, to in ways}
        if self.kind == "keys" and state == (self.thing, False):
            options["k"] = Standing(state.cell, True)
        if self.kind == "portals" and state.cell in (self.thing, self.far_portal):
            options["o"] = Standing(self.far_portal if state.cell == self.thing else self.thing)
        return options

    def seen(self, state: Standing) -> str:
        return f"{_place(state.cell)}{''.join(self.options(state))}>"

    def is_out(self, state: Standing) -> bool:
        return state.cell == self.exit and state.has_key == (self.kind == "keys")

    def shortest(self, state: Standing) -> str | None:
        """Find the moves of a shortest way out; None: there is no way."""
        ways, waiting = {state: ""}, deque([state])
        while waiting:
            now = waiting.popleft()
            if self.is_out(now):
                return ways[now]
            for letter, then in self.options(now).items():
                if then not in ways:
                    ways[then] = ways[now] + letter
                    waiting.append(then)
        return None


class Maze:
    """A game: ``reset`` with a row, then a ``step`` for each turn."""

    actions = (*MOVES, "k", "o")

    def reset(self, *, kind: MazeKind, size: int, held_out: bool, number: int) -> str:
        """Begin in the maze of this number."""
        self.plan, self.turns_left, said = drawn(kind, size, held_out, number)
        self.state = Standing(self.plan.start)
        return said

    def step(self, text: str) -> tuple[str, float, bool]:
        """Make one move; return what is seen, the reward, and whether the game is over."""
        self.state = self.plan.options(self.state).get(text, self.state)
        self.turns_left -= 1
        is_out = self.plan.is_out(self.state)
        return self.plan.seen(self.state), float(is_out), is_out or not self.turns_left


@lru_cache(maxsize=256)  # a group begins many times in one maze, and reads it as often
def drawn(kind: MazeKind, size: int, held_out: bool, number: int) -> tuple[Layout, int, str]:
    """Draw the maze of this number; return also the turns that one has, and what it says first. No
    maze that is held out begins like one that is not."""
    generator = random.Random(f"maze/{kind}/{size}/{held_out}/{number}")
    one = KINDS[number % 2] if kind == "any" else kind
    while True:
        plan = Layout(one, size, generator)
        start = Standing(plan.start)
        way, thing = plan.shortest(start) or "", "k" if one == "keys" else "o"
        said = f"{thing}{_place(plan.thing)}x{_place(plan.exit)}@{plan.seen(start)}"
        is_held_out = crc32(said.encode()) % HELD_OUT == 0
        if size <= len(way) <= 2 * size and is_held_out == held_out:
            return plan, len(way) + SPARE, said


def _place(cell: Spot) -> str:
    return f"{cell[0]}{cell[1]}"
